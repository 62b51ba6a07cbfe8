// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/engine/sglang/server_fit.h"

#include "refit/base/mutant.h"
#include "refit/base/str.h"

namespace refit::engine::sglang {
namespace {

Status Refuse(std::string_view key, std::uint32_t value, std::string_view why) {
  return FailedPrecondition(StrCat("it runs with ", key, " ", value, ", which must be 1: ", why),
                            StrCat("restart it with ", key, " 1"));
}

}  // namespace

Status CheckServerFits(const EngineDescription& description, std::uint32_t tp_size, Owner owner) {
  if (description.tp_size != tp_size) {
    return FailedPrecondition(
        StrCat("it runs with tp_size ", description.tp_size, ", the configuration says ", tp_size), "make them equal");
  }
  if (REFIT_MUTANT("RC-CFG-03/attach-2", description.dp_size != 1, description.dp_size > 2)) {
    return Refuse("dp_size", description.dp_size, "payloads are indexed by TP rank only");
  }
  if (REFIT_MUTANT("RC-CFG-04/attach-2", description.pp_size != 1, description.pp_size > 2)) {
    return Refuse("pp_size", description.pp_size, "the list of payloads would be that many times too long");
  }
  if (REFIT_MUTANT("RC-CFG-05/attach-sharded-experts", description.ep_size != 1, false)) {
    return Refuse("ep_size", description.ep_size, "experts that are sharded at their destination would be dropped");
  }
  if (REFIT_MUTANT("RC-CFG-02/attach-two-nodes", description.node_count != 1, false)) {
    return Refuse("nnodes", description.node_count, "its agent receives for one node only");
  }
  if (REFIT_MUTANT("RC-CFG-08/attach-quantised", !description.quantization.empty(), false)) {
    return FailedPrecondition(
        StrCat("it runs with quantization ", description.quantization, ": only BF16 weights are refitted"),
        "restart it without quantization");
  }
  // A pause reaches the other workers when it likes: an update then waits for ever (docs/sglang.md, fault 5).
  if (description.tokenizer_workers > 1) {
    return Refuse("tokenizer_worker_num", description.tokenizer_workers, "a pause must stop every request");
  }
  // It opens each payload once more for the draft model, whose count nobody knows (fault 8).
  if (!description.speculative_algorithm.empty()) {
    return FailedPrecondition(StrCat("it runs with speculative_algorithm ", description.speculative_algorithm,
                                     ": draft models are not refitted"),
                              "restart it without speculative decoding");
  }
  if (!description.kv_storage.empty()) {  // fault 16
    return FailedPrecondition(StrCat("it runs with hicache_storage_backend ", description.kv_storage,
                                     ": what is stored there survives the flush, and comes back after the refit"),
                              "restart it without a storage back-end");
  }
  // A load into released memory kills the server, and it does not say what is released (settled D5).
  if (owner == Owner::kSomebody && description.memory_saver == EngineDescription::MemorySaver::kOn) {
    return FailedPrecondition("it runs with enable_memory_saver, and does not say whether its memory is released",
                              "restart it without --enable-memory-saver, or let the agent start it");
  }
  return OkStatus();
}

}  // namespace refit::engine::sglang
