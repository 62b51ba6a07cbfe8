// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/runtime/policy_host.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "refit/base/str.h"
#include "refit/exec/clock.h"
#include "refit/exec/lane.h"
#include "refit/exec/mailbox.h"
#include "refit/exec/random.h"
#include "refit/exec/watched.h"
#include "refit/observe/log.h"
#include "refit/peer/policy_agent.h"
#include "refit/peer/send_roster.h"
#include "refit/rpc/controller_rpc.h"
#include "refit/rpc/policy_rpc.h"
#include "refit/runtime/contact.h"
#include "refit/runtime/link_proof.h"
#include "refit/runtime/load_sender.h"
#include "refit/runtime/reply_desk.h"
#include "refit/runtime/source.h"
#include "refit/runtime/transport_set.h"

namespace refit::runtime {
namespace {

constexpr std::size_t kMailboxCapacity = 256;
constexpr Duration kIdleWait = std::chrono::seconds(1);

// What the streams of one attempt's send need.
struct ActiveSend {
  std::shared_ptr<Source> source;  // shared with the lease: immutable
  Instant began;
  Instant deadline;
  std::atomic<bool> stop = false;
};
struct Sending {
  peer::SendRoster roster;
  std::shared_ptr<ActiveSend> send;  // null when nobody sends: freeing a GPU's memory must not wait for the next stall
};

struct ReceiverSlots {
  ReceiverSlots(SlotIndex slot, TransportSet& transports) : slots(slot, transports) {}
  // Held by the stream that uses them. Admit lets one in per attempt, and an attempt starts when the last ended; a
  // handshake that was given up may still be on its way out.
  std::mutex in_use;
  LoadSlotSet slots;
};

class Host final : public PolicyHost, public rpc::PolicyHandler {
 public:
  explicit Host(PolicyHostOptions options) : options_(std::move(options)) {}
  ~Host() override {
    contact_.reset();
    mailbox_.Close();
    if (loop_.joinable()) {
      loop_.join();
    }
    StopSending();
    desk_.Close();
    server_.reset();  // ends the streams' threads
  }

  Status Begin() {
    device::SweepDeadOwners();
    REFIT_ASSIGN_OR_RETURN(std::shared_ptr<Source> source, Source::Open(options_.source, options_.gpu));
    source_.With([&source](auto& current) { current = std::move(source); });
    // Made now and not by the first stream: engines are paused then, and what is wrong is said at once.
    if (options_.gpu.has_value()) {
      REFIT_RETURN_IF_ERROR(transports_.Get("cuda_ipc").status());
    }
    if (!options_.transports.nixl.library.empty()) {
      REFIT_RETURN_IF_ERROR(transports_.Get("nixl").status());
    }
    REFIT_ASSIGN_OR_RETURN(server_, rpc::ServePolicy(options_.listen, *this));
    const rpc::PolicyRegistration self{options_.rank, incarnation_, server_->address(), options_.source};
    contact_.emplace(
        ContactOptions{.place = {options_.controller, options_.state_directory},
                       .register_at = [self](rpc::ControllerClient& controller,
                                             Duration deadline) { return controller.RegisterPolicy(self, deadline); },
                       .on_made = [this](const Contacted& contacted) { OnContact(contacted.membership); },
                       .on_lost = [] {}});
    REFIT_RETURN_IF_ERROR(contact_->Register(options_.register_deadline).status());
    loop_ = std::thread([this] { Loop(); });
    observe::LogInfo(StrCat("policy worker ", options_.rank, " serves ", options_.source, " at ", server_->address()));
    return OkStatus();
  }
  const std::string& address() const override { return server_->address(); }

  // ---- rpc threads
  sync::PolicyReply Execute(const sync::PolicyCommand& command) override {
    const auto ticket = desk_.Open(command.stamp);
    Status status = mailbox_.Push(peer::PolicyCommandArrived{command});
    if (status.ok()) {
      if (auto reply = desk_.Wait(ticket, exec::Now() + command.budget + kReplyMargin)) {
        return *std::move(reply);
      }
      status = DeadlineExceeded(StrCat("policy worker ", options_.rank, " did not answer within its budget"));
    }
    return {.stamp = command.stamp,
            .kind = sync::ReplyKind::kFailed,
            .status = status,
            .manifest = nullptr,
            .digest = {},
            .totals = {}};
  }

  Result<std::vector<weights::RankHashes>> ExpectedHashes(const std::string& folder,
                                                          weights::Hashing hashing) override {
    REFIT_ASSIGN_OR_RETURN(const std::shared_ptr<Source> source,
                           Source::Open(folder.empty() ? options_.source : folder));
    return source->ExpectedHashes(hashing);
  }

  void Serve(const rpc::OpenStream& open, rpc::SenderStream& stream) override {
    const Instant deadline = exec::Now() + open.budget;
    patience_ = open.patience;
    if (open.purpose == rpc::StreamPurpose::kProve) {
      if (const Status status = Prove(open, stream, deadline); !status.ok()) {
        observe::LogWarning(StrCat("link to engine ", open.slot, ": ", status.ToString()));
        static_cast<void>(stream.Send(rpc::StreamFailed{open.stamp.attempt, status}));
      }
      return;
    }
    const std::shared_ptr<ActiveSend> send = AwaitSend(open, stream, deadline);
    if (send == nullptr) {
      return;
    }
    SendResult result = SendOver(open, *send, stream);
    if (!result.status.ok()) {
      observe::LogWarning(StrCat("engine ", open.slot, ": ", result.status.ToString()));
      static_cast<void>(stream.Send(rpc::StreamFailed{open.stamp.attempt, result.status}));
    }
    sending_.With([&](Sending& sending) {
      sending.roster.End(open.stamp.attempt, open.slot, std::move(result));
      ReportIfEnded(sending);
    });
  }

 private:
  // ---- streams
  std::shared_ptr<ActiveSend> AwaitSend(const rpc::OpenStream& open, rpc::SenderStream& stream, Instant deadline) {
    Status refused;
    std::shared_ptr<ActiveSend> found;
    sending_.Wait(
        [&](Sending& sending) {
          const auto admission =
              sending.roster.Admit({open.stamp.attempt, open.slot, open.stamp.incarnation, open.policy_incarnation});
          refused = admission.status();
          if (admission.has_value() && *admission == peer::Admission::kServe) {
            found = sending.send;
          }
          return !refused.ok() || found != nullptr || stream.broken() || mailbox_.closed();
        },
        deadline);
    if (found == nullptr) {
      const Status status = refused.ok() ? DeadlineExceeded("the controller asked for no send in time") : refused;
      static_cast<void>(stream.Send(rpc::StreamFailed{open.stamp.attempt, status}));
    }
    return found;
  }

  Status Prove(const rpc::OpenStream& open, rpc::SenderStream& stream, Instant deadline) {
    rpc::SenderIdentity own = identity_.With([](const rpc::SenderIdentity& identity) { return identity; });
    REFIT_RETURN_IF_ERROR(CheckReceiver(open, own));
    const std::shared_ptr<ReceiverSlots> receiver = SlotsOf(open.slot);
    const std::lock_guard lock(receiver->in_use);
    const std::shared_ptr<Source> source = source_.With([](const auto& current) { return current; });
    auto plan = receiver->slots.Prepare(open, *source);
    if (!plan.has_value()) {
      return plan.status().WithContext(StrCat("load slots of engine ", open.slot));
    }
    own.bucket_bytes = open.offers[plan->opened.offer].bytes;
    plan->opened.sender = own;
    return ServeProof(open, *plan, receiver->slots, stream, deadline);
  }

  SendResult SendOver(const rpc::OpenStream& open, ActiveSend& send, rpc::SenderStream& stream) {
    const std::shared_ptr<ReceiverSlots> receiver = SlotsOf(open.slot);
    const std::lock_guard lock(receiver->in_use);
    LoadSlotSet& slots = receiver->slots;
    const auto plan = slots.Prepare(open, *send.source);
    if (!plan.has_value()) {
      return {SendEnd::kSourceFailed, plan.status().WithContext(StrCat("load slots of engine ", open.slot)), {}, {}};
    }
    const rpc::Offer& offer = open.offers[plan->opened.offer];
    cuts_.With([&offer](auto& cuts) { cuts.emplace(offer.unit, offer.bytes); });
    if (Status status = stream.Send(plan->opened); !status.ok()) {
      return {SendEnd::kReceiverLeft, std::move(status), {}, {}};
    }
    return SendLoads(open, *plan, *send.source, slots, stream, options_.digests, send.stop, send.deadline);
  }

  std::shared_ptr<ReceiverSlots> SlotsOf(SlotIndex slot) {
    return slots_.With([&](auto& receivers) {
      auto& receiver = receivers[slot];
      if (receiver == nullptr) {
        receiver = std::make_shared<ReceiverSlots>(slot, transports_);
      }
      return receiver;
    });
  }

  // Thread: the contact's.
  void OnContact(const rpc::Membership& membership) {
    identity_.With([&](rpc::SenderIdentity& own) {
      own.term = own.run == membership.run ? std::max(own.term, membership.term) : membership.term;
      own.run = membership.run;
      own.incarnation = incarnation_;
    });
  }

  // The attempts of another run have the same numbers.
  void ForgetRun() {
    StopSending();
    sending_.With([](Sending& sending) {
      sending.roster.Start(AttemptId{}, {});
      sending.send = nullptr;
    });
    const auto last = slots_.With([](auto& receivers) { return std::exchange(receivers, {}); });
  }

  // ---- the loop
  peer::PolicyAgent MakeMachine(const rpc::SenderIdentity& own) const {
    return peer::PolicyAgent(
        {.rank = options_.rank, .incarnation = incarnation_, .run = own.run, .term_floor = own.term});
  }

  void Loop() {
    RunId run;
    std::optional<peer::PolicyAgent> machine;
    while (!mailbox_.closed()) {
      peer::PolicyAgentEffects effects;
      const Instant next = machine.has_value() ? machine->next_deadline() : kNever;
      const auto event = mailbox_.Pop(std::min(next, exec::Now() + kIdleWait));
      const rpc::SenderIdentity own = identity_.With([](const rpc::SenderIdentity& identity) { return identity; });
      if (!machine.has_value() || run != own.run) {
        if (machine.has_value()) {
          ForgetRun();
        }
        machine.emplace(MakeMachine(own));
        run = own.run;
      }
      peer::PolicyAgent& agent = *machine;
      if (event.has_value()) {
        agent.Handle(*event, exec::Now(), effects);
      } else if (exec::Now() >= agent.next_deadline()) {
        agent.HandleDeadline(exec::Now(), effects);
      }
      for (peer::PolicyAgentEffect& effect : effects) {
        std::visit([this](auto& one) { Carry(one); }, effect);
      }
      GiveUpAbsent();
    }
  }

  // A receiver may end between the controller's word to it and the opening of its stream.
  void GiveUpAbsent() {
    sending_.With([this](Sending& sending) {
      if (sending.send != nullptr && exec::Now() - sending.send->began >= patience_.load()) {
        sending.roster.GiveUpAbsent();
        ReportIfEnded(sending);
      }
    });
  }

  void Carry(peer::OpenSource& effect) {
    const Status posted = files_.Post([this, effect] {
      Result<std::shared_ptr<Source>> opened = Reopen(effect.source.empty() ? options_.source : effect.source);
      if (opened.has_value()) {
        source_.With([&opened](auto& current) { current = *opened; });
        HashAhead(**opened);
      }
      Post(peer::SourceOpened{effect.attempt, opened.status(), opened.has_value() ? (*opened)->manifest() : nullptr});
    });
    if (!posted.ok()) {
      Post(peer::SourceOpened{effect.attempt, posted, nullptr});
    }
  }
  void Carry(peer::StartSend& effect) {
    auto send = std::make_shared<ActiveSend>();
    send->source = source_.With([](const auto& current) { return current; });
    send->began = exec::Now();
    send->deadline = send->began + effect.budget;
    sending_.With([&](Sending& sending) {
      sending.roster.Start(effect.stamp.attempt, std::move(effect.receivers));
      sending.send = std::move(send);
      ReportIfEnded(sending);  // a rank without a receiver has nothing to stream
    });
  }
  void Carry(peer::StopSend&) { StopSending(); }
  void Carry(peer::CloseSource&) {}  // the mapping stays for the next lease of the same files
  void Carry(peer::SendPolicyReply& effect) {
    identity_.With([&effect](rpc::SenderIdentity& own) { own.term = std::max(own.term, effect.reply.highest_term); });
    desk_.Answer(std::move(effect.reply));
  }

  void StopSending() {
    sending_.With([this](Sending& sending) {
      if (sending.send != nullptr) {
        sending.send->stop = true;
      }
      sending.roster.Stop();
      ReportIfEnded(sending);
    });
  }

  void ReportIfEnded(Sending& sending) {
    if (const auto whole = sending.roster.TakeWhole()) {
      sending.send = nullptr;
      Post(peer::SendEnded{sending.roster.attempt(), whole->status, whole->root, whole->totals});
    }
  }

  // What the last streams cut, they will cut again: a GPU hashes it now and not while engines are paused. A failure
  // shows again where the stream asks.
  void HashAhead(Source& source) {
    if (source.gpu().has_value()) {
      for (const auto& [unit, bytes] : cuts_.With([](auto& cuts) { return cuts; })) {
        static_cast<void>(source.GpuSums(unit, bytes));
      }
    }
  }

  // The source of the last lease where its files have not changed: warm pages or a filled GPU, and loads already cut.
  Result<std::shared_ptr<Source>> Reopen(const std::string& folder) {
    auto current = source_.With([](const auto& last) { return last; });
    if (current->folder() == folder && current->Unchanged()) {
      return current;
    }
    return Source::Open(folder, options_.gpu);
  }

  void Post(peer::PolicyAgentEvent event) {
    if (const Status status = mailbox_.Push(std::move(event)); !status.ok() && !mailbox_.closed()) {
      observe::LogError(StrCat("policy worker ", options_.rank, ": ", status.ToString()));
    }
  }

  const PolicyHostOptions options_;
  const Incarnation incarnation_{exec::RandomId()};
  TransportSet transports_{options_.transports};
  exec::Watched<std::shared_ptr<Source>> source_;  // of the last lease
  ReplyDesk<sync::PolicyReply> desk_;
  exec::Mailbox<peer::PolicyAgentEvent> mailbox_{kMailboxCapacity};
  exec::Watched<Sending> sending_{Sending{peer::SendRoster(incarnation_), nullptr}};
  exec::Watched<std::map<SlotIndex, std::shared_ptr<ReceiverSlots>>> slots_;  // shared with the streams that use them
  std::atomic<Duration> patience_ = Duration::max();                          // of the stream that was opened last
  exec::Watched<rpc::SenderIdentity> identity_;                               // run and term once registered
  exec::Watched<std::set<std::pair<stream::PackUnit, ByteCount>>> cuts_;      // that streams asked for
  exec::Lane files_{4};
  std::unique_ptr<rpc::Server> server_;
  std::optional<Contact> contact_;
  std::thread loop_;
};

}  // namespace

Result<std::unique_ptr<PolicyHost>> PolicyHost::Start(PolicyHostOptions options) {
  auto host = std::make_unique<Host>(std::move(options));
  REFIT_RETURN_IF_ERROR(host->Begin());
  return std::unique_ptr<PolicyHost>(std::move(host));
}

}  // namespace refit::runtime
