// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/runtime/bench_link.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <utility>

#include "refit/base/str.h"
#include "refit/engine/process/child_process.h"
#include "refit/exec/clock.h"
#include "refit/exec/random.h"
#include "refit/exec/watched.h"
#include "refit/rpc/policy_rpc.h"
#include "refit/runtime/load_puller.h"
#include "refit/runtime/load_sender.h"
#include "refit/runtime/median.h"
#include "refit/runtime/receiver_memory.h"

namespace refit::runtime {
namespace {

constexpr Duration kDeadline = std::chrono::seconds(60);
constexpr Duration kSourceDeadline = std::chrono::seconds(120);  // reads a checkpoint, fills a GPU
constexpr SlotIndex kMeasured{0};
constexpr SlotIndex kCeiling{1};  // slots of its own: one that holds everything

class SourceService final : public rpc::PolicyHandler {
 public:
  SourceService(std::shared_ptr<Source> source, transport::TransportOptions transports)
      : source_(std::move(source)), transports_(std::move(transports)) {}

  sync::PolicyReply Execute(const sync::PolicyCommand& command) override {
    return {.stamp = command.stamp,
            .kind = sync::ReplyKind::kFailed,
            .status = Unimplemented("a bench's source takes no commands"),
            .manifest = nullptr,
            .digest = {},
            .totals = {}};
  }
  Result<std::vector<weights::RankHashes>> ExpectedHashes(const std::string& /*folder*/,
                                                          weights::Hashing /*hashing*/) override {
    return Unimplemented("a bench's source computes no hashes");
  }
  void Serve(const rpc::OpenStream& open, rpc::SenderStream& stream) override {
    LoadSlotSet& slots = slots_.With(
        [&](auto& sets) -> LoadSlotSet& { return sets.try_emplace(open.slot, open.slot, transports_).first->second; });
    const auto plan = slots.Prepare(open, *source_);
    Status status = plan.status();
    if (plan.has_value()) {
      status = stream.Send(plan->opened);
    }
    if (status.ok()) {
      const std::atomic<bool> stop = false;
      status = SendLoads(open, *plan, *source_, slots, stream, Digests::kOn, stop, exec::Now() + open.budget).status;
    }
    if (!status.ok()) {
      static_cast<void>(stream.Send(rpc::StreamFailed{open.stamp.attempt, status}));
    }
  }

 private:
  const std::shared_ptr<Source> source_;
  TransportSet transports_;
  exec::Watched<std::map<SlotIndex, LoadSlotSet>> slots_;
};

// The receiving end.
class Receiver {
 public:
  static Result<std::unique_ptr<Receiver>> Make(const BenchLinkOptions& options, std::string address, ByteCount total) {
    std::unique_ptr<Receiver> receiver(new Receiver(options, std::move(address), total));
    std::vector<device::GpuOrdinal> gpus;
    if (options.into.has_value()) {
      gpus.push_back(*options.into);
    }
    REFIT_ASSIGN_OR_RETURN(receiver->memory_,
                           ReceiverMemory::Make(receiver->transports_, receiver->incarnation_, gpus));
    return receiver;
  }

  // One stream of everything in pieces of that size; the seconds it took. Keeps the link, and where slot 0 was.
  struct Times {
    double opened = 0;
    double first_announced = 0;
    double last_announced = 0;
    double last_landed = 0;
    double whole = 0;
  };
  Result<Times> Transfer(SlotIndex slot, ByteCount piece_bytes) {
    const AttemptId attempt{Term(1), ++attempts_};
    const Instant deadline = exec::Now() + kDeadline;
    const Instant begun = exec::Now();
    const rpc::DigestKind digests = options_.into.has_value() ? rpc::DigestKind::kGpuHash : rpc::DigestKind::kXxh3;
    REFIT_ASSIGN_OR_RETURN(
        const std::unique_ptr<TransferStream> stream,
        TransferStream::Connect(address_,
                                {.stamp = {.run = {},
                                           .term = Term(1),
                                           .seq = {},
                                           .attempt = attempt,
                                           .version = {},
                                           .incarnation = incarnation_},
                                 .slot = slot,
                                 .policy_incarnation = {},
                                 .tp_ranks = {0},
                                 .offers = {{options_.transport, stream::PackUnit::kPiece, piece_bytes, digests}},
                                 .budget = kDeadline},
                                deadline));
    REFIT_ASSIGN_OR_RETURN(const rpc::StreamOpened opened, stream->Open());
    if (opened.slots.empty()) {
      return Internal("the source opened no stream");
    }
    const Instant opened_at = exec::Now();
    REFIT_ASSIGN_OR_RETURN(end_, memory_->Bind(0, options_.transport, opened.transport_address, deadline));
    first_slot_ = opened.slots.front();
    REFIT_ASSIGN_OR_RETURN(
        const std::unique_ptr<LoadPuller> puller,
        LoadPuller::Start(
            {.whom = "the source", .opened = opened, .load_bytes = std::max(total_, piece_bytes), .deadline = deadline},
            *stream, *end_));
    while (true) {
      REFIT_ASSIGN_OR_RETURN(const std::optional<PulledLoad> load, puller->Next());
      if (!load.has_value()) {
        const Instant ended = exec::Now();
        const PullTimes times = puller->times();
        return Times{.opened = ToSeconds(opened_at - begun),
                     .first_announced = ToSeconds(times.first_announced - begun),
                     .last_announced = ToSeconds(times.last_announced - begun),
                     .last_landed = ToSeconds(times.last_landed - begun),
                     .whole = ToSeconds(ended - begun)};
      }
      landed_ = load->load;
      puller->GiveBack(load->number);
    }
  }

  // One read of the same bytes, out of the slot that holds them all into the same memory.
  Result<double> ReadAtOnce(const std::string& descriptor) {
    const Instant begun = exec::Now();
    REFIT_ASSIGN_OR_RETURN(const transport::OpId op,
                           end_->link->Fetch({descriptor}, {0, total_}, landed_->data().Part(0, total_)));
    transport::OpState state = transport::OpState::kPending;
    while ((state = end_->link->Poll(op)) == transport::OpState::kPending) {
      if (exec::Now() > begun + kDeadline) {
        return DeadlineExceeded("one read of everything did not end");
      }
    }
    if (state == transport::OpState::kFailed) {
      return end_->link->error(op);
    }
    return ToSeconds(exec::Now() - begun);
  }
  const std::string& first_slot() const { return first_slot_; }

 private:
  Receiver(const BenchLinkOptions& options, std::string address, ByteCount total)
      : options_(options), address_(std::move(address)), total_(total), transports_(options.transports) {}

  const BenchLinkOptions& options_;
  const std::string address_;
  const ByteCount total_;
  const Incarnation incarnation_{exec::RandomId()};
  std::uint32_t attempts_ = 0;
  TransportSet transports_;
  std::unique_ptr<ReceiverMemory> memory_;
  ReceiverMemory::LinkEnd* end_ = nullptr;
  SharedLoad* landed_ = nullptr;
  std::string first_slot_;
};

}  // namespace

Status ServeBenchSource(const BenchSourceOptions& options, const std::function<void(std::string_view)>& ready,
                        const std::function<void()>& wait) {
  REFIT_ASSIGN_OR_RETURN(std::shared_ptr<Source> source, Source::Open(options.model, options.gpu));
  SourceService service(std::move(source), options.transports);
  REFIT_ASSIGN_OR_RETURN(const std::unique_ptr<rpc::Server> server, rpc::ServePolicy("127.0.0.1:0", service));
  ready(server->address());
  wait();
  return OkStatus();
}

Result<BenchLinkReport> RunBenchLink(const BenchLinkOptions& options,
                                     const std::function<void(std::string_view)>& note) {
  REFIT_ASSIGN_OR_RETURN(const std::shared_ptr<Source> source, Source::Open(options.model));
  REFIT_ASSIGN_OR_RETURN(const auto pieces, source->Cut(stream::PackUnit::kPiece, options.piece_bytes));
  BenchLinkReport report{.bytes = source->manifest()->total_size(),
                         .tensors = source->manifest()->tensor_count(),
                         .pieces = pieces->size(),
                         .piece_bytes = options.piece_bytes,
                         .samples = {},
                         .ceiling_samples = {}};
  note("starting the source");
  REFIT_ASSIGN_OR_RETURN(engine::process::ChildProcess child,
                         engine::process::ChildProcess::Start({.arguments = options.source_command,
                                                               .environment = {},
                                                               .log_path = options.log_path,
                                                               .ready_prefix = kBenchSourceReady}));
  REFIT_ASSIGN_OR_RETURN(const std::string address, child.WaitReady(exec::Now() + kSourceDeadline));
  REFIT_ASSIGN_OR_RETURN(const auto receiver, Receiver::Make(options, address, report.bytes));
  note("measuring, the ceiling in between");
  REFIT_RETURN_IF_ERROR(receiver->Transfer(kCeiling, RoundUp(report.bytes, 64 * kKiB)).status());
  const std::string everything = receiver->first_slot();
  std::vector<Receiver::Times> all;
  for (int i = 0; i < options.warm_up + options.repetitions; ++i) {
    REFIT_ASSIGN_OR_RETURN(const Receiver::Times times, receiver->Transfer(kMeasured, options.piece_bytes));
    REFIT_ASSIGN_OR_RETURN(const double ceiling, receiver->ReadAtOnce(everything));
    if (i >= options.warm_up) {
      report.samples.push_back(times.whole);
      all.push_back(times);
      report.ceiling_samples.push_back(ceiling);
    }
  }
  report.seconds = Median(report.samples);
  report.seconds_min = *std::min_element(report.samples.begin(), report.samples.end());
  report.ceiling_seconds = Median(report.ceiling_samples);
  const auto median = [&all](double Receiver::Times::* part) {
    std::vector<double> samples;
    for (const Receiver::Times& times : all) {
      samples.push_back(times.*part);
    }
    return Median(std::move(samples));
  };
  report.opened_seconds = median(&Receiver::Times::opened);
  report.first_announced_seconds = median(&Receiver::Times::first_announced);
  report.last_announced_seconds = median(&Receiver::Times::last_announced);
  report.last_landed_seconds = median(&Receiver::Times::last_landed);
  return report;
}

}  // namespace refit::runtime
