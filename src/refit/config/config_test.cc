// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

#include "refit/config/guards.h"
#include "refit/config/job_file.h"
#include "refit/config/schema.h"

namespace refit::config {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

constexpr std::string_view kPolicies = "policies: [{rank: 0, source: /m}]\n";
constexpr std::string_view kEngines = "engines: [{slot: 0, tp: 1}]\n";

std::string File(std::string_view more) { return std::string(kPolicies) + std::string(kEngines) + std::string(more); }
std::string ErrorOf(std::string_view text) {
  const auto job = ParseJob(text);
  return job.has_value() ? "no error" : job.status().message() + " | " + job.status().remedy();
}
std::string Server(std::string_view keys) {
  return File("generation: {sglang_server_config: {" + std::string(keys) + "}}\n");
}

TEST(JobFile, GivesEveryKeyItsDefault) {  // RC-CFG-11
  const auto job = ParseJob(File(""));
  ASSERT_TRUE(job.has_value()) << job.status().ToString();
  EXPECT_EQ(job->options.profile, ProfileChoice::kResilient);
  EXPECT_EQ(job->options.listen, "127.0.0.1:0");
  EXPECT_EQ(job->options.transport, "auto");
  EXPECT_EQ(job->options.deadlines.sync, std::chrono::seconds(60));
  EXPECT_EQ(job->options.engines[0].load_bytes, 4 * kMiB);
  EXPECT_EQ(job->options.verify, VerifyChoice::kOnRequest);
  EXPECT_THAT(job->notes, IsEmpty());
}

TEST(JobFile, IsReadBackFromItsResolvedForm) {
  const auto job = ParseJob(File("job: {name: \"a \\\"b\\\": c\"}\ndeadlines: {sync: 500ms}\n"));
  ASSERT_TRUE(job.has_value()) << job.status().ToString();
  const auto again = ParseJob(FormatYaml(job->resolved));
  ASSERT_TRUE(again.has_value()) << again.status().ToString() << FormatYaml(job->resolved);
  EXPECT_EQ(again->options.name, "a \"b\": c");
  EXPECT_EQ(again->options.deadlines.sync, std::chrono::milliseconds(500));
  EXPECT_EQ(FormatYaml(again->resolved), FormatYaml(job->resolved));
}

TEST(JobFile, RefusesUnknownKeysAndNamesTheNearest) {  // RC-CFG-12
  EXPECT_THAT(ErrorOf(File("deadline: {sync: 1s}\n")), HasSubstr("unknown key deadline | did you mean deadlines?"));
  EXPECT_THAT(ErrorOf("policies: [{rank: 0, source: /m}]\nengines: [{slot: 0, tpp: 1}]\n"),
              HasSubstr("line 2: unknown key engines[0].tpp | did you mean engines[0].tp?"));
  EXPECT_THAT(ErrorOf(File("zzzzzzzzz: 1\n")), HasSubstr("see docs/configuration.md"));
}

TEST(JobFile, NamesEachRequiredKeyThatIsMissing) {  // RC-CFG-11
  EXPECT_THAT(ErrorOf(kEngines), HasSubstr("required key policies is missing"));
  EXPECT_THAT(ErrorOf(kPolicies), HasSubstr("required key engines is missing"));
  EXPECT_THAT(ErrorOf("policies: [{rank: 0}]\n" + std::string(kEngines)), HasSubstr("policies[0].source is missing"));
  EXPECT_THAT(ErrorOf("policies: [{source: /m}]\n" + std::string(kEngines)), HasSubstr("policies[0].rank is missing"));
  EXPECT_THAT(ErrorOf(std::string(kPolicies) + "engines: [{tp: 1}]\n"), HasSubstr("engines[0].slot is missing"));
  EXPECT_THAT(ErrorOf(std::string(kPolicies) + "engines: []\n"), HasSubstr("engines is empty"));
  EXPECT_THAT(ErrorOf(std::string(kPolicies) + "engines: {}\n"), HasSubstr("engines is no list"));
}

TEST(JobFile, RefusesWrongKinds) {  // RC-CFG-12
  EXPECT_THAT(ErrorOf(File("verify: perhaps\n")), HasSubstr("verify is \"perhaps\" | allowed: always | on_request"));
  EXPECT_THAT(ErrorOf(File("deadlines: {sync: 60}\n")), HasSubstr("deadlines.sync is \"60\""));
  EXPECT_THAT(ErrorOf(File("deadlines: {sync: 0s}\n")), HasSubstr("deadlines.sync is 0"));
  EXPECT_THAT(ErrorOf(File("transport: {shm: {load_bytes: 4MB}}\n")), HasSubstr("load_bytes is \"4MB\""));
  EXPECT_THAT(ErrorOf(File("generation: {use_fault_tolerance: yes}\n")), HasSubstr("true or false"));
  EXPECT_THAT(ErrorOf(File("generation: 7\n")), HasSubstr("generation is no section"));
  EXPECT_THAT(ErrorOf("a: &x [1]\nb: *x\nc: [\n"), HasSubstr("not YAML"));
  EXPECT_THAT(ErrorOf("verify: always\nverify: always\n"), HasSubstr("given twice"));
  EXPECT_THAT(ErrorOf("just words"), HasSubstr("holds no keys"));
}

TEST(JobFile, TakesOneTransportUnderEitherName) {  // RC-CFG-12
  EXPECT_EQ(ParseJob(File("generation: {refit_transport: shm}\n"))->options.transport, "shm");
  EXPECT_EQ(ParseJob(File("transport: {name: shm}\ngeneration: {refit_transport: shm}\n"))->options.transport, "shm");
  EXPECT_THAT(ErrorOf(File("transport: {name: shm}\ngeneration: {refit_transport: auto}\n")),
              HasSubstr("they are one choice"));
  EXPECT_THAT(ErrorOf(File("transport: {name: ucx}\n")), HasSubstr("not in this build | this build has: shm"));
}

TEST(JobFile, ReadsWhatNixlIsTold) {  // RC-CFG-12
  const auto job =
      ParseJob(File("transport: {name: nixl, nixl: {library: /opt/nixl}}\n"
                    "generation: {refit_cfg: {nixl: {backend_name: UCX, backend_init_params: "
                    "{num_workers: 2, engine_config: \"TLS=cma,tcp\"}}}}\n"));
  ASSERT_TRUE(job.has_value()) << job.status().ToString();
  EXPECT_EQ(job->options.transport, "nixl");
  EXPECT_EQ(job->options.nixl.library, "/opt/nixl");
  EXPECT_EQ(job->options.nixl.backend_name, "UCX");
  EXPECT_EQ(job->options.nixl.backend_params.at("num_workers"), "2");
  EXPECT_EQ(job->options.nixl.backend_params.at("engine_config"), "TLS=cma,tcp");
  EXPECT_THAT(job->notes, SizeIs(0));
  EXPECT_EQ(ParseJob(File("transport: {name: nixl}\n"))->options.nixl.backend_name, "UCX");
  EXPECT_THAT(ErrorOf(File("generation: {refit_cfg: {nixl: {backend_init_params: {a: [1]}}}}\n")),
              HasSubstr("backend_init_params"));
  EXPECT_THAT(ErrorOf(File("generation: {refit_cfg: {nixl: {backend_init_params: [a]}}}\n")),
              HasSubstr("backend_init_params"));
}

TEST(JobFile, NotesKeysOfATransportThatIsNotInUse) {  // RC-CFG-12
  const auto job = ParseJob(File("generation: {refit_cfg: {nixl: {device: cpu}}}\n"));
  ASSERT_TRUE(job.has_value()) << job.status().ToString();
  EXPECT_THAT(job->notes, SizeIs(1));
  EXPECT_THAT(job->notes, Contains(HasSubstr("generation.refit_cfg.nixl.device is not read")));
}

std::string Router(std::string_view keys, std::string_view more = {}) {
  return File(std::string(more) + "generation: {sglang_router_config: {" + std::string(keys) + "}}\n");
}

TEST(JobFile, HasARouterWhereItsBlockIsGivenAndOnlyThere) {
  const auto without = ParseJob(File(""));
  ASSERT_TRUE(without.has_value());
  EXPECT_FALSE(without->options.generation.router.has_value());
  EXPECT_THAT(FormatYaml(without->resolved), Not(HasSubstr("sglang_router_config")));

  const auto started = ParseJob(Router(""));
  ASSERT_TRUE(started.has_value()) << started.status().ToString();
  ASSERT_TRUE(started->options.generation.router.has_value());
  EXPECT_FALSE(started->options.generation.router->external);
  EXPECT_FALSE(started->options.generation.router->port.has_value());
  EXPECT_EQ(started->options.generation.router->ip, "127.0.0.1");
  EXPECT_EQ(started->options.generation.router->python, "python3");
  EXPECT_EQ(started->options.generation.router->worker_startup_timeout, std::chrono::seconds(5));

  const auto external = ParseJob(
      Router("use_external_router: true, sglang_router_ip: 10.0.0.5, sglang_router_port: 30000, "
             "use_distributed_post: true, router_policy: round_robin, sglang_router_request_timeout_secs: 60"));
  ASSERT_TRUE(external.has_value()) << external.status().ToString();
  EXPECT_TRUE(external->options.generation.router->external);
  EXPECT_EQ(external->options.generation.router->ip, "10.0.0.5");
  EXPECT_EQ(external->options.generation.router->port, 30000);
  EXPECT_EQ(external->options.generation.router->policy, "round_robin");
  EXPECT_EQ(external->options.generation.router->request_timeout_seconds, 60);
  const auto again = ParseJob(FormatYaml(external->resolved));
  ASSERT_TRUE(again.has_value()) << again.status().ToString();
  EXPECT_EQ(FormatYaml(again->resolved), FormatYaml(external->resolved));
}

TEST(Guards, RefuseARouterThatNobodyFinds) {
  EXPECT_THAT(ErrorOf(Router("use_external_router: true")),
              HasSubstr("sglang_router_port is missing: an external router has to be found"));
  EXPECT_THAT(ErrorOf(Router("", "controller: {state_directory: /s}\n")),
              HasSubstr("the router of the next controller must have the same address"));
  EXPECT_EQ(ErrorOf(Router("sglang_router_port: 30000", "controller: {state_directory: /s}\n")), "no error");
  EXPECT_THAT(ErrorOf(Router("sglang_router_port: 70000")), HasSubstr("allowed: 1 … 65535"));
  EXPECT_THAT(ErrorOf(Router("worker_startup_timeout: 500ms")), HasSubstr("allowed: 1s or more"));
  EXPECT_THAT(ErrorOf(Router("router_policy: best")), HasSubstr("round_robin"));
}

TEST(Guards, RefuseColocatedGeneration) {  // RC-CFG-01
  EXPECT_THAT(ErrorOf(File("generation: {colocated: {enabled: true}}\n")),
              HasSubstr("generation.colocated.enabled is true"));
}

// RC-CFG-02. So RC-KILL-04 and RC-ROLE-03 hold by construction: all nodes of an engine are one, that of its agent.
TEST(Guards, RefuseAnEngineLargerThanItsNode) {
  const std::string node =
      "generation: {colocated: {resources: {gpus_per_node: 2}}, sglang_server_config: {num_gpus_per_engine: ";
  EXPECT_THAT(ErrorOf(File(node + "4}}\n")), HasSubstr("num_gpus_per_engine is 4"));
  EXPECT_EQ(ErrorOf(File(node + "2}}\n")), "no error");
}

TEST(Guards, RefuseOtherParallelism) {  // RC-CFG-03, -04, -05
  EXPECT_THAT(ErrorOf(Server("dp_size: 2")), HasSubstr("dp_size is 2"));
  EXPECT_THAT(ErrorOf(Server("pp_size: 2")), HasSubstr("pp_size is 2"));
  EXPECT_THAT(ErrorOf(Server("ep_size: 2")), HasSubstr("ep_size is 2"));
  EXPECT_EQ(ErrorOf(Server("dp_size: 1, pp_size: 1, ep_size: 1")), "no error");
}

TEST(Guards, RefuseShardedExpertsWhereAReceiverIsMade) {  // RC-CFG-05, without a file in front
  EngineOptions engine;
  engine.load_bytes = 1;
  engine.args = {"--ep-size", "2"};
  EXPECT_FALSE(CheckEngine(engine).ok());
  engine.args = {"--ep-size=1"};
  EXPECT_TRUE(CheckEngine(engine).ok());
}

TEST(Guards, RefuseKvScalesThatNoSyncWouldRenew) {  // RC-SESS-12
  EngineOptions engine;
  engine.load_bytes = 1;
  engine.args = {"--quantization-param-path", "kv_scales.json"};
  EXPECT_THAT(CheckEngine(engine).ToString(), HasSubstr("--quantization-param-path is kv_scales.json"));
}

// RX-TIME-02: a call that may take longer than the stall deadline would be cut off by it.
TEST(Guards, RefuseAStallDeadlineThatOneCallCanReach) {
  EXPECT_THAT(ErrorOf(File("deadlines: {stall: 20s}\n")), HasSubstr("more than 20000ms"));
  EXPECT_THAT(ErrorOf(File("deadlines: {call: 40s, stall: 30s}\n")), HasSubstr("deadlines.stall is 30000ms"));
  EXPECT_EQ(ParseJob(File("deadlines: {call: 40s}\n"))->options.deadlines.stall, std::chrono::seconds(60));
  EXPECT_EQ(ErrorOf(File("deadlines: {call: 40s, stall: 41s}\n")), "no error");
  EXPECT_EQ(ParseJob(File("transport: {min_rate: 100MiB}\n"))->options.min_rate, 100 * kMiB);
}

TEST(Guards, LookAtThePauseModeOfEnginesThatPauseOnly) {  // RC-CFG-06
  EngineOptions engine;
  EXPECT_FALSE(CheckPauseMode(BackendChoice::kSglang, PauseChoice::kInPlace, engine).ok());
  EXPECT_TRUE(CheckPauseMode(BackendChoice::kVllm, PauseChoice::kInPlace, engine).ok());
  EXPECT_TRUE(CheckPauseMode(BackendChoice::kSglang, PauseChoice::kRetract, engine).ok());
  engine.args = {"--family", "a"};
  EXPECT_FALSE(CheckPauseMode(BackendChoice::kSglang, PauseChoice::kRetract, engine).ok());
  EXPECT_THAT(ErrorOf(Server("pause_generation_mode: in_place")), HasSubstr("pause_generation_mode is in_place"));
}

TEST(Guards, TakeRawBf16Only) {  // RC-CFG-08: by the schema, and by the guard on its own
  EXPECT_THAT(ErrorOf(Server("dtype: float16")), HasSubstr("dtype is \"float16\""));
  EXPECT_THAT(ErrorOf(Server("quantization: fp8")), HasSubstr("quantization is \"fp8\""));
  EXPECT_THAT(CheckRawBf16("float16", "none").message(), HasSubstr("raw BF16"));
  EXPECT_FALSE(CheckRawBf16("bfloat16", "fp8").ok());
  EXPECT_TRUE(CheckRawBf16("auto", "").ok());
}

TEST(Guards, WantPiecesThatFitTheLoadsOfEveryEngine) {  // RC-CFG-09
  JobOptions job;
  job.transport = "nixl";
  job.bucket_bytes = 4 * kMiB;
  job.engines.resize(1);
  job.engines[0].load_bytes = 2 * kMiB;
  EXPECT_THAT(CheckBucketSizes(job).message(), HasSubstr("2097152B"));
  EXPECT_THAT(CheckBucketSizes(job).message(), HasSubstr("4194304B"));
  job.engines[0].load_bytes = 8 * kMiB;
  EXPECT_TRUE(CheckBucketSizes(job).ok());
  job.bucket_bytes = 100'000;
  EXPECT_THAT(CheckBucketSizes(job).message(), HasSubstr("100000B"));
}

JobOptions Shape(std::vector<std::uint32_t> ranks, std::vector<std::uint32_t> slots, std::uint32_t tp_size) {
  JobOptions job;
  job.profile = ProfileChoice::kStrict;
  for (const std::uint32_t rank : ranks) {
    job.policies.push_back({rank, {}, {}, {}});
  }
  for (const std::uint32_t slot : slots) {
    EngineOptions& engine = job.engines.emplace_back();
    engine.slot = slot;
    engine.tp_size = tp_size;
  }
  return job;
}

TEST(Guards, RefuseEachShapeThatCannotBePaired) {  // RC-CFG-10
  EXPECT_TRUE(CheckPairing(Shape({0, 1}, {0}, 2)).ok());
  EXPECT_FALSE(CheckPairing(Shape({0}, {0}, 2)).ok());
  EXPECT_THAT(CheckPairing(Shape({}, {0}, 1)).message(), HasSubstr("policies is empty"));
  EXPECT_FALSE(CheckPairing(Shape({0}, {}, 1)).ok());
  EXPECT_FALSE(CheckPairing(Shape({0, 2}, {0}, 1)).ok());
  EXPECT_FALSE(CheckPairing(Shape({0, 1}, {1}, 1)).ok());
  JobOptions resilient = Shape({0}, {0}, 2);
  resilient.profile = ProfileChoice::kResilient;
  EXPECT_TRUE(CheckPairing(resilient).ok());
  EXPECT_FALSE(ParseJob("policies: [{rank: 0, source: /m}, {rank: 0, source: /m}]\n" + std::string(kEngines)).ok());
}

TEST(Guards, ReportAllMissingKnobsOfFaultToleranceTogether) {  // RC-CFG-13
  const std::string error = ErrorOf(File("generation: {use_fault_tolerance: true}\n"));
  EXPECT_THAT(error, HasSubstr("rollout_health_check_interval"));
  EXPECT_THAT(error, HasSubstr("rollout_health_check_timeout"));
  EXPECT_THAT(error, HasSubstr("rollout_health_check_first_wait"));
  const auto with = [](std::string_view timeout) {
    return File(
        "generation: {use_fault_tolerance: true, rollout_health_check_interval: 5.0, rollout_health_check_timeout: " +
        std::string(timeout) + ", rollout_health_check_first_wait: 0.0}\n");
  };
  EXPECT_THAT(ErrorOf(with("1.0")), HasSubstr("rollout_health_check_timeout is 1"));
  EXPECT_EQ(ErrorOf(with("1.5")), "no error");
}

// RC-CFG-15. RC-SESS-11 holds by construction: no engine that has no sessions of its kind sees a call of them.
TEST(Build, RefusesBackendsThatItDoesNotDrive) {
  EXPECT_THAT(ErrorOf(File("generation: {backend: vllm}\n")),
              HasSubstr("generation.backend is vllm: not in this build"));
}

TEST(Units, AreWholeNumbersWithTheirUnit) {
  EXPECT_EQ(*ParseBytes("4MiB"), 4 * kMiB);
  EXPECT_EQ(*ParseBytes("1B"), 1U);
  EXPECT_EQ(*ParseDuration("500ms"), std::chrono::milliseconds(500));
  EXPECT_EQ(*ParseDuration("2min"), std::chrono::minutes(2));
  for (const char* bad :
       {"", "4", "MiB", "-1MiB", "1.5MiB", "4 MiB", "99999999999999999999GiB", "18446744073709551615GiB"}) {
    EXPECT_FALSE(ParseBytes(bad).ok()) << bad;
  }
  EXPECT_FALSE(ParseDuration("60").ok());
}

TEST(ConfigurationPage, IsWhatTheSchemaSays) {
  std::ifstream file(REFIT_CONFIGURATION_PAGE);
  const std::string page{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  EXPECT_EQ(page, SchemaAsMarkdown()) << "run: build/bin/refit config schema > docs/configuration.md";
}

}  // namespace
}  // namespace refit::config
