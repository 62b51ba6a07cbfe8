// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/config/job_file.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <optional>
#include <utility>

#include "refit/base/str.h"
#include "refit/config/guards.h"
#include "refit/config/schema.h"

namespace refit::config {
namespace {

constexpr std::size_t kMaxFileSize = std::size_t{1} << 20;

// Reads a tree that the schema has passed: every required key is there, every value of its kind.
class Reader {
 public:
  explicit Reader(const Node* node) : node_(node) {}

  Reader At(std::string_view key) const { return Reader(node_ == nullptr ? nullptr : node_->Find(key)); }
  bool has_value() const { return node_ != nullptr && node_->kind == Node::Kind::kScalar; }
  std::string text() const { return has_value() ? node_->text : std::string(); }
  bool is(std::string_view word) const { return text() == word; }
  const std::vector<Node>& items() const {
    static const std::vector<Node> kNone;
    return node_ == nullptr ? kNone : node_->items;
  }
  std::optional<std::int64_t> integer() const {
    std::int64_t value = 0;
    const std::string digits = text();
    const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    return has_value() && result.ec == std::errc() ? std::optional(value) : std::nullopt;
  }
  std::optional<double> number() const {
    return has_value() ? std::optional(std::strtod(text().c_str(), nullptr)) : std::nullopt;
  }
  std::optional<ByteCount> bytes() const {
    const auto parsed = ParseBytes(text());
    return has_value() && parsed.ok() ? std::optional(*parsed) : std::nullopt;
  }
  Duration duration() const { return ParseDuration(text()).value(); }
  const Node* node() const { return node_; }

 private:
  const Node* node_;
};

Result<std::uint32_t> SmallNumber(const Reader& reader, std::string_view key) {
  const std::int64_t value = reader.At(key).integer().value_or(-1);
  if (value < 0 || value > 65535) {
    return InvalidArgument(StrCat(key, " is ", value), "allowed: 0 … 65535");
  }
  return static_cast<std::uint32_t>(value);
}

std::optional<RouterJobOptions> ReadRouter(const Reader& router) {
  if (router.node() == nullptr) {
    return std::nullopt;
  }
  return RouterJobOptions{
      .external = router.At("use_external_router").is("true"),
      .ip = router.At("sglang_router_ip").text(),
      .port = router.At("sglang_router_port").integer(),
      .policy = router.At("router_policy").text(),
      .request_timeout_seconds = router.At("sglang_router_request_timeout_secs").integer().value_or(0),
      .api_key_file = router.At("api_key_file").text(),
      .python = router.At("python").text(),
      .worker_startup_timeout = router.At("worker_startup_timeout").duration()};
}

GenerationOptions ReadGeneration(const Reader& generation) {
  const Reader server = generation.At("sglang_server_config");
  const Reader pause = server.At("pause_generation_mode");
  GenerationOptions options;
  options.backend = generation.At("backend").is("vllm") ? BackendChoice::kVllm : BackendChoice::kSglang;
  options.colocated = generation.At("colocated").At("enabled").is("true");
  options.gpus_per_node = generation.At("colocated").At("resources").At("gpus_per_node").integer();
  options.gpus_per_engine = server.At("num_gpus_per_engine").integer();
  options.tp_size = server.At("tp_size").integer();
  options.dp_size = server.At("dp_size").integer().value();
  options.pp_size = server.At("pp_size").integer().value();
  options.ep_size = server.At("ep_size").integer().value();
  options.dtype = server.At("dtype").text();
  options.quantization = server.At("quantization").text();
  options.needs_offload = server.At("needs_offload").is("true");
  options.pause = pause.is("retract")    ? PauseChoice::kRetract
                  : pause.is("in_place") ? PauseChoice::kInPlace
                                         : PauseChoice::kAbort;
  options.fault_tolerance = generation.At("use_fault_tolerance").is("true");
  options.check_interval = generation.At("rollout_health_check_interval").number();
  options.check_timeout = generation.At("rollout_health_check_timeout").number();
  options.check_first_wait = generation.At("rollout_health_check_first_wait").number();
  options.router = ReadRouter(generation.At("sglang_router_config"));
  options.bucket_memory_ratio = generation.At("refit_cfg").At("nixl").At("update_weights_bucket_memory_ratio").number();
  return options;
}

// NeMo-RL's keys and our own.
Result<transport::NixlOptions> ReadNixl(const Reader& file) {
  const Reader theirs = file.At("generation").At("refit_cfg").At("nixl");
  transport::NixlOptions options;
  options.library = file.At("transport").At("nixl").At("library").text();
  if (theirs.At("backend_name").has_value()) {
    options.backend_name = theirs.At("backend_name").text();
  }
  const Node* const params = theirs.At("backend_init_params").node();
  for (std::size_t i = 0; params != nullptr && i < params->items.size(); ++i) {
    if (params->kind != Node::Kind::kMap || params->items[i].kind != Node::Kind::kScalar) {
      return InvalidArgument(
          "generation.refit_cfg.nixl.backend_init_params holds something else than names with values",
          "allowed: {engine_config: \"KEY=VALUE,…\", num_workers: 1}");
    }
    options.backend_params.emplace(params->keys[i], params->items[i].text);
  }
  return options;
}

// RC-CFG-12: one choice with two names.
Result<std::string> ReadTransport(const Node& given, const Reader& resolved) {
  const Reader file(&given);
  const std::string ours = file.At("transport").At("name").text();
  const std::string theirs = file.At("generation").At("refit_transport").text();
  if (!ours.empty() && !theirs.empty() && ours != theirs) {
    return InvalidArgument(
        StrCat("transport.name is ", ours, " and generation.refit_transport is ", theirs, ": they are one choice"),
        "give one of them, or both alike");
  }
  return theirs.empty() ? resolved.At("transport").At("name").text() : theirs;
}

// Where `path` leads in the file; null where the file has no such key.
const Node* FindPath(const Node& root, std::string_view path) {
  const Node* node = &root;
  while (node != nullptr && !path.empty()) {
    const std::size_t dot = path.find('.');
    node = node->Find(path.substr(0, dot));
    path.remove_prefix(dot == std::string_view::npos ? path.size() : dot + 1);
  }
  return node;
}

Result<JobOptions> ReadOptions(const Node& given, const Node& resolved) {
  const Reader file(&resolved);
  JobOptions job;
  job.name = file.At("job").At("name").text();
  job.profile = file.At("job").At("profile").is("strict") ? ProfileChoice::kStrict : ProfileChoice::kResilient;
  const Reader controller = file.At("controller");
  job.listen = controller.At("listen").text();
  job.state_directory = controller.At("state_directory").text();
  job.takeover_after = controller.At("takeover_after").duration();
  job.verify = file.At("verify").is("always") ? VerifyChoice::kAlways : VerifyChoice::kOnRequest;
  REFIT_ASSIGN_OR_RETURN(job.transport, ReadTransport(given, file));
  job.bucket_bytes = file.At("transport").At(job.transport).At("bucket_bytes").bytes();
  job.min_rate = file.At("transport").At("min_rate").bytes().value_or(0);
  job.stages = !file.At("transport").At("cuda_ipc").At("staging").is("none");
  REFIT_ASSIGN_OR_RETURN(job.nixl, ReadNixl(file));
  const Reader deadlines = file.At("deadlines");
  job.deadlines = {deadlines.At("sync").duration(),     deadlines.At("update").duration(),
                   deadlines.At("call").duration(),     deadlines.At("launch").duration(),
                   deadlines.At("register").duration(), deadlines.At("verify").duration(),
                   deadlines.At("stall").duration()};
  if (FindPath(given, "deadlines.stall") == nullptr) {
    job.deadlines.stall = std::max(job.deadlines.stall, std::max(job.deadlines.update, job.deadlines.call) * 3 / 2);
  }
  for (const Node& item : file.At("policies").items()) {
    const Reader policy(&item);
    REFIT_ASSIGN_OR_RETURN(const std::uint32_t rank, SmallNumber(policy, "rank"));
    job.policies.push_back({rank, policy.At("address").text(), policy.At("source").text(), policy.At("device").text()});
  }
  const ByteCount load_bytes = file.At("transport").At("shm").At("load_bytes").bytes().value();
  for (const Node& item : file.At("engines").items()) {
    const Reader engine(&item);
    EngineOptions options;
    REFIT_ASSIGN_OR_RETURN(options.slot, SmallNumber(engine, "slot"));
    REFIT_ASSIGN_OR_RETURN(options.tp_size, SmallNumber(engine, "tp"));
    options.kind = engine.At("kind").is("attach")   ? EngineChoice::kAttach
                   : engine.At("kind").is("sglang") ? EngineChoice::kSglang
                                                    : EngineChoice::kReference;
    for (const Node& word : engine.At("args").items()) {
      options.args.push_back(word.text);
    }
    for (const Node& gpu : engine.At("gpus").items()) {
      options.gpus.push_back(gpu.text);
    }
    options.url = engine.At("url").text();
    options.api_key_file = engine.At("api_key_file").text();
    options.admin_api_key_file = engine.At("admin_api_key_file").text();
    const bool is_sglang = options.kind == EngineChoice::kSglang;
    const ByteCount common =
        is_sglang && FindPath(given, "transport.shm.load_bytes") == nullptr ? kSglangLoadBytes : load_bytes;
    options.load_bytes = engine.At("load_bytes").bytes().value_or(job.bucket_bytes.value_or(common));
    if (is_sglang && FindPath(given, "deadlines.launch") == nullptr) {
      job.deadlines.launch = kSglangLaunchDeadline;
    }
    job.engines.push_back(std::move(options));
  }
  const auto by_rank = [](const PolicyOptions& a, const PolicyOptions& b) { return a.rank < b.rank; };
  const auto by_slot = [](const EngineOptions& a, const EngineOptions& b) { return a.slot < b.slot; };
  std::sort(job.policies.begin(), job.policies.end(), by_rank);
  std::sort(job.engines.begin(), job.engines.end(), by_slot);
  job.generation = ReadGeneration(file.At("generation"));
  return job;
}

std::vector<std::string> NotesOf(const Node& given, const JobOptions& job) {
  std::vector<std::string> notes;
  for (const KeySpec& spec : Keys()) {
    const Node* node = FindPath(given, spec.path);
    const bool is_section = spec.kind == KeyKind::kSection;
    if (node == nullptr || (is_section && !node->items.empty())) {
      continue;  // a section with keys: each of them gets its line
    }
    if (spec.kind == KeyKind::kFree && spec.transport.empty()) {
      notes.push_back(StrCat(spec.path, " is not read: ", spec.meaning));
    } else if (!is_section && !spec.transport.empty() && spec.transport != job.transport) {
      notes.push_back(StrCat(spec.path, " is not read: it is for transport ", spec.transport, ", in use is ",
                             job.transport == "auto" ? "shm" : job.transport));
    }
  }
  return notes;
}

Status InFile(const Status& status, const std::string& path) {
  const bool has_line = status.message().starts_with("line ");  // "job.yaml:3: …", as compilers write it
  return {status.code(), StrCat(path, has_line ? ":" : ": ", has_line ? status.message().substr(5) : status.message()),
          status.remedy()};
}

bool IsPlain(const std::string& text) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("._/-+:").find(c) != std::string_view::npos;
  };
  return !text.empty() && std::all_of(text.begin(), text.end(), plain) && text.front() != '-' && text.front() != ':' &&
         text.back() != ':';
}

std::string QuoteYaml(const std::string& text) {
  if (IsPlain(text)) {
    return text;
  }
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      quoted += StrCat('\\', c);
    } else if (static_cast<unsigned char>(c) < 0x20) {
      constexpr std::string_view kDigits = "0123456789abcdef";
      quoted += StrCat("\\x", kDigits[static_cast<unsigned char>(c) >> 4], kDigits[static_cast<unsigned char>(c) & 15]);
    } else {
      quoted += c;
    }
  }
  return quoted + '"';
}

void AppendYaml(std::string& out, const Node& node, const std::string& indent) {
  for (std::size_t i = 0; i < node.items.size(); ++i) {
    const Node& item = node.items[i];
    const bool nested = item.kind == Node::Kind::kMap || item.kind == Node::Kind::kList;
    if (node.kind == Node::Kind::kList && nested) {
      std::string inner;
      AppendYaml(inner, item, indent + "  ");
      out += StrCat(indent, "- ", std::string_view(inner).substr(indent.size() + 2));
      continue;
    }
    out += node.kind == Node::Kind::kList ? StrCat(indent, "-") : StrCat(indent, QuoteYaml(node.keys[i]), ":");
    if (nested && !item.items.empty()) {
      out += '\n';
      AppendYaml(out, item, indent + "  ");
    } else if (nested) {
      out += item.kind == Node::Kind::kMap ? " {}\n" : " []\n";
    } else {
      out += item.kind == Node::Kind::kNull ? "\n" : StrCat(" ", QuoteYaml(item.text), "\n");
    }
  }
}

}  // namespace

Result<Job> ParseJob(std::string_view text) {
  if (text.size() > kMaxFileSize) {
    return InvalidArgument(StrCat("the file has ", text.size(), " bytes"), "allowed: at most 1MiB");
  }
  REFIT_ASSIGN_OR_RETURN(const Node given, ParseYaml(text));
  Job job;
  REFIT_ASSIGN_OR_RETURN(job.resolved, ApplySchema(given));
  REFIT_ASSIGN_OR_RETURN(job.options, ReadOptions(given, job.resolved));
  REFIT_RETURN_IF_ERROR(CheckJob(job.options));
  REFIT_RETURN_IF_ERROR(CheckBuild(job.options));
  job.resolved.Find("transport")->Find("name")->text = job.options.transport;
  job.notes = NotesOf(given, job.options);
  return job;
}

Result<Job> ReadJobFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kMaxFileSize + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.is_open() || file.bad()) {
    return NotFound(StrCat("cannot read the configuration ", path), "give --config FILE, a YAML file");
  }
  text.resize(static_cast<std::size_t>(file.gcount()));
  auto job = ParseJob(text);
  return job.has_value() ? std::move(job) : Result<Job>(InFile(job.status(), path));
}

std::string FormatYaml(const Node& node) {
  std::string out;
  AppendYaml(out, node, "");
  return out;
}

}  // namespace refit::config
