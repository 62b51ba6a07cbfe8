// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/runtime/agent_host.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "refit/base/str.h"
#include "refit/device/shared_memory.h"
#include "refit/engine/sglang/server_launch.h"
#include "refit/exec/clock.h"
#include "refit/exec/watched.h"
#include "refit/observe/log.h"
#include "refit/rpc/agent_rpc.h"
#include "refit/rpc/controller_rpc.h"
#include "refit/runtime/contact.h"
#include "refit/runtime/engine_life.h"
#include "refit/runtime/reply_desk.h"
#include "refit/runtime/transport_set.h"

namespace refit::runtime {
namespace {

constexpr Duration kRelaunchPauseFirst = std::chrono::milliseconds(200);
constexpr Duration kRelaunchPauseMax = std::chrono::seconds(30);
constexpr Duration kForever = std::chrono::hours(24 * 365);
constexpr Duration kGoneDeadline = std::chrono::seconds(2);

class Host final : public AgentHost, public rpc::AgentHandler {
 public:
  explicit Host(AgentHostOptions options) : options_(std::move(options)) {}
  ~Host() override {
    stopping_.With([](Stopping& stopping) {
      stopping.now = true;
      if (stopping.life != nullptr) {
        stopping.life->Stop();
      }
    });
    if (loop_.joinable()) {
      loop_.join();
    }
    contact_.reset();
    desk_.Close();
    server_.reset();
  }

  Status Begin() {
    device::SweepDeadOwners();
    std::error_code error;
    std::filesystem::create_directories(options_.run_directory, error);
    if (error) {
      return FailedPrecondition(StrCat("cannot create run directory ", options_.run_directory, ": ", error.message()));
    }
    REFIT_ASSIGN_OR_RETURN(server_, rpc::ServeAgent(options_.listen, *this));
    contact_.emplace(
        ContactOptions{.place = {options_.controller, options_.state_directory},
                       .register_at = [this](rpc::ControllerClient& controller,
                                             Duration deadline) { return RegisterAt(controller, deadline); },
                       .on_made = [this](const Contacted& contacted) { OnContact(contacted); },
                       .on_lost = [this] { TellLife(peer::ContactLost{}); }});
    if (options_.transport != "auto") {
      REFIT_RETURN_IF_ERROR(transports_.Get(options_.transport).status());  // not by the first refit, in its stall
    }
    REFIT_RETURN_IF_ERROR(NextLife());
    loop_ = std::thread([this] { Loop(); });
    return OkStatus();
  }
  const std::string& address() const override { return server_->address(); }
  std::string engine_url() const override { return url_; }

  // ---- rpc threads
  sync::AgentReply Execute(const sync::AgentCommand& command) override {
    const auto refuse = [&command](sync::ReplyKind kind, Status status) {
      return sync::AgentReply{.stamp = command.stamp,
                              .kind = kind,
                              .status = std::move(status),
                              .residue = sync::Residue::Unknown(),
                              .totals = {},
                              .retryable_in_place = false};
    };
    const auto ticket = desk_.Open(command.stamp);
    const Status status = stopping_.With([&command](Stopping& stopping) {
      if (stopping.life == nullptr || stopping.life->incarnation() != command.stamp.incarnation) {
        return Aborted("the command is for another life of the engine");
      }
      return stopping.life->Post(peer::CommandArrived{command});
    });
    if (!status.ok()) {
      return refuse(sync::ReplyKind::kStale, status);
    }
    if (auto reply = desk_.Wait(ticket, exec::Now() + command.budget + kReplyMargin)) {
      return *std::move(reply);
    }
    return refuse(sync::ReplyKind::kFailed,
                  DeadlineExceeded(StrCat("agent of engine ", options_.slot, " did not answer within its budget")));
  }

  Result<std::vector<weights::RankHashes>> Checksums(Incarnation incarnation) override {
    const auto life = life_.With([](auto& current) { return current; });
    if (life == nullptr || life->incarnation() != incarnation) {
      return Unavailable(StrCat("engine ", options_.slot, " of that incarnation is gone"));
    }
    return life->Checksums();
  }

  ByteCount bytes_delivered() const override {
    const auto life = life_.With([](auto& current) { return current; });
    return life == nullptr ? 0 : life->bytes_delivered();
  }

 private:
  struct Stopping {
    bool now = false;
    EngineLife* life = nullptr;
  };

  // ---- the contact's thread
  Result<rpc::Membership> RegisterAt(rpc::ControllerClient& controller, Duration deadline) {
    const auto registration = registration_.With([](const auto& current) { return current; });
    if (!registration.has_value()) {
      return Status(StatusCode::kCancelled, "no engine is up");
    }
    return controller.RegisterAgent(*registration, deadline);
  }
  // The engine of a run that is over is not one of the next run: its commands
  // would all be refused.
  void OnContact(const Contacted& contacted) {
    const RunId run = contacted.membership.run;
    const bool first = run_.is_zero();
    if (!first && run_ != run) {
      observe::LogWarning(StrCat("engine ", options_.slot, " is ended: another run has begun"));
      if (const auto life = life_.With([](auto& current) { return current; }); life != nullptr) {
        life->Stop();
      }
    }
    run_ = run;
    TellLife(peer::ContactMade{contacted.authority});
  }
  void TellLife(peer::EngineAgentEvent event) {
    if (const auto life = life_.With([](auto& current) { return current; }); life != nullptr) {
      static_cast<void>(life->Post(std::move(event)));
    }
  }

  void ForgetLife() {
    registration_.With([](auto& registration) { registration.reset(); });
    life_.With([](auto& current) { current.reset(); });
  }

  // Launches, identifies and registers the next incarnation.
  Status NextLife() {
    REFIT_ASSIGN_OR_RETURN(std::unique_ptr<EngineLife> life, EngineLife::Begin(options_, ++launches_, transports_));
    const std::shared_ptr<EngineLife> shared = std::move(life);
    registration_.With([&](auto& registration) {
      registration = {.slot = options_.slot,
                      .incarnation = shared->incarnation(),
                      .address = server_->address(),
                      .engine_url = shared->url(),
                      .engine_version = shared->description().version,
                      .family = std::string(sync::ToString(shared->description().family)),
                      .tp_size = options_.tp_size,
                      .hash_kind = shared->description().hash_kind,
                      .engine_pid = shared->pid(),
                      .attached = options_.kind == EngineKind::kAttach};
    });
    life_.With([&shared](auto& current) { current = shared; });
    const auto contacted = contact_->Register(options_.register_deadline);
    if (!contacted.has_value()) {
      ForgetLife();
      return contacted.status();
    }
    membership_ = contacted->membership;
    url_ = shared->url();
    observe::LogInfo(StrCat("engine ", options_.slot, " is ready at ", shared->url(), ", SGLang ",
                            shared->description().version, ", family ", sync::ToString(shared->description().family),
                            ", tp ", options_.tp_size));
    stopping_.With([&shared](Stopping& stopping) {
      stopping.life = shared.get();
      if (stopping.now) {  // while it was launched: nobody else will tell it
        shared->Stop();
      }
    });
    return OkStatus();
  }

  void Loop() {
    while (true) {
      auto life = life_.With([](auto& current) { return current; });
      const Instant began = exec::Now();
      const Status ended = life->Run(membership_, [this](sync::AgentReply reply) { desk_.Answer(std::move(reply)); });
      stopping_.With([](Stopping& stopping) { stopping.life = nullptr; });
      ForgetLife();
      if (stopping_.With([](Stopping& stopping) { return stopping.now; })) {
        return;
      }
      observe::LogWarning(StrCat("engine ", options_.slot, ": ", ended.ToString()));
      if (const auto controller = contact_->controller(); controller != nullptr) {
        static_cast<void>(controller->AgentGone(options_.slot, life->incarnation(), ended, kGoneDeadline));
      }
      life.reset();  // the old process is gone before the next one starts
                     // (INV-6)
      if (options_.kind == EngineKind::kAttach) {
        observe::LogError(
            StrCat("engine ", options_.slot, " is retired: it is not ours to restart; attach again when it is"));
        static_cast<void>(
            stopping_.Wait([](const Stopping& stopping) { return stopping.now; }, exec::Now() + kForever));
        return;
      }
      if (exec::Now() - began > kRelaunchPauseMax) {
        pause_ = kRelaunchPauseFirst;
      }
      if (!Relaunch()) {
        return;
      }
    }
  }

  // Until an incarnation is up; false when stopping. An attached engine is not
  // ours to launch (C17).
  bool Relaunch() {
    while (true) {
      if (stopping_.Wait([](const Stopping& stopping) { return stopping.now; }, exec::Now() + pause_)) {
        return false;
      }
      pause_ = std::min(pause_ * 2, kRelaunchPauseMax);
      const Status up = NextLife();
      if (up.ok()) {
        return true;
      }
      observe::LogError(up.ToString());
    }
  }

  const AgentHostOptions options_;
  TransportSet transports_{options_.transports};
  ReplyDesk<sync::AgentReply> desk_;
  rpc::Membership membership_;
  std::uint32_t launches_ = 0;
  Duration pause_ = kRelaunchPauseFirst;
  std::string url_;
  mutable exec::Watched<std::shared_ptr<EngineLife>> life_;  // shared with rpc threads that read checksums meanwhile
  exec::Watched<Stopping> stopping_;
  RunId run_;                                                          // the contact's
  exec::Watched<std::optional<rpc::AgentRegistration>> registration_;  // of the life that is up
  std::unique_ptr<rpc::Server> server_;
  std::optional<Contact> contact_;
  std::thread loop_;
};

}  // namespace

Status CheckEngineArguments(EngineKind kind, const std::vector<std::string>& arguments) {
  return kind == EngineKind::kSglang ? engine::sglang::CheckServerArguments(arguments) : OkStatus();
}

Result<std::unique_ptr<AgentHost>> AgentHost::Start(AgentHostOptions options) {
  auto host = std::make_unique<Host>(std::move(options));
  REFIT_RETURN_IF_ERROR(host->Begin());
  return std::unique_ptr<AgentHost>(std::move(host));
}

}  // namespace refit::runtime
