// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include <array>

#include "refit/config/schema.h"

namespace refit::config {
namespace {

using enum KeyKind;
constexpr Needed kRequired = Needed::kRequired;
constexpr Needed kOptional = Needed::kOptional;
constexpr Needed kWhereGiven = Needed::kWhereGiven;

// In the order of the page. A parent stands before its keys.
constexpr auto kKeys = std::to_array<KeySpec>({
    {"job", kSection, "", "", "The job as a whole."},
    {"job.name", kText, "refit", "a name", "Stands in log lines."},
    {"job.profile", kWord, "resilient", "resilient | strict",
     "What a failure means. `resilient`: a lost engine or a failed transfer costs that engine only, and the next sync "
     "repairs it. "
     "`strict`: either ends the run."},

    {"controller", kSection, "", "", "The controller process."},
    {"controller.listen", kText, "127.0.0.1:0", "host:port",
     "Where it listens; port 0 takes a free one, which the ready line names."},
    {"controller.state_directory", kText, "", "a folder on a disk of this host, or etcd://HOST:PORT[,HOST:PORT]/PREFIX",
     "Of the term and the journal, by which a controller that is started again goes on where the last one ended, and "
     "by "
     "which everybody finds it. Without it what was decided ends with the controller."},
    {"controller.takeover_after", kDuration, "1s", "more than 0",
     "How long a controller that still lives may take to end before the one that is started kills it."},

    {"policies", kList, "", "at least one", "The policy workers, one entry per trainer rank.", kRequired},
    {"policies[].rank", kInteger, "", "0 … count − 1, each once", "The trainer rank.", kRequired},
    {"policies[].address", kText, "127.0.0.1:0", "host:port", "Where the worker listens; port 0 takes a free one."},
    {"policies[].source", kText, "", "a folder", "Checkpoint that `--source policy-default` publishes.", kRequired},
    {"policies[].device", kText, "cpu", "cpu | cuda:N", "Where the weights are kept: in mapped files, or on a GPU."},

    {"engines", kList, "", "at least one", "The inference engines, one entry per slot of the fleet.", kRequired},
    {"engines[].slot", kInteger, "", "0 … count − 1, each once", "The engine's place in the fleet.", kRequired},
    {"engines[].kind", kWord, "reference", "reference | sglang | attach",
     "`reference`: the agent starts `refit-engine`. `sglang`: it starts SGLang. `attach`: it drives the server at "
     "`url`."},
    {"engines[].tp", kInteger, "1", "1 … 64",
     "Tensor-parallel ranks. Must divide heads, KV heads (or be a multiple of them), "
     "vocabulary and intermediate size of the model."},
    {"engines[].args", kTextList, "", "words",
     "Arguments of the engine that the agent starts, such as `[--model, DIR, --family, c]`."},
    {"engines[].url", kText, "", "http://host:port", "The server to attach to (`kind: attach` only)."},
    {"engines[].api_key_file", kText, "", "a file",
     "Its first line is the server's API key. `sglang`: the server is started with it. "
     "Where an attached server has one key, of whichever kind, this is it."},
    {"engines[].admin_api_key_file", kText, "", "a file",
     "Its first line is the admin key of an attached server that has both. "
     "A server that the agent starts gets a new one each time."},
    {"engines[].load_bytes", kBytes, "", "1 … 64 GiB", "As `transport.shm.load_bytes`, for this engine only."},
    {"engines[].gpus", kTextList, "", "numbers, one for each TP rank",
     "The GPU of each TP rank, as the agent's process numbers them. Without it weights reach the engine through host "
     "memory."},

    {"verify", kWord, "on_request", "always | on_request",
     "When the hashes that a version must show are computed: right after each sync, or when `refit verify` asks."},

    {"deadlines", kSection, "", "", "Every wait ends by one of these."},
    {"deadlines.sync", kDuration, "60s", "more than 0", "A whole sync."},
    {"deadlines.update", kDuration, "20s", "more than 0", "One `update` call of an engine."},
    {"deadlines.call", kDuration, "10s", "more than 0", "Any other call of an engine."},
    {"deadlines.launch", kDuration, "60s", "more than 0",
     "Starting an engine, until it is ready; 600s where this is not given and an engine is of `kind: sglang`."},
    {"deadlines.register", kDuration, "30s", "more than 0", "Reaching the controller at start."},
    {"deadlines.verify", kDuration, "120s", "more than 0", "Computing or comparing all hashes of a version."},
    {"deadlines.stall", kDuration, "30s", "more than `update` and `call`",
     "A step of a sync that waits for nobody else, and a transfer that brings an engine nothing; where this is not "
     "given, at least one and a half times `update` and `call`."},

    {"transport", kSection, "", "", "How bytes cross."},
    {"transport.name", kWord, "auto", "auto | shm | cuda_ipc | nixl | ucx",
     "`shm`: one host, host memory, two memory passes. `cuda_ipc`: GPUs of one host. `nixl`: also between hosts. "
     "`auto` "
     "takes `cuda_ipc` where the engine has `gpus` and the weights are on one, else `shm`. `ucx` is not built yet."},
    {"transport.min_rate", kBytes, "", "1 … 1 TiB",
     "Per second. An engine that gets less in three windows of 5 s is reported as slow, and quarantined where no "
     "other one is slow. Without it nobody is."},
    {"transport.shm", kSection, "", "", "Shared memory of one host."},
    {"transport.shm.load_bytes", kBytes, "4MiB", "1 … 64 GiB",
     "What one update call carries. 4 MiB keeps two loads in the last-level cache; engines of `kind: sglang` get "
     "512MiB where this is not given, since a call costs them milliseconds."},
    {"transport.cuda_ipc", kSection, "", "", "GPU memory of one host, by CUDA IPC.", kOptional, "cuda_ipc"},
    {"transport.cuda_ipc.staging", kWord, "device", "device | none",
     "`device`: the agent pulls loads beside the engine first. `none`: the engine's ranks read the sender's memory.",
     kOptional, "cuda_ipc"},
    {"transport.cuda_ipc.bucket_bytes", kBytes, "", "a multiple of 64KiB",
     "What the link moves at once; 64MiB where it is not given.", kOptional, "cuda_ipc"},
    {"transport.nixl", kSection, "", "", "NIXL, loaded at run time from its wheel: [nixl.md](nixl.md).", kOptional,
     "nixl"},
    {"transport.nixl.library", kText, "", "a folder or a file",
     "Where the wheel `nixl-cu13` was installed or unpacked (a Python's `site-packages`), or `libnixl_capi.so` itself.",
     kOptional, "nixl"},
    {"transport.nixl.bucket_bytes", kBytes, "", "a multiple of 64KiB",
     "What the link moves at once, at most a load; 4MiB where it is not given, 64MiB into a GPU.", kOptional, "nixl"},
    {"transport.ucx", kSection, "", "", "Nothing to set yet.", kOptional, "ucx"},
    {"transport.ucx.bucket_bytes", kBytes, "", "a multiple of 64KiB", "As `transport.nixl.bucket_bytes`.", kOptional,
     "ucx"},

    {"generation", kSection, "", "", "NeMo-RL's generation block, under its names. Read so that one file serves both."},
    {"generation.backend", kWord, "sglang", "sglang | vllm", "The kind of engine. This build drives `sglang`."},
    {"generation.refit_transport", kWord, "", "auto | shm | cuda_ipc | nixl | ucx",
     "The same choice as `transport.name`: give either."},
    {"generation.colocated", kSection, "", "", "Whether engines share the trainer's devices."},
    {"generation.colocated.enabled", kSwitch, "false", "false", "Colocated generation passes weights another way."},
    {"generation.colocated.resources", kSection, "", "", "What the engines have for themselves."},
    {"generation.colocated.resources.gpus_per_node", kInteger, "", "at least 1",
     "GPUs of one node: an engine must fit on one."},
    {"generation.colocated.resources.num_nodes", kInteger, "", "at least 1", "Nodes. Not read."},
    {"generation.use_fault_tolerance", kSwitch, "false", "true | false",
     "The controller probes the engines, ends those that fail, and launches them again. `resilient`: at once, and the "
     "new one catches up with what is published; `strict`: with the next sync. Off: agents start theirs again by "
     "themselves, and nobody finds one that hangs. Needs the three keys below."},
    {"generation.rollout_health_check_interval", kNumber, "", "more than 0", "Seconds between probes, e.g. 5.0."},
    {"generation.rollout_health_check_timeout", kNumber, "", "more than 1.0",
     "Seconds until a probe failed, e.g. 3.0; an engine that is ended gets as long to end by itself. The server itself "
     "waits 1.0 in every probe."},
    {"generation.rollout_health_check_first_wait", kNumber, "", "0 or more",
     "Seconds of grace after a launch, e.g. 0.0."},
    {"generation.sglang_server_config", kSection, "", "", "The SGLang servers."},
    {"generation.sglang_server_config.num_gpus", kInteger, "", "at least 1", "GPUs of all engines together. Not read."},
    {"generation.sglang_server_config.num_gpus_per_engine", kInteger, "", "at most gpus_per_node",
     "GPUs of one engine."},
    {"generation.sglang_server_config.needs_offload", kSwitch, "false", "true | false",
     "Whether engines give their memory back between phases."},
    {"generation.sglang_server_config.pause_generation_mode", kWord, "abort", "abort | retract | in_place",
     "What a pause does with running requests. `in_place` keeps the KV cache of the old weights and is refused; "
     "`retract` needs sessions "
     "(not family a)."},
    {"generation.sglang_server_config.tp_size", kInteger, "", "equal to every engine's tp", "Tensor-parallel ranks."},
    {"generation.sglang_server_config.dp_size", kInteger, "1", "1",
     "Data-parallel replicas inside one server: payloads are indexed by TP rank only."},
    {"generation.sglang_server_config.pp_size", kInteger, "1", "1", "Pipeline stages."},
    {"generation.sglang_server_config.ep_size", kInteger, "1", "1",
     "Expert-parallel shards: experts must arrive whole."},
    {"generation.sglang_server_config.dtype", kWord, "bfloat16", "bfloat16 | auto", "Weights travel as raw BF16."},
    {"generation.sglang_server_config.quantization", kWord, "none", "none", "Weights travel as raw BF16."},
    {"generation.sglang_router_config", kSection, "", "",
     "The router that spreads requests over the engines: [router.md](router.md). Where this is given, `{}` too, there "
     "is one, and the controller alone says which engines it lists.",
     kWhereGiven},
    {"generation.sglang_router_config.use_external_router", kSwitch, "false", "true | false",
     "`true`: a router that runs already, at the two keys below. `false`: the controller starts one, keeps it running "
     "and ends it."},
    {"generation.sglang_router_config.sglang_router_ip", kText, "127.0.0.1", "an address",
     "Where it listens, for those who generate."},
    {"generation.sglang_router_config.sglang_router_port", kInteger, "", "1 … 65535",
     "A free one where it is not given, which the ready line and `refit status` name. Needed for an external router, "
     "and with `controller.state_directory`: the router of the next controller must be found under the same address."},
    {"generation.sglang_router_config.router_policy", kWord, "",
     "random | round_robin | cache_aware | power_of_two | manual",
     "How it picks an engine, where it is started; else its own default."},
    {"generation.sglang_router_config.sglang_router_request_timeout_secs", kInteger, "", "at least 1",
     "Seconds of one request, where it is started; else its own default."},
    {"generation.sglang_router_config.use_distributed_post", kSwitch, "false", "true | false",
     "How NeMo-RL sends its requests. Not read."},
    {"generation.sglang_router_config.api_key_file", kText, "", "a file",
     "Its first line is the router's key: of an external one, or that it is started with. Requests then need it, too."},
    {"generation.sglang_router_config.python", kText, "python3", "a program",
     "The Python that has the package `sglang-router`, where it is started."},
    {"generation.sglang_router_config.worker_startup_timeout", kDuration, "5s", "1s or more",
     "How long the router tries to reach an engine that it was told of; of an external one, what it was started with "
     "(its default is 1800s)."},
    {"generation.refit_cfg", kSection, "", "", "Per transport."},
    {"generation.refit_cfg.nixl", kSection, "", "", "Read where the transport is `nixl`.", kOptional, "nixl"},
    {"generation.refit_cfg.nixl.update_weights_bucket_memory_ratio", kNumber, "", "more than 0, less than 1",
     "Share of the smallest device's memory for one landing buffer.", kOptional, "nixl"},
    {"generation.refit_cfg.nixl.device", kWord, "", "cpu | cuda", "Where landing buffers live.", kOptional, "nixl"},
    {"generation.refit_cfg.nixl.release_after_refit", kSwitch, "", "true | false",
     "Whether they are given back after a refit.", kOptional, "nixl"},
    {"generation.refit_cfg.nixl.backend_name", kText, "UCX", "a NIXL back end", "Tried is `UCX` alone.", kOptional,
     "nixl"},
    {"generation.refit_cfg.nixl.backend_init_params", kFree, "", "names with single values",
     "Passed to the back end, such as `{engine_config: \"NET_DEVICES=eth0\", num_workers: 1}`.", kOptional, "nixl"},
});

}  // namespace

std::span<const KeySpec> Keys() { return kKeys; }

}  // namespace refit::config
