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
#include "refit/engine/process/port_list.h"
#include "refit/engine/sglang/server_launch.h"
#include "refit/exec/clock.h"
#include "refit/exec/watched.h"
#include "refit/observe/log.h"
#include "refit/rpc/agent_rpc.h"
#include "refit/rpc/controller_rpc.h"
#include "refit/runtime/contact.h"
#include "refit/runtime/engine_life.h"
#include "refit/runtime/engine_owner.h"
#include "refit/runtime/engine_process.h"
#include "refit/runtime/reply_desk.h"
#include "refit/runtime/transport_set.h"

namespace refit::runtime {
namespace {

constexpr Duration kRelaunchPauseFirst = std::chrono::milliseconds(200);
constexpr Duration kRelaunchPauseMax = std::chrono::seconds(30);
constexpr Duration kForever = std::chrono::hours(24 * 365);
constexpr Duration kGoneDeadline = std::chrono::seconds(2);
constexpr Duration kTellAgainInterval = std::chrono::seconds(1);
constexpr Duration kConfirmDeadline = std::chrono::seconds(2);  // for a tree of killed processes to be gone

class Host final : public AgentHost, public rpc::AgentHandler {
 public:
  explicit Host(AgentHostOptions options) : options_(std::move(options)), owner_(options_.slot) {}
  ~Host() override {
    owner_.Stop();
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
    if (options_.kind != EngineKind::kAttach) {
      REFIT_RETURN_IF_ERROR(Register(Nobody()));  // which run this is, before its first engine gets a port of it
    }
    if (const Status up = NextLife(); !up.ok()) {  // whoever starts an agent hears what is wrong with its engine
      if (up.code() != StatusCode::kCancelled || !membership().launches_engines || !NextEngine()) {
        return up;
      }
    }
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
    const auto life = owner_.life();
    const Status status = life == nullptr || life->incarnation() != command.stamp.incarnation
                              ? Aborted("the command is for another life of the engine")
                              : life->Post(peer::CommandArrived{command});
    if (!status.ok()) {
      return refuse(sync::ReplyKind::kStale, status);
    }
    if (auto reply = desk_.Wait(ticket, exec::Now() + command.budget + kReplyMargin)) {
      owner_.Heard(reply->highest_term);
      return *std::move(reply);
    }
    return refuse(sync::ReplyKind::kFailed,
                  DeadlineExceeded(StrCat("agent of engine ", options_.slot, " did not answer within its budget")));
  }

  rpc::ErrandReply Run(const rpc::EngineErrand& errand) override { return owner_.Run(errand); }

  Result<std::vector<weights::RankHashes>> Checksums(Incarnation incarnation) override {
    const auto life = owner_.life();
    if (life == nullptr || life->incarnation() != incarnation) {
      return Unavailable(StrCat("engine ", options_.slot, " of that incarnation is gone"));
    }
    return life->Checksums();
  }

  ByteCount bytes_delivered() const override {
    const auto life = owner_.life();
    return life == nullptr ? 0 : life->bytes_delivered();
  }

 private:
  // ---- the contact's thread
  Result<rpc::Membership> RegisterAt(rpc::ControllerClient& controller, Duration deadline) {
    const auto registration = registration_.With([](const auto& current) { return current; });
    if (!registration.has_value()) {
      return Status(StatusCode::kCancelled, "no engine is attached");
    }
    return controller.RegisterAgent(*registration, deadline);
  }
  // The engine of a run that is over is not one of the next run: its commands would all be refused.
  void OnContact(const Contacted& contacted) {
    const RunId run = contacted.membership.run;
    if (!run_.is_zero() && run_ != run) {
      observe::LogWarning(StrCat("engine ", options_.slot, " is ended: another run has begun"));
      if (const auto life = owner_.life(); life != nullptr) {
        life->Stop();
      }
    }
    run_ = run;
    Join(contacted.membership);
    TellLife(peer::ContactMade{contacted.authority});
  }
  void TellLife(peer::EngineAgentEvent event) {
    if (const auto life = owner_.life(); life != nullptr) {
      static_cast<void>(life->Post(std::move(event)));
    }
  }

  void Join(const rpc::Membership& membership) {
    membership_.With([&membership](rpc::Membership& current) { current = membership; });
    owner_.Join(membership.run, membership.term);
  }
  rpc::Membership membership() const {
    return membership_.With([](const rpc::Membership& current) { return current; });
  }

  // ---- the loop
  // The agent alone: its engine is not there yet, or no more. An attached one is all that its agent has.
  std::optional<rpc::AgentRegistration> Nobody() const {
    if (options_.kind == EngineKind::kAttach) {
      return std::nullopt;
    }
    return rpc::AgentRegistration{.slot = options_.slot,
                                  .incarnation = {},
                                  .address = server_->address(),
                                  .engine_url = {},
                                  .engine_version = {},
                                  .family = {},
                                  .tp_size = options_.tp_size};
  }
  rpc::AgentRegistration Of(const EngineLife& life) const {
    return {.slot = options_.slot,
            .incarnation = life.incarnation(),
            .address = server_->address(),
            .engine_url = life.url(),
            .engine_version = life.description().version,
            .family = std::string(sync::ToString(life.description().family)),
            .tp_size = options_.tp_size,
            .hash_kind = life.description().hash_kind,
            .engine_pid = life.pid(),
            .attached = options_.kind == EngineKind::kAttach};
  }
  Status Register(std::optional<rpc::AgentRegistration> registration) {
    registration_.With([&registration](auto& current) { current = std::move(registration); });
    REFIT_ASSIGN_OR_RETURN(const Contacted contacted, contact_->Register(options_.register_deadline));
    Join(contacted.membership);
    return OkStatus();
  }
  void ForgetLife() {
    registration_.With([this](auto& registration) { registration = Nobody(); });
    owner_.Dismiss();
  }

  // Launches, identifies and registers the next incarnation; whoever asked for it hears what came of it.
  Status NextLife() {
    const Status status = TryNextLife();
    if (!status.ok()) {
      ForgetLife();
      owner_.Buried();
    }
    owner_.EndLaunch(status);
    return status;
  }

  Status TryNextLife() {
    std::shared_ptr<EngineProcess> process;
    if (options_.kind != EngineKind::kAttach) {
      if (launches_ > 0) {
        // Nothing is launched for a slot that is gone meanwhile.
        const Status wanted = Register(Nobody());
        removed_ = wanted.code() == StatusCode::kNotFound;
        REFIT_RETURN_IF_ERROR(wanted);
      }
      process = std::make_shared<EngineProcess>(options_, ++launches_, engine::process::PortListPath(membership().run));
    }
    REFIT_RETURN_IF_ERROR(owner_.BeginLaunch(process));
    REFIT_ASSIGN_OR_RETURN(std::unique_ptr<EngineLife> begun, EngineLife::Begin(options_, process, transports_));
    const std::shared_ptr<EngineLife> life = std::move(begun);
    owner_.Admit(life);  // first: the controller may send a command as soon as it knows of it
    REFIT_RETURN_IF_ERROR(Register(Of(*life)));
    url_ = life->url();
    observe::LogInfo(StrCat("engine ", options_.slot, " is ready at ", life->url(), ", SGLang ",
                            life->description().version, ", family ", sync::ToString(life->description().family),
                            ", tp ", options_.tp_size));
    return OkStatus();
  }

  void Loop() {
    while (true) {
      const Instant began = exec::Now();
      RunLife();
      if (owner_.stopping()) {
        return;
      }
      if (options_.kind == EngineKind::kAttach) {
        const Status retired = FailedPrecondition(
            StrCat("engine ", options_.slot, " is retired: it is not ours to restart"), "attach again when it is");
        observe::LogError(retired.ToString());
        owner_.Retire(retired);
        static_cast<void>(owner_.AwaitStop(exec::Now() + kForever));
        return;
      }
      if (exec::Now() - began > kRelaunchPauseMax) {
        pause_ = kRelaunchPauseFirst;
      }
      if (!NextEngine()) {
        return;
      }
    }
  }

  // One incarnation, until its processes are gone and the controller was told.
  void RunLife() {
    const auto life = owner_.life();
    rpc::AgentEnd end{.slot = options_.slot, .incarnation = life->incarnation(), .status = {}};
    end.status = life->Run(membership(), [this](sync::AgentReply reply) { desk_.Answer(std::move(reply)); });
    end.died_in_update = life->died_in_update();
    ForgetLife();
    if (owner_.stopping()) {
      static_cast<void>(life->End(kNever));  // whoever still probes it keeps the life, not the engine
      return;
    }
    observe::LogWarning(StrCat("engine ", options_.slot, ": ", end.status.ToString()));
    end.confirmed_dead = life->End(exec::Now() + kConfirmDeadline);
    TellGone(end);
    if (!end.confirmed_dead && options_.kind != EngineKind::kAttach) {
      observe::LogError(StrCat("engine ", options_.slot, ": its processes do not end; waiting for them"));
      end.confirmed_dead = life->End(kNever);  // the old ones are gone before the next one starts (INV-6)
      TellGone(end);
    }
    owner_.Buried();
  }

  void TellGone(const rpc::AgentEnd& end) {
    unheard_ = end;
    TellAgain();
  }
  void TellAgain() {
    const auto controller = contact_->controller();
    if (unheard_.has_value() && controller != nullptr && controller->AgentGone(*unheard_, kGoneDeadline).ok()) {
      unheard_.reset();
    }
  }

  // Until an incarnation is up; false when stopping. The controller says when, or nobody does (use_fault_tolerance).
  bool NextEngine() {
    while (true) {
      if (membership().launches_engines) {
        while (!owner_.AwaitOrder(exec::Now() + kTellAgainInterval)) {
          if (owner_.stopping()) {
            return false;
          }
          TellAgain();
        }
      } else if (owner_.AwaitStop(exec::Now() + pause_)) {
        return false;
      }
      pause_ = std::min(pause_ * 2, kRelaunchPauseMax);
      const Status up = NextLife();
      if (up.ok()) {
        return true;
      }
      observe::LogError(up.ToString());
      if (removed_) {
        owner_.Retire(up);
        static_cast<void>(owner_.AwaitStop(exec::Now() + kForever));
        return false;
      }
    }
  }

  const AgentHostOptions options_;
  TransportSet transports_{options_.transports};
  ReplyDesk<sync::AgentReply> desk_;
  mutable exec::Watched<rpc::Membership> membership_;
  exec::Watched<std::optional<rpc::AgentRegistration>> registration_;  // as the agent is now
  RunId run_;                                                          // the contact's
  std::uint32_t launches_ = 0;
  bool removed_ = false;  // the controller knows no such slot any more
  Duration pause_ = kRelaunchPauseFirst;
  std::optional<rpc::AgentEnd> unheard_;  // the controller has not been told yet
  std::string url_;
  EngineOwner owner_;
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
