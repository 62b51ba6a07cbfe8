// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/config/guards.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <vector>

#include "refit/base/mutant.h"
#include "refit/base/str.h"

namespace refit::config {
namespace {

constexpr std::string_view kServer = "generation.sglang_server_config.";
constexpr std::uint32_t kMaxTpSize = 64;
constexpr ByteCount kMaxLoadBytes = 64 * kGiB;
constexpr double kServerProbeWait = 1.0;  // seconds that SGLang's /health_generate always takes (settled D6)

Status Refuse(std::string_view key, std::string_view value, std::string_view why, std::string_view allowed) {
  return InvalidArgument(StrCat(key, " is ", value, ": ", why), StrCat("allowed: ", allowed));
}

// The value of one of the engine's own flags, given as "--flag value" or "--flag=value"; empty where it is not given.
std::string FlagValue(const std::vector<std::string>& args, std::string_view flag) {
  for (std::size_t i = 0; i < args.size(); ++i) {
    if (args[i] == flag && i + 1 < args.size()) {
      return args[i + 1];
    }
    if (args[i].starts_with(StrCat(flag, "="))) {
      return args[i].substr(flag.size() + 1);
    }
  }
  return {};
}

constexpr ByteCount kBucketUnit = 64 * kKiB;

Status CheckDeadlines(const DeadlineOptions& deadlines) {
  const std::pair<std::string_view, Duration> all[] = {
      {"sync", deadlines.sync},     {"update", deadlines.update},         {"call", deadlines.call},
      {"launch", deadlines.launch}, {"register", deadlines.registration}, {"verify", deadlines.verify},
      {"stall", deadlines.stall}};
  for (const auto& [name, deadline] : all) {
    if (deadline <= Duration::zero()) {
      return Refuse(StrCat("deadlines.", name), "0", "a wait without time ends before it begins",
                    "more than 0, like 60s");
    }
  }
  const Duration call = std::max(deadlines.update, deadlines.call);
  if (deadlines.stall <= call) {
    return Refuse("deadlines.stall", fmt::format("{}ms", deadlines.stall / std::chrono::milliseconds(1)),
                  "one call of an engine may take longer than that",
                  fmt::format("more than {}ms, the longer of deadlines.update and deadlines.call",
                              call / std::chrono::milliseconds(1)));
  }
  return OkStatus();
}

Status CheckIdentities(const JobOptions& job) {
  std::set<std::uint32_t> ranks;
  for (const PolicyOptions& policy : job.policies) {
    if (!ranks.insert(policy.rank).second) {
      return Refuse("policies[].rank", StrCat(policy.rank), "given twice", "each rank once");
    }
  }
  std::set<std::uint32_t> slots;
  for (const EngineOptions& engine : job.engines) {
    if (!slots.insert(engine.slot).second) {
      return Refuse("engines[].slot", StrCat(engine.slot), "given twice", "each slot once");
    }
  }
  return OkStatus();
}

}  // namespace

Status CheckNotColocated(const GenerationOptions& generation) {
  if (REFIT_MUTANT("RC-CFG-01/drop-guard", generation.colocated, false)) {
    return Refuse("generation.colocated.enabled", "true", "a refit over a transport needs engines of their own",
                  "false");
  }
  return OkStatus();
}

Status CheckFitsOneNode(const GenerationOptions& generation) {
  if (generation.gpus_per_node.has_value() && *generation.gpus_per_node < 1) {
    return Refuse("generation.colocated.resources.gpus_per_node", StrCat(*generation.gpus_per_node),
                  "no node is that small", "at least 1");
  }
  const std::string key = StrCat(kServer, "num_gpus_per_engine");
  if (generation.gpus_per_engine.has_value() && *generation.gpus_per_engine < 1) {
    return Refuse(key, StrCat(*generation.gpus_per_engine), "an engine needs one", "at least 1");
  }
  if (generation.gpus_per_engine.has_value() && generation.gpus_per_node.has_value() &&
      REFIT_MUTANT("RC-CFG-02/drop-guard", *generation.gpus_per_engine > *generation.gpus_per_node, false)) {
    return Refuse(key, StrCat(*generation.gpus_per_engine),
                  "an engine must fit on one node, whose agent receives for it",
                  StrCat("at most gpus_per_node, which is ", *generation.gpus_per_node));
  }
  return OkStatus();
}

Status CheckParallelSizes(const GenerationOptions& generation) {
  if (REFIT_MUTANT("RC-CFG-03/accept-2", generation.dp_size != 1, generation.dp_size > 2)) {
    return Refuse(StrCat(kServer, "dp_size"), StrCat(generation.dp_size), "payloads are indexed by TP rank only", "1");
  }
  if (REFIT_MUTANT("RC-CFG-04/accept-2", generation.pp_size != 1, generation.pp_size > 2)) {
    return Refuse(StrCat(kServer, "pp_size"), StrCat(generation.pp_size),
                  "the list of payloads would be that many times too long", "1");
  }
  if (REFIT_MUTANT("RC-CFG-05/drop-factory-guard", generation.ep_size != 1, false)) {
    return Refuse(StrCat(kServer, "ep_size"), StrCat(generation.ep_size),
                  "experts that are sharded at their destination would be dropped", "1");
  }
  return OkStatus();
}

Status CheckEngine(const EngineOptions& engine) {
  const std::string where = StrCat("engines[slot ", engine.slot, "].");
  if (engine.tp_size < 1 || engine.tp_size > kMaxTpSize) {
    return Refuse(StrCat(where, "tp"), StrCat(engine.tp_size), "no engine runs that many ranks",
                  StrCat("1 … ", kMaxTpSize));
  }
  if (engine.load_bytes < 1 || engine.load_bytes > kMaxLoadBytes) {
    return Refuse(StrCat(where, "load_bytes"), StrCat(engine.load_bytes), "no load is that large", "1B … 64GiB");
  }
  for (const std::string_view flag : {"--ep-size", "--ep", "--expert-parallel-size"}) {
    const std::string value = FlagValue(engine.args, flag);
    if (REFIT_MUTANT("RC-CFG-05/drop-receiver-guard", !value.empty() && value != "1", false)) {
      return Refuse(StrCat(where, "args ", flag), value,
                    "experts that are sharded at their destination would be dropped", "1");
    }
  }
  if (const std::string scales = FlagValue(engine.args, "--quantization-param-path");
      REFIT_MUTANT("RC-SESS-12/drop-kv-scales", !scales.empty(), false)) {
    return Refuse(StrCat(where, "args --quantization-param-path"), scales,
                  "KV scales belong to the weights they were measured with, and no sync brings new ones",
                  "an engine without it");
  }
  if (const std::string tp = FlagValue(engine.args, "--tp"); !tp.empty()) {
    return Refuse(StrCat(where, "args --tp"), tp, "the agent gives that argument itself", StrCat(where, "tp instead"));
  }
  if (engine.kind == EngineChoice::kAttach) {
    if (!engine.url.starts_with("http://")) {
      return Refuse(StrCat(where, "url"), engine.url.empty() ? "missing" : engine.url,
                    "kind attach drives a server that runs", "http://host:port");
    }
    if (!engine.args.empty()) {
      return Refuse(StrCat(where, "args"), engine.args.front(), "kind attach starts nothing", "no args");
    }
  } else if (!engine.admin_api_key_file.empty()) {
    return Refuse(StrCat(where, "admin_api_key_file"), engine.admin_api_key_file,
                  "a server that the agent starts gets a new admin key each time", "none, or kind: attach");
  } else if (engine.kind == EngineChoice::kReference && !engine.api_key_file.empty()) {
    return Refuse(StrCat(where, "api_key_file"), engine.api_key_file, "refit-engine's users need no key",
                  "none, or kind: sglang, attach");
  } else if (!engine.url.empty()) {
    return Refuse(StrCat(where, "url"), engine.url, "the agent starts this engine itself", "no url, or kind: attach");
  }
  return OkStatus();
}

Status CheckPauseMode(BackendChoice backend, PauseChoice pause, const EngineOptions& engine) {
  const bool has_pause = backend == BackendChoice::kSglang;  // vLLM has no such concept: its key is not looked at
  const std::string key = StrCat(kServer, "pause_generation_mode");
  if (REFIT_MUTANT("RC-CFG-06/apply-to-both", has_pause, true) && pause == PauseChoice::kInPlace &&
      REFIT_MUTANT("RC-CFG-06/drop-guard", true, false)) {
    return Refuse(key, "in_place", "it keeps the KV cache of the outgoing weights, and the flush fails",
                  "abort, retract");
  }
  const std::string family = FlagValue(engine.args, "--family");
  if (has_pause && pause == PauseChoice::kRetract && family == "a") {
    return Refuse(key, "retract", StrCat("engine ", engine.slot, " is of family a, whose flush can never succeed then"),
                  "abort");
  }
  return OkStatus();
}

Status CheckRawBf16(std::string_view dtype, std::string_view quantization) {
  if (REFIT_MUTANT("RC-CFG-08/drop-factory-guard", dtype != "bfloat16" && dtype != "auto", false)) {
    return Refuse(StrCat(kServer, "dtype"), dtype, "weights travel as raw BF16", "bfloat16, auto");
  }
  if (!quantization.empty() && quantization != "none" && quantization != "null") {
    return Refuse(StrCat(kServer, "quantization"), quantization, "weights travel as raw BF16", "none");
  }
  return OkStatus();
}

// Both ends of a pair use what the receiver asked for, so their sizes cannot differ. What can be wrong is the one size.
Status CheckBucketSizes(const JobOptions& job) {
  if (!job.bucket_bytes.has_value()) {
    return OkStatus();
  }
  const std::string key = StrCat("transport.", job.transport, ".bucket_bytes");
  if (*job.bucket_bytes == 0 || *job.bucket_bytes % kBucketUnit != 0) {
    return Refuse(key, StrCat(*job.bucket_bytes, "B"), "chunks of tensors begin at its multiples",
                  "a multiple of 64KiB");
  }
  for (const EngineOptions& engine : job.engines) {
    if (REFIT_MUTANT("RC-CFG-09/drop-check", engine.load_bytes < *job.bucket_bytes, false)) {
      return Refuse(StrCat("engines[slot ", engine.slot, "].load_bytes"), StrCat(engine.load_bytes, "B"),
                    StrCat("smaller than ", key, ", ", *job.bucket_bytes, "B, which comes in one piece"),
                    "at least as much");
    }
  }
  return OkStatus();
}

Status CheckPairing(const JobOptions& job) {
  const std::size_t train = job.policies.size();
  std::size_t rollout = 0;
  for (const EngineOptions& engine : job.engines) {
    rollout += engine.tp_size;
  }
  if (REFIT_MUTANT("RC-CFG-10/train-may-be-0", train < 1, false)) {
    return Refuse("policies", "empty", "somebody must send", "at least one");
  }
  if (REFIT_MUTANT("RC-CFG-10/rollout-may-be-0", rollout < 1, false)) {
    return Refuse("engines", "empty", "somebody must receive", "at least one");
  }
  for (const PolicyOptions& policy : job.policies) {
    if (REFIT_MUTANT("RC-CFG-10/rank-off-by-one", policy.rank >= train, policy.rank > train)) {
      return Refuse("policies[].rank", StrCat(policy.rank), StrCat("there are ", train, " policies"),
                    StrCat("0 … ", train - 1));
    }
  }
  for (const EngineOptions& engine : job.engines) {
    if (REFIT_MUTANT("RC-CFG-10/slot-off-by-one", engine.slot >= job.engines.size(),
                     engine.slot > job.engines.size())) {
      return Refuse("engines[].slot", StrCat(engine.slot), StrCat("there are ", job.engines.size(), " engines"),
                    StrCat("0 … ", job.engines.size() - 1));
    }
  }
  if (job.profile == ProfileChoice::kStrict &&
      REFIT_MUTANT("RC-CFG-10/pairing-off-by-one", train < rollout, train + 1 < rollout)) {
    return Refuse(
        "policies", StrCat("a list of ", train),
        StrCat("profile strict feeds rollout rank i from policy rank i, and the engines have ", rollout, " ranks"),
        StrCat("at least ", rollout, " policies, or job.profile resilient"));
  }
  return OkStatus();
}

Status CheckFaultTolerance(const GenerationOptions& generation) {
  if (!generation.fault_tolerance) {
    return OkStatus();
  }
  struct Knob {
    std::string_view name;
    const std::optional<double>& value;
    double above;  // must be more than this
    std::string_view allowed;
  };
  const Knob knobs[] = {
      {"rollout_health_check_interval", generation.check_interval, 0, "more than 0 seconds"},
      {"rollout_health_check_timeout", generation.check_timeout, kServerProbeWait,
       "more than 1.0 seconds, the server's own wait"},
      {"rollout_health_check_first_wait", generation.check_first_wait, -1e-9, "0 seconds or more"},
  };
  std::string missing;
  for (const Knob& knob : knobs) {
    if (!knob.value.has_value() && (missing.empty() || REFIT_MUTANT("RC-CFG-13/report-first-only", true, false))) {
      missing += StrCat(missing.empty() ? "" : ", ", "generation.", knob.name);
    }
  }
  if (!missing.empty()) {
    return InvalidArgument(StrCat("generation.use_fault_tolerance is true, but missing: ", missing),
                           "docs/configuration.md documents their values");
  }
  for (const Knob& knob : knobs) {
    if (!(*knob.value > knob.above)) {
      return Refuse(StrCat("generation.", knob.name), fmt::format("{}", *knob.value), "out of range", knob.allowed);
    }
  }
  return OkStatus();
}

Status CheckRouter(const JobOptions& job) {
  if (!job.generation.router.has_value()) {
    return OkStatus();
  }
  const RouterJobOptions& router = *job.generation.router;
  const std::string section = "generation.sglang_router_config.";
  const std::string port = StrCat(section, "sglang_router_port");
  if (router.port.has_value() && (*router.port < 1 || *router.port > 65535)) {
    return Refuse(port, StrCat(*router.port), "there is no such port", "1 … 65535");
  }
  if (!router.port.has_value() && router.external) {
    return Refuse(port, "missing", "an external router has to be found", "its port");
  }
  if (!router.port.has_value() && !job.state_directory.empty()) {
    return Refuse(port, "missing", "the router of the next controller must have the same address",
                  "a fixed port, or use_external_router: true");
  }
  if (router.worker_startup_timeout < std::chrono::seconds(1)) {
    return Refuse(StrCat(section, "worker_startup_timeout"),
                  fmt::format("{}ms", router.worker_startup_timeout / std::chrono::milliseconds(1)),
                  "the router counts in seconds", "1s or more");
  }
  if (router.request_timeout_seconds < 0) {
    return Refuse(StrCat(section, "sglang_router_request_timeout_secs"), StrCat(router.request_timeout_seconds),
                  "no request is that short", "at least 1");
  }
  return OkStatus();
}

Status CheckJob(const JobOptions& job) {
  const GenerationOptions& generation = job.generation;
  REFIT_RETURN_IF_ERROR(CheckNotColocated(generation));
  REFIT_RETURN_IF_ERROR(CheckFitsOneNode(generation));
  REFIT_RETURN_IF_ERROR(CheckParallelSizes(generation));
  REFIT_RETURN_IF_ERROR(CheckRawBf16(generation.dtype, generation.quantization));
  REFIT_RETURN_IF_ERROR(CheckFaultTolerance(generation));
  REFIT_RETURN_IF_ERROR(CheckRouter(job));
  REFIT_RETURN_IF_ERROR(CheckIdentities(job));
  for (const EngineOptions& engine : job.engines) {
    REFIT_RETURN_IF_ERROR(CheckEngine(engine));
    REFIT_RETURN_IF_ERROR(CheckPauseMode(generation.backend, generation.pause, engine));
    if (generation.tp_size.has_value() && *generation.tp_size != engine.tp_size) {
      return Refuse(StrCat(kServer, "tp_size"), StrCat(*generation.tp_size),
                    StrCat("engine ", engine.slot, " has tp ", engine.tp_size), "the same value in both places");
    }
  }
  REFIT_RETURN_IF_ERROR(CheckPairing(job));
  REFIT_RETURN_IF_ERROR(CheckBucketSizes(job));
  const std::optional<double>& ratio = generation.bucket_memory_ratio;
  if (ratio.has_value() && !(*ratio > 0 && *ratio < 1)) {
    return Refuse("generation.refit_cfg.nixl.update_weights_bucket_memory_ratio", fmt::format("{}", *ratio),
                  "out of range", "more than 0, less than 1");
  }
  return CheckDeadlines(job.deadlines);
}

Status CheckBuild(const JobOptions& job) {
  const auto refuse = [](std::string_view key, std::string_view value, std::string_view has) {
    return Unimplemented(StrCat(key, " is ", value, ": not in this build"), StrCat("this build has: ", has));
  };
  if (job.transport == "ucx") {
    return refuse("transport.name", job.transport, "shm, cuda_ipc, nixl");
  }
  if (job.generation.backend != BackendChoice::kSglang) {
    return refuse("generation.backend", "vllm", "sglang");
  }
  if (job.generation.needs_offload) {
    return refuse(StrCat(kServer, "needs_offload"), "true", "engines that stay resident; give false");
  }
  return OkStatus();
}

}  // namespace refit::config
