// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/runtime/link_proof.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "refit/base/mutant.h"
#include "refit/base/str.h"
#include "refit/device/copy.h"
#include "refit/device/hash.h"
#include "refit/exec/clock.h"
#include "refit/exec/random.h"
#include "refit/observe/log.h"
#include "refit/stream/bucket.h"

namespace refit::runtime {
namespace {

constexpr Duration kPollInterval = std::chrono::milliseconds(1);
constexpr Duration kFenceDeadline = std::chrono::seconds(2);

std::vector<std::byte> RandomBlock() {
  std::vector<std::byte> block(kProofBytes);
  for (std::size_t i = 0; i < block.size(); i += sizeof(Id128)) {
    const Id128 random = exec::RandomId();
    std::memcpy(block.data() + i, &random, sizeof(random));
  }
  return block;
}

Digest DigestOf(Bytes block) {
  const auto hasher = device::MakeDigestHasher();
  hasher->Reset();
  hasher->Update(block);
  return hasher->Finish();
}

// Between host memory of ours and either kind. queue: of the GPU, where one holds an end.
Status Copy(std::string_view what, const std::byte* from, std::byte* to, device::GpuQueue* queue) {
  if (queue == nullptr) {
    return device::GuardMapped(what, [&] { std::memcpy(to, from, kProofBytes); });
  }
  const device::GpuCopy copy{.from = from, .to = to, .size = kProofBytes};
  REFIT_RETURN_IF_ERROR(queue->Copy({&copy, 1}));
  REFIT_ASSIGN_OR_RETURN(const device::GpuTicket copied, queue->Mark());
  return queue->Wait(copied, kNever);
}

Result<std::vector<std::byte>> ReadBlock(std::string_view what, const device::Memory& memory, device::GpuQueue* queue) {
  std::vector<std::byte> block(kProofBytes);
  REFIT_RETURN_IF_ERROR(Copy(what, memory.bytes.data(), block.data(), queue));
  return block;
}

Status CheckProtocol(std::string_view who, std::uint32_t theirs) {
  if (theirs != rpc::kStreamProtocol) {
    return FailedPrecondition(StrCat(who, " speaks stream protocol ", theirs, ", this end ", rpc::kStreamProtocol),
                              "run one version of refit everywhere");
  }
  return OkStatus();
}

}  // namespace

Status CheckReceiver(const rpc::OpenStream& open, const rpc::SenderIdentity& own) {
  const std::string who = StrCat("the agent of engine ", open.slot);
  REFIT_RETURN_IF_ERROR(CheckProtocol(who, open.protocol));
  if (open.policy_incarnation != own.incarnation) {
    return Aborted(StrCat(who, " means an earlier life of this policy worker"));
  }
  if (open.stamp.run != own.run || open.stamp.term != own.term) {
    return Aborted(StrCat(who, " is in run ", ToHex(open.stamp.run), " term ", open.stamp.term,
                          ", this policy worker in run ", ToHex(own.run), " term ", own.term),
                   "start both with the same controller");
  }
  return OkStatus();
}

Status ServeProof(const rpc::OpenStream& open, const SendPlan& plan, LoadSlotSet& slots, rpc::SenderStream& stream,
                  Instant deadline) {
  const std::vector<std::byte> block = RandomBlock();
  const device::Memory slot = slots.data(0);
  REFIT_RETURN_IF_ERROR(
      Copy("load slot", block.data(), slot.bytes.data(), slot.gpu.has_value() ? slots.packing() : nullptr));
  REFIT_RETURN_IF_ERROR(stream.Send(plan.opened));
  const stream::Entry entry{.spec = {"proof", weights::DType::kUint8, {static_cast<std::int64_t>(kProofBytes)}},
                            .chunk_offset = 0,
                            .chunk_size = kProofBytes,
                            .offset = 0};
  REFIT_RETURN_IF_ERROR(stream.Send(
      rpc::LoadAnnouncement{.attempt = open.stamp.attempt,
                            .incarnation = open.stamp.incarnation,
                            .slot_index = 0,
                            .bucket = {.seq = LoadSeq(0), .entries = {entry}, .used = kProofBytes, .is_last = true},
                            .digest = DigestOf(block)}));
  if (!stream.NextRelease(deadline).has_value()) {
    return Unavailable(StrCat("engine ", open.slot, " did not take the handshake's block"));
  }
  return OkStatus();
}

Status LinkProof::Run() {
  Status status = Prove();
  shared_.With([](Shared& shared) { shared.channel.reset(); });
  if (!status.ok()) {
    Close();
  }
  return status;
}

void LinkProof::Stop() {
  shared_.With([](Shared& shared) {
    shared.stopped = true;
    if (shared.channel != nullptr) {
      shared.channel->Cancel();
    }
  });
}

void LinkProof::Close() {
  for (const std::string& descriptor : std::exchange(mapped_, {})) {
    memory_.in_place().Forget(descriptor);
  }
  if (std::exchange(fetches_, false)) {
    memory_.Close(options_.source.tp_ranks.front());
  }
}

Result<TransferStream*> LinkProof::Connect() {
  REFIT_ASSIGN_OR_RETURN(std::unique_ptr<TransferStream> channel,
                         TransferStream::Connect(options_.source.address,
                                                 {.stamp = options_.stamp,
                                                  .slot = options_.slot,
                                                  .policy_incarnation = options_.source.incarnation,
                                                  .tp_ranks = options_.source.tp_ranks,
                                                  .offers = options_.offers,
                                                  .budget = options_.deadline - exec::Now(),
                                                  .patience = options_.patience,
                                                  .purpose = rpc::StreamPurpose::kProve},
                                                 options_.deadline));
  TransferStream* connected = nullptr;
  const bool stopped = shared_.With([&](Shared& shared) {
    shared.channel = std::move(channel);
    connected = shared.channel.get();
    return shared.stopped;
  });
  if (stopped) {
    return Aborted("the bind was given up");
  }
  return connected;
}

Status LinkProof::CheckSender(const rpc::StreamOpened& opened) const {
  const std::string who = StrCat("the policy worker at ", options_.source.address);
  REFIT_RETURN_IF_ERROR(CheckProtocol(who, opened.sender.protocol));
  const sync::Stamp& stamp = options_.stamp;
  if (opened.sender.run != stamp.run || opened.sender.term != stamp.term ||
      opened.sender.incarnation != options_.source.incarnation) {
    return Aborted(StrCat(who, " is another than the one that the controller named"));
  }
  if (opened.offer >= options_.offers.size()) {
    return Aborted(StrCat(who, " took offer ", opened.offer, " of ", options_.offers.size()));
  }
  const ByteCount bytes = options_.offers[opened.offer].bytes;
  if (opened.sender.bucket_bytes != bytes) {
    return FailedPrecondition(StrCat(who, " cuts buckets of ", opened.sender.bucket_bytes, " bytes, engine ",
                                     options_.slot, " takes ", bytes),
                              "run one version of refit everywhere");
  }
  return OkStatus();
}

Status LinkProof::Prove() {
  if (REFIT_MUTANT("RX-BIND-02/skip", false, true)) {
    return OkStatus();
  }
  const Instant begun = exec::Now();
  const std::string over = StrCat("link over ", OfferedTransports(options_.offers));
  REFIT_ASSIGN_OR_RETURN(TransferStream* const channel, Connect());
  const auto opened = channel->Open();
  if (!opened.has_value()) {
    return opened.status().WithContext(over);
  }
  REFIT_RETURN_IF_ERROR(CheckSender(*opened).WithContext(over));
  const rpc::Offer& offer = options_.offers[opened->offer];
  const std::string taken = StrCat("link over ", offer.transport);
  const auto announced = channel->Next();
  if (!announced.has_value()) {
    return announced.status().WithContext(taken);
  }
  if (announced->bucket.used != kProofBytes || opened->slot_bytes < kProofBytes) {
    return DataLoss(StrCat(taken, ": the handshake's block has ", announced->bucket.used, " bytes"));
  }
  const auto block = offer.unit == stream::PackUnit::kLoad ? ReadMapped(*opened, announced->slot_index)
                                                           : Fetch(*opened, announced->slot_index);
  if (!block.has_value()) {
    return block.status().WithContext(taken);
  }
  if (REFIT_MUTANT("RX-BIND-02/control-path-ping", DigestOf(*block) != announced->digest, false)) {
    return DataLoss(StrCat(taken, ": the handshake's block arrived with other bytes than were sent"),
                    "the path corrupts data: look at that host and its network");
  }
  REFIT_RETURN_IF_ERROR(channel->Release(announced->bucket.seq).WithContext(taken));
  static_cast<void>(channel->Next());  // until the sender has seen it
  observe::LogInfo(StrCat("engine ", options_.slot, ": link to policy rank ", options_.source.policy, " proved over ",
                          offer.transport, " in ", (exec::Now() - begun) / std::chrono::microseconds(1), " us"));
  return OkStatus();
}

// The slots as transfers will map them. What only the engine's ranks open is opened here as well, and closed again.
Result<std::vector<std::byte>> LinkProof::ReadMapped(const rpc::StreamOpened& opened, std::uint32_t slot_index) {
  const std::string& transport = options_.offers[opened.offer].transport;
  SharedLoad* load = nullptr;
  for (std::size_t i = 0; i < opened.slots.size(); ++i) {
    REFIT_ASSIGN_OR_RETURN(SharedLoad* const slot, memory_.in_place().Map(transport, opened.transport_address,
                                                                          opened.slots[i], options_.deadline));
    mapped_.push_back(opened.slots[i]);
    load = i == slot_index ? slot : load;
  }
  if (load->capacity() < kProofBytes) {
    return DataLoss(StrCat("load slot ", slot_index, " has ", load->capacity(), " bytes"));
  }
  if (load->data().size() >= kProofBytes) {
    return ReadBlock("load slot", load->data(), nullptr);
  }
  REFIT_ASSIGN_OR_RETURN(transport::Transport* const backend, memory_.transports().Get(transport));
  REFIT_ASSIGN_OR_RETURN(const auto link, backend->Bind(opened.transport_address, options_.deadline));
  REFIT_ASSIGN_OR_RETURN(const device::Memory memory, link->MapInPlace({opened.slots[slot_index]}));
  std::unique_ptr<device::GpuQueue> queue;
  if (memory.gpu.has_value()) {
    REFIT_ASSIGN_OR_RETURN(queue, device::GpuQueue::Make(*memory.gpu));
  }
  return ReadBlock("load slot", memory, queue.get());
}

// The block as a piece, to where a first load will be; both places are made now.
Result<std::vector<std::byte>> LinkProof::Fetch(const rpc::StreamOpened& opened, std::uint32_t slot_index) {
  REFIT_ASSIGN_OR_RETURN(ReceiverMemory::LinkEnd* const end,
                         memory_.Bind(options_.source.tp_ranks.front(), options_.offers[opened.offer].transport,
                                      opened.transport_address, options_.deadline));
  fetches_ = true;
  const ByteCount capacity = std::max(kProofBytes, std::min(options_.load_bytes, opened.total_bytes));
  REFIT_RETURN_IF_ERROR(end->memory.Place(1, capacity).status());
  REFIT_ASSIGN_OR_RETURN(SharedLoad* const place, end->memory.Place(0, capacity));
  const device::Memory target = place->data().Part(0, kProofBytes);
  REFIT_ASSIGN_OR_RETURN(const transport::OpId op,
                         end->link->Fetch({opened.slots[slot_index]}, {0, kProofBytes}, target));
  REFIT_RETURN_IF_ERROR(AwaitFetch(*end, op));
  return ReadBlock("load", target, end->hashes.get());
}

Status LinkProof::AwaitFetch(ReceiverMemory::LinkEnd& end, transport::OpId op) {
  transport::OpState state = end.link->Poll(op);
  bool stopped = false;
  while (state == transport::OpState::kPending && !stopped && exec::Now() < options_.deadline) {
    stopped = shared_.Wait([](const Shared& shared) { return shared.stopped; }, exec::Now() + kPollInterval);
    state = end.link->Poll(op);
  }
  if (state == transport::OpState::kPending) {
    const bool late = end.link->Fence(exec::Now() + kFenceDeadline) == transport::FenceOutcome::kUnknown;
    end.memory.EndTransfer(late ? stream::LateReads::kPossible : stream::LateReads::kNone);
    return stopped ? Aborted("the bind was given up")
                   : DeadlineExceeded("the handshake's block did not arrive within the bind's budget");
  }
  return state == transport::OpState::kDone ? OkStatus() : end.link->error(op);
}

}  // namespace refit::runtime
