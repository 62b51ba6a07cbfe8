// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/store/etcd_store.h"

#include <charconv>
#include <chrono>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>
#include <variant>

#include "refit/base/mutant.h"
#include "refit/base/str.h"
#include "refit/exec/clock.h"

namespace refit::store {
namespace {

// Of one call of the store, whatever it takes. Shorter than a controller waits for a record.
constexpr Duration kPatience = std::chrono::seconds(8);
constexpr std::size_t kPositionDigits = 12;
constexpr std::size_t kDigestDigits = 32;
constexpr int kRounds = 5;  // of taking a term while whoever had it goes on writing

Instant DeadlineFromNow() { return exec::Now() + kPatience; }

template <typename Number>
std::optional<Number> NumberIn(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && !text.empty() ? std::optional(number)
                                                                                   : std::nullopt;
}

std::string ValueOf(Term term, const control::Record& record) {
  const std::string payload = control::Encode(record);
  return StrCat(DigestOf(payload), ' ', term, ' ', UnixMilliseconds(), ' ', control::NameOf(record), '\n', payload);
}

// Whether a record was written under that term.
bool IsOf(Term term, std::string_view value) {
  return value.size() > kDigestDigits && value.substr(kDigestDigits).starts_with(StrCat(' ', term, ' '));
}

}  // namespace

EtcdStore::EtcdStore(std::string place, EtcdPlace parsed)
    : place_(std::move(place)), prefix_(std::move(parsed.prefix)), etcd_(std::move(parsed.endpoints)) {}

Result<std::unique_ptr<EtcdStore>> EtcdStore::Open(const std::string& place) {
  REFIT_ASSIGN_OR_RETURN(EtcdPlace parsed, ParseEtcdPlace(place));
  return std::unique_ptr<EtcdStore>(new EtcdStore(place, std::move(parsed)));
}

Result<std::unique_ptr<EtcdStore>> EtcdStore::OpenExisting(const std::string& place) {
  REFIT_ASSIGN_OR_RETURN(std::unique_ptr<EtcdStore> store, Open(place));
  REFIT_ASSIGN_OR_RETURN(const Holder holder, store->ReadHolder());
  if (holder.term == Term(0)) {
    return NotFound(StrCat("no controller has begun at ", place), "start `refit controller` with it");
  }
  return store;
}

std::string EtcdStore::Key(std::string_view name) const { return StrCat(prefix_, '/', name); }

std::string EtcdStore::JournalKey(std::uint64_t position) const {
  const std::string digits = StrCat(position);
  return Key(StrCat("journal/", std::string(kPositionDigits - std::min(kPositionDigits, digits.size()), '0'), digits));
}

// ---- reading

Result<Holder> EtcdStore::ReadHolder() {
  const std::string begin = Key("holder/");
  REFIT_ASSIGN_OR_RETURN(const auto entries, etcd_.ReadAll(begin, DeadlineFromNow()));
  Holder holder;
  bool whole = true;
  const auto read = [&whole](std::string_view text, auto& number) {
    const auto parsed = NumberIn<std::remove_reference_t<decltype(number)>>(text);
    whole = whole && parsed.has_value();
    number = parsed.value_or(0);
  };
  std::uint32_t term = 0;
  for (const auto& [key, value] : entries) {
    const std::string_view name = std::string_view(key).substr(begin.size());
    if (name == "term") {
      read(value, term);
    } else if (name == "pid") {
      read(value, holder.pid);
    } else if (name == "start_time") {
      read(value, holder.start_time);
    } else if (name == "boot_id") {
      holder.boot_id = value;
    } else if (name == "address") {
      holder.address = value;
    }
  }
  holder.term = Term(term);
  if (!whole || (!entries.empty() && term == 0)) {
    return Damaged(place_, "it does not say who holds the term");
  }
  return holder;
}

Result<std::vector<Row>> EtcdStore::ReadRows() {
  REFIT_ASSIGN_OR_RETURN(const auto entries, etcd_.ReadAll(Key("journal/"), DeadlineFromNow()));
  std::vector<Row> rows;
  for (const auto& [key, value] : entries) {
    const std::uint64_t position = rows.size() + 1;
    if (REFIT_MUTANT("RX-JRNL-02/accept-a-hole-in-etcd", key != JournalKey(position), false)) {
      return Damaged(place_, StrCat("record ", position, " is missing"));
    }
    const std::size_t head = std::min(value.find('\n'), value.size());
    std::string payload = value.substr(std::min(head + 1, value.size()));
    if (REFIT_MUTANT("RX-JRNL-02/trust-the-bytes-of-etcd",
                     head < kDigestDigits || value.compare(0, kDigestDigits, DigestOf(payload)) != 0, false)) {
      return Damaged(place_, StrCat("record ", position, " is not what was written"));
    }
    const std::string_view line = std::string_view(value).substr(0, head);
    const std::string_view before_name = line.substr(0, line.rfind(' '));
    const std::string_view written_at = before_name.substr(before_name.rfind(' ') + 1);
    rows.push_back({std::move(payload), NumberIn<std::uint64_t>(written_at).value_or(0)});
  }
  return rows;
}

Result<std::uint64_t> EtcdStore::ReadLast() {
  const std::string begin = Key("journal/");
  REFIT_ASSIGN_OR_RETURN(const std::string key, etcd_.ReadLastKey(begin, DeadlineFromNow()));
  if (key.empty()) {
    return 0;
  }
  const auto position = NumberIn<std::uint64_t>(std::string_view(key).substr(begin.size()));
  return position.has_value() ? Result<std::uint64_t>(*position)
                              : Result<std::uint64_t>(Damaged(place_, StrCat("its key ", key, " is no record")));
}

// ---- writing

Result<Term> EtcdStore::TakeTerm(Term seen, const Holder& self, RunId run) {
  const Term term = seen.Next();
  const std::string term_key = Key("holder/term");
  for (int round = 0; round < kRounds; ++round) {
    REFIT_ASSIGN_OR_RETURN(std::uint64_t position, ReadLast());
    EtcdTransaction take;
    take.only_if.push_back({term_key, seen == Term(0) ? std::nullopt : std::optional(StrCat(seen))});
    take.only_if.push_back({JournalKey(position + 1), std::nullopt});
    take.writes = {{term_key, StrCat(term)},
                   {Key("holder/pid"), StrCat(self.pid)},
                   {Key("holder/start_time"), StrCat(self.start_time)},
                   {Key("holder/boot_id"), self.boot_id},
                   {Key("holder/address"), ""}};
    if (position == 0) {
      take.writes.emplace_back(JournalKey(++position), ValueOf(term, control::RunRecord{run}));
    }
    take.writes.emplace_back(JournalKey(++position), ValueOf(term, control::TermRecord{term}));
    REFIT_ASSIGN_OR_RETURN(const EtcdAnswer answer, etcd_.Transact(take, DeadlineFromNow()));
    REFIT_ASSIGN_OR_RETURN(const Holder holder, answer.done ? Result<Holder>(self) : ReadHolder());
    // Taken by a transaction of ours whose answer was lost?
    const bool ours = answer.done || (holder.term == term && holder.pid == self.pid &&
                                      holder.start_time == self.start_time && holder.boot_id == self.boot_id);
    if (ours) {
      next_ = position + 1;
      return term;
    }
    if (holder.term != seen) {
      return Superseded(seen, holder.term);
    }
  }
  return Unavailable(StrCat(place_, ": the controller of term ", seen, " keeps on writing"), "end it by hand");
}

Status EtcdStore::WriteAsHolder(Term term, std::vector<std::pair<std::string, std::string>> writes) {
  const std::string term_key = Key("holder/term");
  const EtcdTransaction write{
      .only_if = {{term_key, StrCat(term)}}, .writes = std::move(writes), .otherwise_read = {term_key}};
  REFIT_ASSIGN_OR_RETURN(const EtcdAnswer answer, etcd_.Transact(write, DeadlineFromNow()));
  if (answer.done) {
    return OkStatus();
  }
  const auto found = answer.read.find(term_key);
  return Superseded(term, Term(found == answer.read.end() ? 0 : NumberIn<std::uint32_t>(found->second).value_or(0)));
}

Status EtcdStore::Announce(Term term, const std::string& address) {
  return WriteAsHolder(term, {{Key("holder/address"), address}});
}

Status EtcdStore::Release(Term term) {
  return WriteAsHolder(term, {{Key("holder/address"), ""}, {Key("holder/pid"), "0"}});
}

Status EtcdStore::Append(Term term, const control::Record& record) {
  const Instant deadline = DeadlineFromNow();
  const std::string value = ValueOf(term, record);
  const std::string term_key = Key("holder/term");
  const auto* const commit = std::get_if<control::CommitRecord>(&record);
  const std::string commit_key = commit == nullptr ? std::string() : Key(StrCat("commit/", commit->version));
  while (true) {
    const std::string place = JournalKey(next_);
    // Either condition would do: whoever takes the term writes TERM to the place that was free before.
    EtcdTransaction append{.only_if = {{term_key, StrCat(term)}, {place, std::nullopt}},
                           .writes = {{place, value}},
                           .otherwise_read = {term_key, place}};
    if (commit != nullptr) {
      append.only_if.push_back({commit_key, std::nullopt});
      append.writes.emplace_back(commit_key, StrCat(next_));
      append.otherwise_read.push_back(commit_key);
    }
    REFIT_ASSIGN_OR_RETURN(EtcdAnswer answer, etcd_.Transact(append, deadline));
    if (answer.done) {
      ++next_;
      return OkStatus();
    }
    const std::string& there = answer.read[place];
    if (IsOf(term, there)) {  // ours: this record, or the one before it, whose answers were lost
      ++next_;
      if (there == value) {
        return OkStatus();
      }
      continue;
    }
    const auto current = NumberIn<std::uint32_t>(answer.read[term_key]);
    if (current != term.value()) {
      return Superseded(term, Term(current.value_or(0)));
    }
    return answer.read.contains(commit_key)
               ? Status(StatusCode::kAlreadyExists, StrCat("version ", commit->version, " is committed already"))
               : Damaged(place_, StrCat("record ", next_, " was written by nobody who held the term"));
  }
}

}  // namespace refit::store
