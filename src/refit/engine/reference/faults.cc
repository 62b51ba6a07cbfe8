// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/engine/reference/faults.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <fstream>
#include <iterator>

#include "refit/base/str.h"

namespace refit::engine::reference {
namespace {

struct NamedAction {
  std::string_view name;
  FaultAction action;
  double default_parameter;
  std::string_view help;
};
constexpr std::array kActions = {
    NamedAction{"hang", FaultAction::kHang, 0, "never answer; the call does not run"},
    NamedAction{"die", FaultAction::kDie, 0, "die as SGLang does: no answer, the port hangs, then exit 137"},
    NamedAction{"exit", FaultAction::kExit, 0, "exit at once"},
    NamedAction{"refuse", FaultAction::kRefuse, 0, "400 with success false; the call does not run"},
    NamedAction{"http500", FaultAction::kHttp500, 0, "500 Internal Server Error; the call does not run"},
    NamedAction{"broken-json", FaultAction::kBrokenJson, 0, "the call runs; 200 with half of its JSON"},
    NamedAction{"drip", FaultAction::kDrip, 0, "the call runs; its answer comes at one byte a second"},
    NamedAction{"echo", FaultAction::kEcho, 4, "400 with PARAM megabytes of text (default 4)"},
    NamedAction{"close", FaultAction::kClose, 0, "the call runs; the connection closes within its answer"},
    NamedAction{"slow", FaultAction::kSlow, 1, "the call runs PARAM seconds later (default 1)"},
    NamedAction{"hold", FaultAction::kHold, 30, "the call runs when the switch left the file, or PARAM seconds later"},
};

struct NamedRoute {
  std::string_view name;
  FaultRoute route;
};
constexpr std::array kRoutes = {
    NamedRoute{"pause", FaultRoute::kPause},
    NamedRoute{"flush", FaultRoute::kFlush},
    NamedRoute{"begin", FaultRoute::kBegin},
    NamedRoute{"update", FaultRoute::kUpdate},
    NamedRoute{"end", FaultRoute::kEnd},
    NamedRoute{"continue", FaultRoute::kContinue},
    NamedRoute{"checksum", FaultRoute::kChecksum},
    NamedRoute{"label", FaultRoute::kLabel},
    NamedRoute{"health", FaultRoute::kHealth},
    NamedRoute{"generate", FaultRoute::kGenerate},
    NamedRoute{"release", FaultRoute::kRelease},
    NamedRoute{"resume_memory", FaultRoute::kResumeMemory},
    NamedRoute{"server_info", FaultRoute::kServerInfo},
};

template <typename Table>
std::string Names(const Table& table) {
  std::string names;
  for (const auto& entry : table) {
    names += names.empty() ? "" : ", ";
    names += entry.name;
  }
  return names;
}

template <typename Table>
const typename Table::value_type* FindByName(const Table& table, std::string_view name) {
  for (const auto& entry : table) {
    if (entry.name == name) {
      return &entry;
    }
  }
  return nullptr;
}

template <typename Number>
bool ParseNumber(std::string_view text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

template <typename Table, typename Key>
std::string_view NameOf(const Table& table, Key Table::value_type::* key, Key wanted) {
  return std::ranges::find(table, wanted, key)->name;
}

// One write, so that lines of several engines do not mix.
void WriteHit(const std::string& file, const Fault& fault, std::uint64_t call) {
  if (file.empty()) {
    return;
  }
  const std::string line = StrCat(getpid(), " ", NameOf(kActions, &NamedAction::action, fault.action), " ",
                                  NameOf(kRoutes, &NamedRoute::route, fault.route), " ", call, "\n");
  const int hits = open((file + ".hits").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (hits < 0 || write(hits, line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
    std::fprintf(stderr, "refit-engine: cannot write %s.hits\n", file.c_str());
  }
  if (hits >= 0) {
    close(hits);
  }
}

Status Wrong(std::string_view spec, std::string_view what, std::string remedy) {
  return InvalidArgument(StrCat("--fault ", spec, ": ", what), std::move(remedy));
}

}  // namespace

Result<Fault> ParseFault(std::string_view spec) {
  std::vector<std::string_view> parts;
  for (std::string_view rest = spec;;) {
    const std::size_t colon = rest.find(':');
    parts.push_back(rest.substr(0, colon));
    if (colon == std::string_view::npos) {
      break;
    }
    rest.remove_prefix(colon + 1);
  }
  if (parts.size() < 2 || parts.size() > 4) {
    return Wrong(spec, "not ACTION:ROUTE[:N][:PARAM]", "for example hang:update:3");
  }
  const NamedAction* action = FindByName(kActions, parts[0]);
  if (action == nullptr) {
    return Wrong(spec, StrCat("unknown action '", parts[0], "'"), StrCat("one of ", Names(kActions)));
  }
  const NamedRoute* route = FindByName(kRoutes, parts[1]);
  if (route == nullptr) {
    return Wrong(spec, StrCat("unknown route '", parts[1], "'"), StrCat("one of ", Names(kRoutes)));
  }
  Fault fault{action->action, route->route, 1, action->default_parameter};
  if (parts.size() > 2) {
    if (parts[2] == "*") {
      fault.call = 0;
    } else if (!ParseNumber(parts[2], fault.call) || fault.call == 0) {
      return Wrong(spec, StrCat("'", parts[2], "' is no call number"), "1 is the route's first call, * is each");
    }
  }
  if (parts.size() > 3 && (action->default_parameter == 0 || !ParseNumber(parts[3], fault.parameter) ||
                           !(fault.parameter >= 0 && fault.parameter <= 3600))) {
    return Wrong(spec, StrCat("'", parts[3], "' is no parameter of ", parts[0]),
                 "slow and hold take seconds, echo megabytes");
  }
  return fault;
}

std::string FaultHelp() {
  std::string help = "--fault ACTION:ROUTE[:N][:PARAM]  N: the route's N-th call (default 1), * for each\n";
  for (const NamedAction& action : kActions) {
    help += StrCat("  ", action.name, std::string(13 - action.name.size(), ' '), action.help, "\n");
  }
  return help + StrCat("  routes: ", Names(kRoutes), "\n");
}

std::optional<Fault> FaultTable::CountCall(FaultRoute route) {
  if (route == FaultRoute::kNone) {
    return std::nullopt;
  }
  const std::lock_guard lock(mutex_);
  ReadFile();
  const std::uint64_t call = ++calls_[static_cast<std::size_t>(route)];
  for (const std::vector<Fault>* faults : {&std::as_const(file_faults_), &faults_}) {
    for (const Fault& fault : *faults) {
      if (fault.route == route && (fault.call == 0 || fault.call == call)) {
        WriteHit(file_, fault, call);
        return fault;
      }
    }
  }
  return std::nullopt;
}

bool FaultTable::Stands(const Fault& fault) {
  const std::lock_guard lock(mutex_);
  ReadFile();
  return std::ranges::count(file_faults_, fault) + std::ranges::count(faults_, fault) != 0;
}

void FaultTable::ReadFile() {
  if (file_.empty()) {
    return;
  }
  std::ifstream file(file_);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (text == text_) {
    return;
  }
  text_ = std::move(text);
  file_faults_.clear();
  std::ranges::fill(calls_, 0);
  std::string_view rest = text_;
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    if (line.empty()) {
      continue;
    }
    if (const Result<Fault> fault = ParseFault(line); fault.has_value()) {
      file_faults_.push_back(*fault);
    } else {
      std::fprintf(stderr, "refit-engine: %s: %s\n", file_.c_str(), fault.status().ToString().c_str());
    }
  }
}

}  // namespace refit::engine::reference
