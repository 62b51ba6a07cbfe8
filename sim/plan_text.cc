// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Plans as people read them:
//
//   seed 7
//   engines 3
//   at 2nd transfer of engine 1: kill engine 1
//   at 2.5s for 3s: partition controller -> agent 1
//   20ms after begin of engine 0: refuse update of engine 0, 2 times

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "refit/base/str.h"
#include "sim/fault_table.h"
#include "sim/plan.h"

namespace refit::sim {
namespace {

// ---- words of enums, which their ToString has

template <typename Enum, typename Name>
std::optional<Enum> EnumOf(std::string_view word, Enum last, Name name) {
  for (int value = 0; value <= static_cast<int>(last); ++value) {
    if (name(static_cast<Enum>(value)) == word) {
      return static_cast<Enum>(value);
    }
  }
  return std::nullopt;
}
constexpr auto kName = [](auto value) { return ToString(value); };

constexpr std::string_view kProcessNames[] = {"controller", "agent", "policy", "router", "engine"};
std::string_view NameOf(ProcessKind kind) { return kProcessNames[static_cast<std::size_t>(kind)]; }
bool IsNumbered(ProcessKind kind) { return kind != ProcessKind::kController && kind != ProcessKind::kRouter; }

// ---- times: the largest unit that is not below one, exactly

struct Unit {
  std::string_view name;
  std::int64_t nanoseconds;
  int digits;  // behind the point
};
constexpr Unit kUnits[] = {{"s", 1'000'000'000, 9}, {"ms", 1'000'000, 6}, {"us", 1'000, 3}, {"ns", 1, 0}};

std::string DurationText(Duration duration) {
  const std::int64_t value = duration.count();
  if (value == 0) {
    return "0s";
  }
  const Unit& unit = *std::find_if(std::begin(kUnits), std::end(kUnits) - 1,
                                   [&](const Unit& candidate) { return value >= candidate.nanoseconds; });
  std::string text = std::to_string(value / unit.nanoseconds);
  std::string fraction = std::to_string(value % unit.nanoseconds);
  if (fraction != "0") {
    fraction.insert(0, static_cast<std::size_t>(unit.digits) - fraction.size(), '0');
    fraction.erase(fraction.find_last_not_of('0') + 1);
    text += "." + fraction;
  }
  return text.append(unit.name);
}

template <typename Number>
std::optional<Number> NumberOf(std::string_view word) {
  Number number{};
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  return error == std::errc() && end == word.data() + word.size() ? std::optional(number) : std::nullopt;
}

std::optional<Duration> DurationOf(std::string_view word) {
  const std::size_t at = word.find_first_not_of("0123456789.");
  if (at == 0 || at == std::string_view::npos) {
    return std::nullopt;
  }
  const auto unit = std::find_if(std::begin(kUnits), std::end(kUnits),
                                 [&](const Unit& candidate) { return candidate.name == word.substr(at); });
  const std::size_t point = std::min(word.find('.'), at);
  const auto whole = NumberOf<std::uint32_t>(word.substr(0, point));
  std::string fraction(word.substr(std::min(point + 1, at), at - std::min(point + 1, at)));
  if (unit == std::end(kUnits) || !whole || (point < at && fraction.empty()) ||
      fraction.size() > static_cast<std::size_t>(unit->digits)) {
    return std::nullopt;
  }
  fraction.resize(static_cast<std::size_t>(unit->digits), '0');
  const auto rest = fraction.empty() ? std::optional<std::int64_t>(0) : NumberOf<std::int64_t>(fraction);
  return rest ? std::optional(Duration(*whole * unit->nanoseconds + *rest)) : std::nullopt;
}

std::string OrdinalText(std::uint32_t number) {
  constexpr std::string_view kEnds[] = {"th", "st", "nd", "rd"};
  const bool teen = number % 100 >= 11 && number % 100 <= 13;
  return StrCat(number, kEnds[!teen && number % 10 <= 3 ? number % 10 : 0]);
}

std::optional<std::uint32_t> OrdinalOf(std::string_view word) {
  const auto number = NumberOf<std::uint32_t>(word.substr(0, word.find_first_not_of("0123456789")));
  return number && *number > 0 && OrdinalText(*number) == word ? number : std::nullopt;
}

// ---- settings

struct Setting {
  std::string_view name;
  std::string (*get)(const Plan&);
  bool (*set)(std::string_view, Plan&);
};

template <auto Member>
constexpr Setting Number(std::string_view name) {
  return {name, [](const Plan& plan) { return std::to_string(plan.*Member); },
          [](std::string_view word, Plan& plan) {
            const auto number = NumberOf<std::remove_cvref_t<decltype(plan.*Member)>>(word);
            plan.*Member = number.value_or(plan.*Member);
            return number.has_value();
          }};
}
template <auto Member>
constexpr Setting Switch(std::string_view name) {
  return {name, [](const Plan& plan) { return std::string(plan.*Member ? "on" : "off"); },
          [](std::string_view word, Plan& plan) {
            plan.*Member = word == "on";
            return word == "on" || word == "off";
          }};
}
template <auto Member>
constexpr Setting Time(std::string_view name) {
  return {name, [](const Plan& plan) { return DurationText(plan.*Member); },
          [](std::string_view word, Plan& plan) {
            const auto duration = DurationOf(word);
            plan.*Member = duration.value_or(plan.*Member);
            return duration.has_value();
          }};
}

constexpr Setting kSettings[] = {
    Number<&Plan::seed>("seed"),
    {"profile", [](const Plan& plan) { return std::string(plan.strict ? "strict" : "resilient"); },
     [](std::string_view word, Plan& plan) {
       plan.strict = word == "strict";
       return word == "strict" || word == "resilient";
     }},
    {"family", [](const Plan& plan) { return std::string(ToString(plan.family)); },
     [](std::string_view word, Plan& plan) {
       const auto family = EnumOf(word, sync::SessionFamily::kC, kName);
       plan.family = family.value_or(plan.family);
       return family.has_value();
     }},
    Switch<&Plan::fault_tolerance>("fault-tolerance"),
    Switch<&Plan::router>("router"),
    Switch<&Plan::link>("link"),
    {"attached", [](const Plan& plan) { return plan.attached ? std::to_string(*plan.attached) : std::string("none"); },
     [](std::string_view word, Plan& plan) {
       plan.attached = NumberOf<std::uint32_t>(word);
       return plan.attached.has_value() || word == "none";
     }},
    Number<&Plan::engines>("engines"),
    Number<&Plan::tp_size>("tp"),
    Number<&Plan::policies>("policies"),
    Number<&Plan::tensors>("tensors"),
    Number<&Plan::load_bytes>("load-bytes"),
    Number<&Plan::requests>("requests"),
    Time<&Plan::request_interval>("request-interval"),
    Time<&Plan::sync_budget>("sync-budget"),
};

// ---- faults, written

std::string ProcessText(const Process& process) {
  return IsNumbered(process.kind) ? StrCat(NameOf(process.kind), " ", process.index)
                                  : std::string(NameOf(process.kind));
}

std::string WhenText(const Fault& fault) {
  std::string text = "at ";
  if (!fault.when.command) {
    text += DurationText(fault.when.at);
  } else {
    if (fault.when.at != Duration::zero()) {
      text = DurationText(fault.when.at) + " after ";
    }
    const std::string which = fault.when.skip == 0 ? "" : OrdinalText(fault.when.skip + 1) + " ";
    text += StrCat(which, ToString(*fault.when.command), " of engine ", fault.when.slot);
  }
  return fault.lasts == Duration::zero() ? text : StrCat(text, " for ", DurationText(fault.lasts));
}

std::string FaultText(const Fault& fault) {
  const FaultRow& row = RowOf(fault.kind);
  std::string text = StrCat(WhenText(fault), ": ", row.phrase);
  switch (row.shape) {
    case FaultShape::kPlain: break;
    case FaultShape::kSlot:
    case FaultShape::kPolicy: text += StrCat(" ", fault.target); break;
    case FaultShape::kCall:
      text += StrCat(" ", fault.operation ? ToString(*fault.operation) : "any-call", " of engine ", fault.target);
      break;
    case FaultShape::kBetween:
    case FaultShape::kPair: text += StrCat(" ", ProcessText(fault.from), " -> ", ProcessText(fault.to)); break;
  }
  if (fault.by != Duration::zero()) {
    text += StrCat(" by ", DurationText(fault.by));
  }
  return fault.count == 1 ? text : StrCat(text, ", ", fault.count, " times");
}

// ---- faults, read

std::vector<std::string_view> WordsOf(std::string_view line) {
  std::vector<std::string_view> words;
  while (true) {
    const std::size_t begin = line.find_first_not_of(" \t\r");
    if (begin == std::string_view::npos) {
      return words;
    }
    line.remove_prefix(begin);
    std::string_view word = line.substr(0, line.find_first_of(" \t\r"));
    line.remove_prefix(word.size());
    const bool marked = word.size() > 1 && (word.back() == ':' || word.back() == ',');
    words.push_back(word.substr(0, word.size() - (marked ? 1 : 0)));
    if (marked) {
      words.push_back(word.substr(word.size() - 1));
    }
  }
}

// Takes words from the front; the first thing that does not fit is what it complains about.
class Reader {
 public:
  explicit Reader(std::vector<std::string_view> words) : words_(std::move(words)) {}

  bool AtEnd() const { return at_ == words_.size(); }
  std::string_view Peek() const { return AtEnd() ? "" : words_[at_]; }
  bool Take(std::string_view phrase) {
    const std::vector<std::string_view> wanted = WordsOf(phrase);
    if (wanted.size() > words_.size() - at_ ||
        !std::equal(wanted.begin(), wanted.end(), words_.begin() + static_cast<std::ptrdiff_t>(at_))) {
      return false;
    }
    at_ += wanted.size();
    return true;
  }
  template <typename Value>
  bool TakeInto(std::optional<Value> parsed, Value& into) {
    if (parsed) {
      into = *parsed;
      ++at_;
    }
    return parsed.has_value();
  }
  Status Expected(std::string_view what) const {
    return InvalidArgument(AtEnd() ? "the line ends too early" : StrCat("does not understand '", Peek(), "'"),
                           StrCat("here stands ", what));
  }

 private:
  std::vector<std::string_view> words_;
  std::size_t at_ = 0;
};

Status ReadIndex(Reader& in, std::uint32_t& index) {
  return in.TakeInto(NumberOf<std::uint32_t>(in.Peek()), index) ? OkStatus() : in.Expected("a number");
}
Status ReadTime(Reader& in, Duration& duration) {
  return in.TakeInto(DurationOf(in.Peek()), duration) ? OkStatus() : in.Expected("a time, like 2.5s or 20ms");
}

Status ReadCommandOf(Reader& in, Trigger& when) {
  std::uint32_t which = 1;
  in.TakeInto(OrdinalOf(in.Peek()), which);
  when.skip = which - 1;
  when.command = EnumOf(in.Peek(), sync::AgentCommandKind::kKill, kName);
  if (!when.command) {
    return in.Expected("a time or a command, like 2.5s or transfer");
  }
  in.Take(in.Peek());
  return in.Take("of engine") ? ReadIndex(in, when.slot) : in.Expected("'of engine'");
}

Status ReadWhen(Reader& in, Fault& fault) {
  if (in.Take("at")) {
    if (!in.TakeInto(DurationOf(in.Peek()), fault.when.at)) {
      REFIT_RETURN_IF_ERROR(ReadCommandOf(in, fault.when));
    }
  } else {
    REFIT_RETURN_IF_ERROR(ReadTime(in, fault.when.at));
    if (!in.Take("after")) {
      return in.Expected("'after'");
    }
    REFIT_RETURN_IF_ERROR(ReadCommandOf(in, fault.when));
  }
  if (in.Take("for")) {
    REFIT_RETURN_IF_ERROR(ReadTime(in, fault.lasts));
  }
  return in.Take(":") ? OkStatus() : in.Expected("':'");
}

Status ReadProcess(Reader& in, Process& process) {
  const auto kind = EnumOf(in.Peek(), ProcessKind::kEngine, [](ProcessKind value) { return NameOf(value); });
  if (!kind) {
    return in.Expected("a process, like controller or agent 1");
  }
  process.kind = *kind;
  in.Take(in.Peek());
  return IsNumbered(*kind) ? ReadIndex(in, process.index) : OkStatus();
}

Status ReadCall(Reader& in, Fault& fault) {
  if (!in.Take("any-call")) {
    fault.operation = EnumOf(in.Peek(), sync::Operation::kRelease, kName);
    if (!fault.operation) {
      return in.Expected("an engine call, like update, or any-call");
    }
    in.Take(in.Peek());
  }
  return in.Take("of engine") ? ReadIndex(in, fault.target) : in.Expected("'of engine'");
}

// Of two phrases that fit, the longer one: "lose the answer to" and "lose".
Status ReadKind(Reader& in, FaultKind& kind) {
  std::vector<const FaultRow*> rows;
  for (const FaultRow& row : FaultTable()) {
    rows.push_back(&row);
  }
  std::stable_sort(rows.begin(), rows.end(), [](auto* a, auto* b) { return a->phrase.size() > b->phrase.size(); });
  const auto row = std::find_if(rows.begin(), rows.end(), [&](auto* candidate) { return in.Take(candidate->phrase); });
  if (row == rows.end()) {
    return in.Expected("what goes wrong, like 'kill engine 1'");
  }
  kind = (*row)->kind;
  return OkStatus();
}

Result<Fault> ReadFault(Reader& in) {
  Fault fault;
  REFIT_RETURN_IF_ERROR(ReadWhen(in, fault));
  REFIT_RETURN_IF_ERROR(ReadKind(in, fault.kind));
  switch (RowOf(fault.kind).shape) {
    case FaultShape::kPlain: break;
    case FaultShape::kSlot:
    case FaultShape::kPolicy: REFIT_RETURN_IF_ERROR(ReadIndex(in, fault.target)); break;
    case FaultShape::kCall: REFIT_RETURN_IF_ERROR(ReadCall(in, fault)); break;
    case FaultShape::kBetween:
    case FaultShape::kPair:
      REFIT_RETURN_IF_ERROR(ReadProcess(in, fault.from));
      if (!in.Take("->")) {
        return in.Expected("'->'");
      }
      REFIT_RETURN_IF_ERROR(ReadProcess(in, fault.to));
      break;
  }
  if (in.Take("by")) {
    REFIT_RETURN_IF_ERROR(ReadTime(in, fault.by));
  }
  if (in.Take(",")) {
    REFIT_RETURN_IF_ERROR(ReadIndex(in, fault.count));
    if (!in.Take("times")) {
      return in.Expected("'times'");
    }
  }
  if (!in.AtEnd()) {
    return in.Expected("nothing more");
  }
  return fault;
}

Status ReadLine(std::string_view line, Plan& plan, std::set<std::string_view>& seen) {
  const std::vector<std::string_view> words = WordsOf(line);
  const auto setting = std::find_if(std::begin(kSettings), std::end(kSettings),
                                    [&](const Setting& candidate) { return candidate.name == words.front(); });
  if (setting == std::end(kSettings)) {
    Reader in(words);
    if (in.Peek() != "at" && !DurationOf(in.Peek())) {
      return in.Expected("a setting, 'at', or a time");
    }
    REFIT_ASSIGN_OR_RETURN(const Fault fault, ReadFault(in));
    plan.faults.push_back(fault);
    return OkStatus();
  }
  if (words.size() != 2 || !setting->set(words[1], plan)) {
    return InvalidArgument(StrCat("'", line, "' is no value of ", setting->name),
                           StrCat("write it like '", setting->name, " ", setting->get(Plan{}), "'"));
  }
  if (!seen.insert(setting->name).second) {
    return InvalidArgument(StrCat(setting->name, " stands there twice"), "leave one out");
  }
  return OkStatus();
}

}  // namespace

std::string ToText(const Plan& plan) {
  std::string text;
  const Plan usual;
  for (const Setting& setting : kSettings) {
    if (setting.name == "seed" || setting.get(plan) != setting.get(usual)) {
      text += StrCat(setting.name, " ", setting.get(plan), "\n");
    }
  }
  for (const Fault& fault : plan.faults) {
    text += FaultText(fault) + "\n";
  }
  return text;
}

Status ReadInto(std::string_view text, Plan& plan) {
  std::set<std::string_view> seen;
  for (std::uint32_t number = 1; !text.empty(); ++number) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const std::size_t begin = line.find_first_not_of(" \t\r");
    if (begin == std::string_view::npos || line[begin] == '#') {
      continue;
    }
    if (const Status status = ReadLine(line, plan, seen); !status.ok()) {
      return status.WithContext(StrCat("line ", number));
    }
  }
  return OkStatus();
}

Result<Plan> ParsePlan(std::string_view text) {
  Plan plan;
  REFIT_RETURN_IF_ERROR(ReadInto(text, plan));
  REFIT_RETURN_IF_ERROR(CheckPlan(plan));
  return plan;
}

}  // namespace refit::sim
