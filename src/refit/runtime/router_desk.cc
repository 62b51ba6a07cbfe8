// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/runtime/router_desk.h"

#include <utility>
#include <variant>
#include <vector>

#include "refit/base/mutant.h"
#include "refit/base/str.h"
#include "refit/engine/process/port_list.h"
#include "refit/exec/clock.h"
#include "refit/observe/log.h"

namespace refit::runtime {
namespace {

// The registry waits for each answer until its deadline, which bounds the call here, too.
constexpr std::size_t kQueue = 4;

}  // namespace

Result<std::unique_ptr<RouterDesk>> RouterDesk::Open(RouterOptions options, const std::string& port_list, Fleet fleet) {
  if (options.command.port == 0) {
    REFIT_ASSIGN_OR_RETURN(options.command.port, engine::process::TakePort(port_list));
  }
  return std::unique_ptr<RouterDesk>(new RouterDesk(std::move(options), port_list, std::move(fleet)));
}

RouterDesk::RouterDesk(RouterOptions options, const std::string& port_list, Fleet fleet)
    : options_(std::move(options)),
      fleet_(std::move(fleet)),
      process_(options_.owner == RouterOwner::kController
                   ? std::make_unique<RouterProcess>(options_.command, options_.log_path, port_list)
                   : nullptr),
      client_(StrCat("http://", router::Address(options_.command)), options_.api_key),
      report_({client_.url(), Unavailable("nobody has asked it yet")}),
      lane_(kQueue) {}

rpc::RouterReport RouterDesk::report() const {
  rpc::RouterReport report = report_.With([](const rpc::RouterReport& last) { return last; });
  const int pid = process_ == nullptr ? 0 : process_->pid();
  if (pid != report.pid) {  // the one that answered has ended
    const Status status = process_->status();
    report.status = status.ok() ? Unavailable("it was just started") : status;
    report.entries = 0;
    report.pid = pid;
  }
  return report;
}

void RouterDesk::Carry(const control::RouterCall& effect) {
  const Instant deadline = exec::Now() + effect.deadline;
  const Status queued = lane_.Post([this, effect, deadline] { fleet_.post(CarryOut(effect, deadline)); });
  if (!queued.ok()) {
    fleet_.post(control::RouterAnswered{effect.call, queued.WithContext("the router's queue"), {}});
  }
}

control::RouterAnswered RouterDesk::CarryOut(const control::RouterCall& call, Instant deadline) {
  control::RouterAnswered answer{call.call, OkStatus(), {}};
  const Duration left = deadline - exec::Now();
  const int pid = process_ == nullptr ? 0 : process_->pid();
  if (process_ != nullptr && !process_->status().ok()) {
    answer.status = process_->status();  // whoever may have its port is not asked
  } else if (REFIT_MUTANT("RC-RTR-04/late-add", left <= Duration::zero(), false)) {
    // Nobody waits for it any more: an add that was sent now would land when nobody reckons with it.
    answer.status = DeadlineExceeded("the router's calls take too long");
  } else if (const auto* add = std::get_if<fleet::RouterAdd>(&call.action)) {
    answer.status = Add(*add, left);
  } else if (const auto* entry = std::get_if<fleet::RouterDelete>(&call.action)) {
    answer.status = client_.Delete(entry->id, left);
  } else {
    answer.status = List(left, answer.entries);
  }
  const bool is_list = std::holds_alternative<fleet::RouterList>(call.action);
  if (!is_list && !answer.status.ok()) {
    observe::LogWarning(StrCat("router ", client_.url(), ": ", answer.status.ToString()));
  }
  if (is_list) {
    Note(answer.status, answer.entries.size(), pid);
  }
  return answer;
}

// What a list says of the router itself.
void RouterDesk::Note(const Status& listed, std::size_t entries, int pid) {
  const rpc::RouterReport before = report_.With([&](rpc::RouterReport& report) {
    return std::exchange(report, {report.url, listed, static_cast<std::uint32_t>(entries), pid});
  });
  if (before.status.code() != listed.code()) {  // else it would be a line each second
    listed.ok() ? observe::LogInfo(StrCat("router ", client_.url(), " answers"))
                : observe::LogWarning(StrCat("router ", client_.url(), ": ", listed.ToString()));
  }
  if (listed.ok() || before.pid != pid) {
    heard_ = exec::Now();
  } else if (process_ != nullptr && exec::Now() - heard_ > options_.silence) {
    heard_ = exec::Now();
    process_->Restart();
  }
}

Status RouterDesk::List(Duration deadline, std::vector<fleet::RouterEntry>& entries) {
  REFIT_ASSIGN_OR_RETURN(const std::vector<router::Worker> workers, client_.List(deadline));
  for (const router::Worker& worker : workers) {
    fleet::RouterEntry& entry = entries.emplace_back(fleet::RouterEntry{worker.id, worker.slot, worker.incarnation});
    const std::string url = fleet_.find_url(worker.slot, worker.incarnation);
    if (!url.empty() && REFIT_MUTANT("RC-RTR-04/labels-are-enough", url != worker.url, false)) {
      entry.slot = {};
      entry.incarnation = {};  // somebody else's, whatever its labels say
    }
  }
  return OkStatus();
}

Status RouterDesk::Add(const fleet::RouterAdd& add, Duration deadline) {
  const std::string url = fleet_.find_url(add.slot, add.incarnation);
  if (url.empty()) {
    return FailedPrecondition(StrCat("engine ", add.slot, " has not registered the address of that life"));
  }
  const auto key = options_.worker_keys.find(add.slot);
  return client_.Add({url, add.slot, add.incarnation, key == options_.worker_keys.end() ? "" : key->second}, deadline);
}

}  // namespace refit::runtime
