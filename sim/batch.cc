// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "sim/batch.h"

#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <new>
#include <span>
#include <string_view>

#include "refit/base/check.h"
#include "refit/base/prng.h"
#include "refit/base/str.h"
#include "refit/base/time.h"
#include "refit/exec/clock.h"

namespace refit::sim {
namespace {

constexpr std::size_t kMostJobs = 256;
constexpr std::size_t kFailuresKept = 16;  // of each worker
constexpr std::uint64_t kChunk = 8;        // seeds that a worker takes at once
constexpr std::uint64_t kIdle = ~std::uint64_t{0};

struct FailureText {
  std::uint64_t seed;
  char checker[16];
  char what[512];
};

// A worker's figures live in memory that survives it.
struct Worker {
  std::atomic<pid_t> process;
  std::atomic<std::uint64_t> seed;  // that it runs
  std::uint64_t chunk_end;
  Totals totals;
  std::size_t failures;
  FailureText failure[kFailuresKept];
};
struct Shared {
  std::atomic<std::uint64_t> next;  // seed that nobody has taken
  std::atomic<std::uint64_t> failed;
  Worker workers[1];
};

template <std::size_t kSize>
void CopyText(std::string_view text, char (&into)[kSize]) {
  const std::size_t size = std::min(text.size(), kSize - 1);
  std::memcpy(into, text.data(), size);
  into[size] = '\0';
}

void Note(Shared& shared, Worker& worker, std::uint64_t seed, std::string_view checker, std::string_view what) {
  shared.failed.fetch_add(1);
  if (worker.failures < kFailuresKept) {
    FailureText& failure = worker.failure[worker.failures++];
    failure.seed = seed;
    CopyText(checker, failure.checker);
    CopyText(what, failure.what);
  }
}

std::uint64_t Mix(std::uint64_t seed, std::uint64_t hash) { return Prng(seed ^ (hash * 0x9e3779b97f4a7c15U)).Next(); }

void CountPlan(const Plan& plan, const RunResult& result, Totals& totals) {
  ++totals.runs;
  totals.requests += result.requests;
  totals.commits += result.commits;
  totals.steps += result.steps;
  totals.hash += Mix(plan.seed, result.trace_hash);
  for (std::size_t i = 0; i < totals.arrows.size(); ++i) {
    totals.arrows[i] += result.arrows.test(i) ? 1U : 0U;
  }
  for (std::size_t i = 0; i < plan.faults.size(); ++i) {
    const auto kind = static_cast<std::size_t>(plan.faults[i].kind);
    ++totals.drawn[kind];
    totals.happened[kind] += i < result.faults_happened.size() && result.faults_happened[i] ? 1U : 0U;
  }
}

void RunSeed(const BatchOptions& options, std::uint64_t seed, Shared& shared, Worker& worker) {
  const Plan plan = options.draw(seed);
  const RunOptions run_options{.on = options.on};
  const RunResult result = options.run(plan, run_options);
  CountPlan(plan, result, worker.totals);
  const bool failed =
      !result.violations.empty() && !options.ignored.test(static_cast<std::size_t>(result.violations.front().checker));
  if (failed) {
    const Violation& first = result.violations.front();
    ++(IsLiveness(first.checker) ? worker.totals.liveness_failures : worker.totals.violations);
    Note(shared, worker, seed, ToString(first.checker), first.what);
  }
  if (options.repeat_every > 0 && seed % options.repeat_every == 0) {
    ++worker.totals.repeated;
    const std::uint64_t again = options.run(plan, run_options).trace_hash;
    if (again != result.trace_hash) {
      ++worker.totals.unequal;
      Note(shared, worker, seed, "unequal", StrCat("trace hash ", result.trace_hash, ", the second time ", again));
    }
  }
}

bool IsEnough(const BatchOptions& options, const Shared& shared) {
  return options.stop_after > 0 && shared.failed.load() >= options.stop_after;
}

// Goes on where a worker before it died: behind that seed.
void RunWorker(const BatchOptions& options, Shared& shared, Worker& worker) {
  const std::uint64_t end = options.from + options.seeds;
  std::uint64_t seed = worker.seed.load() == kIdle ? worker.chunk_end : worker.seed.load() + 1;
  while (!IsEnough(options, shared)) {
    if (seed >= worker.chunk_end) {
      seed = shared.next.fetch_add(kChunk);
      worker.chunk_end = std::min(seed + kChunk, end);
      if (seed >= end) {
        break;
      }
    }
    worker.seed.store(seed);
    RunSeed(options, seed, shared, worker);
    ++seed;
  }
  worker.seed.store(kIdle);
}

class Crew {
 public:
  explicit Crew(const BatchOptions& options)
      : options_(options), jobs_(std::clamp<std::size_t>(options.jobs, 1, kMostJobs)) {
    size_ = sizeof(Shared) + sizeof(Worker) * jobs_;
    void* memory = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REFIT_CHECK(memory != MAP_FAILED, "no shared memory for the workers' figures");
    shared_ = new (memory) Shared{};
    shared_->next.store(options.from);
    for (std::size_t i = 0; i < jobs_; ++i) {
      Worker* worker = new (&shared_->workers[i]) Worker{};
      worker->seed.store(kIdle);
      since_.push_back({kIdle, Now()});
    }
  }
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;
  ~Crew() { ::munmap(shared_, size_); }

  Batch Run() {
    const double begin = Now();
    for (Worker& worker : workers()) {
      Start(worker);
    }
    while (running_ > 0) {
      ::poll(nullptr, 0, options_.progress ? 100 : 1);
      for (Worker& worker : workers()) {
        Watch(worker);
      }
      if (options_.progress) {
        options_.progress(Sum());
      }
    }
    Batch batch{Sum(), {}, Now() - begin};
    for (const Worker& worker : workers()) {
      for (std::size_t i = 0; i < worker.failures; ++i) {
        batch.failures.push_back({worker.failure[i].seed, worker.failure[i].checker, worker.failure[i].what});
      }
    }
    std::sort(batch.failures.begin(), batch.failures.end(),
              [](const Failure& a, const Failure& b) { return a.seed < b.seed; });
    return batch;
  }

 private:
  static double Now() { return ToSeconds(exec::Now().time_since_epoch()); }
  std::span<Worker> workers() { return {shared_->workers, jobs_}; }

  void Start(Worker& worker) {
    std::fflush(nullptr);
    const pid_t process = ::fork();
    REFIT_CHECK(process >= 0, "cannot start a worker");
    if (process == 0) {
      RunWorker(options_, *shared_, worker);
      ::_exit(0);
    }
    worker.process.store(process);
    SinceOf(worker) = {worker.seed.load(), Now()};  // else one that has not begun yet is as late as the one before it
    ++running_;
  }

  void Watch(Worker& worker) {
    const pid_t process = worker.process.load();
    if (process == 0) {
      return;
    }
    Since& since = SinceOf(worker);
    const std::uint64_t seed = worker.seed.load();
    if (since.seed != seed) {
      since = {seed, Now()};
    }
    const bool hung = seed != kIdle && Now() - since.at > options_.hung_after_s;
    if (hung) {
      ::kill(process, SIGKILL);
    }
    int status = 0;
    if (::waitpid(process, &status, hung ? 0 : WNOHANG) != process) {
      return;
    }
    worker.process.store(0);
    --running_;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
      return;
    }
    const std::uint64_t last = worker.seed.load();
    REFIT_CHECK(last != kIdle, "a worker died outside of any run");
    ++worker.totals.runs;
    ++worker.totals.died;
    Note(*shared_, worker, last, hung ? "hung" : "died",
         hung ? StrCat("no end after ", static_cast<int>(options_.hung_after_s), " s")
              : StrCat("signal ", WIFSIGNALED(status) ? WTERMSIG(status) : 0));
    Start(worker);
  }

  Totals Sum() {
    Totals sum;
    for (const Worker& worker : workers()) {
      sum.Add(worker.totals);
    }
    return sum;
  }

  struct Since {
    std::uint64_t seed;
    double at;
  };
  Since& SinceOf(const Worker& worker) { return since_[static_cast<std::size_t>(&worker - shared_->workers)]; }

  const BatchOptions& options_;
  const std::size_t jobs_;
  std::size_t size_ = 0;
  Shared* shared_ = nullptr;
  std::vector<Since> since_;
  std::size_t running_ = 0;
};

}  // namespace

void Totals::Add(const Totals& other) {
  runs += other.runs;
  requests += other.requests;
  commits += other.commits;
  steps += other.steps;
  violations += other.violations;
  liveness_failures += other.liveness_failures;
  died += other.died;
  repeated += other.repeated;
  unequal += other.unequal;
  hash += other.hash;
  const auto add = [](auto& into, const auto& from) {
    std::transform(into.begin(), into.end(), from.begin(), into.begin(), std::plus<>());
  };
  add(arrows, other.arrows);
  add(drawn, other.drawn);
  add(happened, other.happened);
}

std::optional<Failure> RunApart(const Plan& plan, RunResult (*run)(const Plan&, const RunOptions&)) {
  BatchOptions options;
  options.seeds = 1;
  options.draw = [&plan](std::uint64_t) { return plan; };
  options.run = run;
  const Batch batch = RunBatch(options);
  return batch.failures.empty() ? std::nullopt : std::optional(batch.failures.front());
}

bool IsLiveness(Checker checker) {
  return checker == Checker::kInv8 || checker == Checker::kL1 || checker == Checker::kL2 || checker == Checker::kL3;
}

Batch RunBatch(const BatchOptions& options) { return Crew(options).Run(); }

}  // namespace refit::sim
