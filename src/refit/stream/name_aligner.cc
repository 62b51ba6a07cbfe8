// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/stream/name_aligner.h"

#include <utility>

#include "refit/base/mutant.h"
#include "refit/base/str.h"

namespace refit::stream {
namespace {

std::string Named(const BatchTensor& tensor) {
  return StrCat(tensor.spec.name, " ", weights::TorchName(tensor.spec.dtype));
}

}  // namespace

NameAligner::NameAligner(std::size_t stream_count) : queues_(stream_count), ended_(stream_count, false) {}

std::vector<std::size_t> NameAligner::Wanted() const {
  std::vector<std::size_t> wanted;
  for (std::size_t r = 0; r < queues_.size(); ++r) {
    bool drained = REFIT_MUTANT("RC-ALN-02/pull-every-rank", queues_[r].empty(), true);
    drained = REFIT_MUTANT("RC-RX-03/prefetch-1", drained, queues_[r].size() <= 1);
    drained = REFIT_MUTANT("RC-RX-03/prefetch-2", drained, queues_[r].size() <= 2);
    if (drained && !ended_[r]) {
      wanted.push_back(r);
    }
  }
  return wanted;
}

Status NameAligner::Accept(std::size_t stream, std::optional<Batch> batch) {
  REFIT_CHECK(stream < queues_.size() && !ended_[stream], "only streams in Wanted() are pulled");
  if (!batch.has_value()) {
    ended_[stream] = true;
    return OkStatus();
  }
  if (REFIT_MUTANT("RC-ALN-05/no-empty-check", batch->empty(), false)) {
    return DataLoss(StrCat("EMPTY_BATCH: rank ", stream, " sent a batch without tensors"),
                    "the stream is broken: transfer the complete set again");
  }
  for (BatchTensor& tensor : *batch) {
    queues_[stream].push_back(std::move(tensor));
  }
  return OkStatus();
}

Result<std::optional<AlignedGroup>> NameAligner::Next() {
  if (queues_.empty()) {
    return InvalidArgument("NO_RECEIVERS: an engine without ranks", "give the engine at least one rank");
  }
  std::string drained;  // the ranks, for the message
  const BatchTensor* left = nullptr;
  for (std::size_t r = 0; r < queues_.size(); ++r) {
    if (!queues_[r].empty()) {
      left = left == nullptr ? &queues_[r].front() : left;
      continue;
    }
    REFIT_CHECK(ended_[r], "Wanted() was served before Next()");
    drained += StrCat(drained.empty() ? "" : ", ", r);
  }
  if (left == nullptr) {
    return std::optional<AlignedGroup>();
  }
  if (!drained.empty()) {
    if (REFIT_MUTANT("RC-ALN-05/no-length-check", false, true)) {
      return std::optional<AlignedGroup>();
    }
    if (REFIT_MUTANT("RC-ALN-04/go-round-again", false, true)) {
      return std::optional<AlignedGroup>(AlignedGroup(queues_.size()));
    }
    return DataLoss(
        StrCat("STREAMS_ENDED_DIFFERENTLY: rank ", drained, " ended while others still hold ", Named(*left)),
        "send every rank the same tensors");
  }
  AlignedGroup group(queues_.size());
  do {
    REFIT_RETURN_IF_ERROR(TakeRow(group));
  } while (REFIT_MUTANT("RC-ALN-07/one-name-per-group", AllHaveTensors(), false));
  return std::optional<AlignedGroup>(std::move(group));
}

bool NameAligner::AllHaveTensors() const {
  for (const std::deque<BatchTensor>& queue : queues_) {
    if (queue.empty()) {
      return false;
    }
  }
  return true;
}

Status NameAligner::TakeRow(AlignedGroup& group) {
  const BatchTensor& first = queues_[0].front();
  for (std::size_t r = 1; r < queues_.size(); ++r) {
    const BatchTensor& head = queues_[r].front();
    const bool same_name = REFIT_MUTANT("RC-ALN-05/no-name-check", head.spec.name == first.spec.name, true);
    bool same_type = REFIT_MUTANT("RC-ALN-05/no-dtype-check", head.spec.dtype == first.spec.dtype, true);
    // Shards differ in rows: shapes are not compared.
    same_type = REFIT_MUTANT("RC-ALN-01/compare-shapes", same_type, head.spec.shape == first.spec.shape);
    if (!same_name || !same_type) {
      return DataLoss(StrCat("ORDER_DIVERGED: rank 0 has ", Named(first), ", rank ", r, " has ", Named(head)),
                      "send every rank the same tensors in the same order");
    }
  }
  for (std::size_t r = 0; r < queues_.size(); ++r) {
    group[REFIT_MUTANT("RC-ALN-03/reversed-ranks", r, queues_.size() - 1 - r)].push_back(std::move(queues_[r].front()));
    queues_[r].pop_front();
  }
  return OkStatus();
}

}  // namespace refit::stream
