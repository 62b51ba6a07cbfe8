// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/runtime/engine_life.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <variant>

#include "refit/base/str.h"
#include "refit/checkpoint/checkpoint.h"
#include "refit/engine/sglang/server_fit.h"
#include "refit/engine/sglang/sglang_engine.h"
#include "refit/exec/clock.h"
#include "refit/exec/random.h"
#include "refit/observe/log.h"
#include "refit/runtime/model_fit.h"
#include "refit/weights/model_config.h"

namespace refit::runtime {
namespace {

constexpr std::size_t kMailboxCapacity = 1024;
constexpr std::size_t kCallsInFlight = 4;
constexpr std::size_t kLinksInFlight = 1024;
constexpr Duration kFlushRetryInterval = std::chrono::milliseconds(50);
// Beyond a stall, after which the controller has found this engine lost: a sender that gives up a receiver for which
// nobody else has would end the attempt for all.
constexpr Duration kPatienceMargin = std::chrono::seconds(2);
constexpr Duration kLeastDeadline = std::chrono::milliseconds(1);  // of a call that waited for long
constexpr Duration kChecksumDeadline = std::chrono::seconds(60);

// How this agent takes weights, best first (docs/configuration.md, transport.name).
std::vector<rpc::Offer> MakeOffers(const AgentHostOptions& options) {
  const bool on_gpu = !options.gpus.empty();
  const rpc::DigestKind digests = on_gpu ? rpc::DigestKind::kGpuHash : rpc::DigestKind::kXxh3;
  // A piece is never larger than a load: each then opens at most one.
  const rpc::Offer pieces{.transport = {},
                          .unit = stream::PackUnit::kPiece,
                          .bytes = std::min(options.piece_bytes, options.load_bytes),
                          .digests = digests};
  const rpc::Offer loads{
      .transport = {}, .unit = stream::PackUnit::kLoad, .bytes = options.load_bytes, .digests = rpc::DigestKind::kXxh3};
  const auto offer = [&](const std::string& name) {
    const bool fetches =
        name == "nixl" || name == "loopback" || (name == "cuda_ipc" && options.staging == Staging::kDevice);
    rpc::Offer one = fetches ? pieces : loads;
    one.transport = name;
    return one;
  };
  if (options.transport != "auto") {
    return {offer(options.transport)};
  }
  return on_gpu ? std::vector<rpc::Offer>{offer("cuda_ipc"), offer("shm")} : std::vector<rpc::Offer>{offer("shm")};
}

}  // namespace

EngineLife::EngineLife(const AgentHostOptions& options, std::shared_ptr<EngineProcess> process,
                       TransportSet& transports)
    : options_(options),
      process_(std::move(process)),
      incarnation_{exec::RandomId()},
      mailbox_(kMailboxCapacity),
      transports_(transports) {}

EngineLife::~EngineLife() {
  if (process_ != nullptr) {
    process_->Kill();  // first, so that a call that waits for it ends; afterwards it says nothing to us any more
  }
  for (const auto& [id, link] : links_) {
    link->Stop();
  }
  binder_.reset();
  caller_.reset();
}

Result<std::unique_ptr<EngineLife>> EngineLife::Begin(const AgentHostOptions& options,
                                                      std::shared_ptr<EngineProcess> process,
                                                      TransportSet& transports) {
  std::unique_ptr<EngineLife> life(new EngineLife(options, std::move(process), transports));
  if (life->process_ != nullptr) {
    REFIT_ASSIGN_OR_RETURN(life->reached_, life->process_->Launch([raw = life.get()](const std::string& exit_text) {
      if (!raw->Post(peer::EngineDied{raw->Ended(exit_text)}).ok()) {
        raw->Stop();  // no room for this news: it ends all the same
      }
    }));
  } else {
    life->reached_ = {.url = options.url,
                      .admin_key = options.admin_key,
                      .api_key = options.api_key,
                      .pause_mode = options.pause_mode};
  }
  REFIT_ASSIGN_OR_RETURN(life->engine_, engine::sglang::ConnectSglang(life->reached_));
  REFIT_ASSIGN_OR_RETURN(life->reader_, engine::sglang::ConnectSglang(life->reached_));
  REFIT_RETURN_IF_ERROR(life->Identify());
  REFIT_ASSIGN_OR_RETURN(life->memory_, ReceiverMemory::Make(transports, life->incarnation_, options.gpus));
  return life;
}

Status EngineLife::Ended(const std::string& exit_text) const {
  return Unavailable(StrCat("engine ", options_.slot, " ended: ", exit_text), "its log is in the run directory");
}

Status EngineLife::Identify() {
  const std::string who = StrCat("engine ", options_.slot, " at ", url());
  auto description = engine_->Describe(options_.call_deadline);
  if (!description.has_value()) {
    return description.status().WithContext(who);
  }
  description_ = *std::move(description);
  const bool attached = options_.kind == EngineKind::kAttach;
  REFIT_RETURN_IF_ERROR(
      engine::sglang::CheckServerFits(description_, options_.tp_size,
                                      attached ? engine::sglang::Owner::kSomebody : engine::sglang::Owner::kAgent)
          .WithContext(who));
  REFIT_RETURN_IF_ERROR(peer::CheckEngineAgentOptions(MachineOptions()));
  return CheckModelFits({"--model-path", description_.model_path}, options_.tp_size).WithContext(who);
}

peer::EngineAgentOptions EngineLife::MachineOptions() const {
  peer::EngineAgentOptions options;
  options.slot = options_.slot;
  options.incarnation = incarnation_;
  options.family = description_.family;
  options.pause_mode = options_.pause_mode;
  options.tp_size = options_.tp_size;
  options.attached = options_.kind == EngineKind::kAttach;
  options.call_deadline = options_.call_deadline;
  options.update_deadline = options_.update_deadline;
  options.stall_deadline = options_.stall_deadline;
  options.flush_retry_interval = kFlushRetryInterval;
  return options;
}

Result<peer::EngineAgent> EngineLife::MakeMachine(const rpc::Membership& membership) const {
  peer::EngineAgentOptions options = MachineOptions();
  options.run = membership.run;
  options.term_floor = membership.term;
  options.profile = profile_;
  // The server swallows unknown names and cuts or pads wrong shapes without a word: what it loads is checked here
  // first.
  const auto config = checkpoint::ReadModelConfig(description_.model_path);
  if (config.has_value()) {
    REFIT_ASSIGN_OR_RETURN(weights::Manifest expected, weights::ExpectedTensors(*config));
    options.expected = std::make_shared<const weights::Manifest>(std::move(expected));
  } else {
    observe::LogWarning(StrCat("names and shapes are not checked before sending: ", config.status().ToString()));
  }
  return peer::EngineAgent(std::move(options));
}

Status EngineLife::Run(const rpc::Membership& membership, const std::function<void(sync::AgentReply)>& reply) {
  profile_ = membership.profile == sync::kStrict.name ? sync::kStrict : sync::kResilient;
  REFIT_ASSIGN_OR_RETURN(peer::EngineAgent machine, MakeMachine(membership));
  reply_ = &reply;
  caller_.emplace(kCallsInFlight);
  binder_.emplace(kLinksInFlight);
  while (!ended_.has_value() && !mailbox_.closed()) {
    peer::EngineAgentEffects effects;
    const auto event = mailbox_.Pop(machine.next_deadline());
    const Instant now = exec::Now();
    if (event.has_value()) {
      machine.Handle(*event, now, effects);
    } else if (now >= machine.next_deadline()) {
      machine.HandleDeadline(now, effects);
    }
    for (peer::EngineAgentEffect& effect : effects) {
      std::visit([this](auto& one) { Carry(one); }, effect);
    }
    if (const auto* died = event.has_value() ? std::get_if<peer::EngineDied>(&*event) : nullptr; died != nullptr) {
      ended_ = died->status;  // says more than what the machine makes of it
    }
  }
  died_in_update_ = machine.died_in_update();
  return ended_.value_or(OkStatus());
}

// RC-MON-04: nothing is paused under a probe. A controller lets its own end first; of one that was its predecessor's it
// knows nothing.
sync::Answer EngineLife::Call(const peer::CallEngine& effect) {
  const Instant deadline = exec::Now() + effect.deadline;
  if (effect.operation == sync::Operation::kPause) {
    probes_.Wait([](int in_flight) { return in_flight == 0; }, deadline);
  }
  return engine_->Call(effect.operation, effect.version, std::max<Duration>(deadline - exec::Now(), kLeastDeadline));
}

void EngineLife::Carry(const peer::CallEngine& effect) {
  const Status posted =
      caller_->Post([this, effect] { static_cast<void>(Post(peer::EngineAnswered{effect.call, Call(effect)})); });
  if (!posted.ok()) {
    static_cast<void>(Post(peer::EngineAnswered{effect.call, {sync::AnswerKind::kNone, posted.message(), {}}}));
  }
}

void EngineLife::Carry(const peer::PostUpdate& effect) {
  const Status posted = caller_->Post([this, effect] { receiver_->PostNext(*engine_, effect); });
  if (!posted.ok()) {
    static_cast<void>(Post(peer::EngineAnswered{effect.call, {sync::AnswerKind::kNone, posted.message(), {}}}));
  }
}

void EngineLife::Carry(const peer::OpenLink& effect) {
  const auto link = std::make_shared<LinkProof>(LinkProofOptions{.stamp = effect.stamp,
                                                                 .slot = options_.slot,
                                                                 .source = effect.source,
                                                                 .offers = MakeOffers(options_),
                                                                 .load_bytes = options_.load_bytes,
                                                                 .patience = options_.stall_deadline + kPatienceMargin,
                                                                 .deadline = exec::Now() + effect.budget},
                                                *memory_);
  links_[effect.link] = link;
  const Status posted =
      binder_->Post([this, link, id = effect.link] { static_cast<void>(Post(peer::LinkOpened{id, link->Run()})); });
  if (!posted.ok()) {
    static_cast<void>(Post(peer::LinkOpened{effect.link, posted}));
  }
}

void EngineLife::Carry(const peer::CloseLink& effect) {
  const auto link = links_.extract(effect.link);
  if (link.empty()) {
    return;
  }
  link.mapped()->Stop();
  static_cast<void>(binder_->Post([closed = link.mapped()] { closed->Close(); }));
}

void EngineLife::Carry(peer::StartTransfer& effect) {
  delivered_ = 0;
  receiver_ = std::make_unique<LoadReceiver>(
      LoadReceiverOptions{.start = std::move(effect),
                          .slot = options_.slot,
                          .tp_size = options_.tp_size,
                          .offers = MakeOffers(options_),
                          .load_bytes = options_.load_bytes,
                          .patience = options_.stall_deadline + kPatienceMargin,
                          .split = profile_.dtype_split},
      *memory_, [this](peer::EngineAgentEvent event) { static_cast<void>(Post(std::move(event))); }, delivered_);
}

// An update may still wait for the caller, or be under way there: what it uses goes after it, in the caller's order.
void EngineLife::Carry(const peer::StopTransfer& effect) {
  receiver_->Stop();
  const Status posted = caller_->Post([this, effect] {
    receiver_.reset();  // no thread works for the attempt any more
    if (memory_->exhausted() && process_ != nullptr) {
      observe::LogError(StrCat("engine ", options_.slot, ": reads could not be fenced twice; the engine is ended"));
      process_->Kill();
    }
    static_cast<void>(Post(peer::TransferFenced{effect.attempt}));
  });
  if (!posted.ok()) {
    observe::LogError(StrCat("engine ", options_.slot, ": the transfer cannot be fenced: ", posted.message()));
  }
}

void EngineLife::Carry(const peer::SendReply& effect) { (*reply_)(effect.reply); }

void EngineLife::Carry(const peer::KillEngine& effect) {
  observe::LogWarning(StrCat("engine ", options_.slot, " is ended: ", effect.reason));
  if (process_ != nullptr) {
    process_->Kill(exec::Now());  // its end is waited for by whoever reports it
  }
  ended_ = Aborted(effect.reason);
}

Status EngineLife::Probe(Duration deadline) {
  REFIT_ASSIGN_OR_RETURN(const std::unique_ptr<engine::Engine> prober, engine::sglang::ConnectSglang(reached_));
  probes_.With([](int& in_flight) { ++in_flight; });
  Status status = prober->Probe(deadline);
  probes_.With([](int& in_flight) { --in_flight; });
  return status;
}

Result<std::uint64_t> EngineLife::RequestsInFlight(Duration deadline) {
  REFIT_ASSIGN_OR_RETURN(const std::unique_ptr<engine::Engine> asker, engine::sglang::ConnectSglang(reached_));
  return asker->RequestsInFlight(deadline);
}

Result<std::vector<engine::RankHashes>> EngineLife::Checksums() { return reader_->Checksums(kChecksumDeadline); }

}  // namespace refit::runtime
