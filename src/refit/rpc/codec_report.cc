// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include <utility>

#include "refit/base/str.h"
#include "refit/rpc/codec.h"

namespace refit::rpc {
namespace {

// For people only: what cannot be read is not known.
sync::Residue DecodeResidue(const v1::Residue& in) {
  const auto residue = Decode(in);
  return residue.has_value() ? *residue : sync::Residue::Unknown();
}

void EncodeEngine(const EngineReport& engine, v1::EngineOutcome* out) {
  out->set_slot(engine.slot.value());
  Encode(engine.incarnation, out->mutable_incarnation());
  Encode(engine.status, out->mutable_status());
  Encode(engine.residue, out->mutable_residue());
  out->set_serving(engine.serving);
  out->set_killed(engine.killed);
  Encode(engine.totals, out->mutable_totals());
  out->set_stall_seconds(engine.stall_seconds);
}
EngineReport DecodeEngine(const v1::EngineOutcome& in) {
  return {.slot = SlotIndex(in.slot()),
          .incarnation = DecodeId<Incarnation>(in.incarnation()),
          .status = Decode(in.status()),
          .residue = DecodeResidue(in.residue()),
          .serving = in.serving(),
          .killed = in.killed(),
          .totals = Decode(in.totals()),
          .stall_seconds = in.stall_seconds()};
}

void EncodeSlot(const SlotReport& slot, v1::SlotStatus* out) {
  out->set_slot(slot.slot.value());
  Encode(slot.incarnation, out->mutable_incarnation());
  out->set_engine_url(slot.engine_url);
  out->set_engine_version(slot.engine_version);
  out->set_engine_pid(slot.engine_pid);
  out->set_tp_size(slot.tp_size);
  Encode(slot.residue, out->mutable_residue());
  out->set_serving(slot.serving);
  out->set_version(slot.version.value());
  out->set_last_error(slot.last_error);
  out->set_state(slot.state);
  out->set_service(slot.service);
  out->set_in_service(slot.in_service);
  out->set_doing(slot.doing);
  out->set_bytes_total(slot.bytes_total);
  out->set_bytes_delivered(slot.bytes_delivered);
}
SlotReport DecodeSlot(const v1::SlotStatus& in) {
  return {.slot = SlotIndex(in.slot()),
          .incarnation = DecodeId<Incarnation>(in.incarnation()),
          .engine_url = in.engine_url(),
          .engine_version = in.engine_version(),
          .engine_pid = in.engine_pid(),
          .tp_size = in.tp_size(),
          .residue = DecodeResidue(in.residue()),
          .serving = in.serving(),
          .version = WeightVersion(in.version()),
          .last_error = in.last_error(),
          .state = in.state(),
          .service = in.service(),
          .in_service = in.in_service(),
          .doing = in.doing(),
          .bytes_total = in.bytes_total(),
          .bytes_delivered = in.bytes_delivered()};
}

}  // namespace

void Encode(const SyncReport& report, v1::SyncOutcome* out) {
  out->set_request_id(report.request_id);
  out->set_source(report.source);
  Encode(report.status, out->mutable_status());
  out->set_version(report.version.value());
  out->set_committed(report.committed);
  out->set_latched(report.latched);
  Encode(report.digest, out->mutable_digest());
  Encode(report.published, out->mutable_published());
  out->set_seconds(report.seconds);
  for (const EngineReport& engine : report.engines) {
    EncodeEngine(engine, out->add_engines());
  }
  for (const std::string& note : report.notes) {
    out->add_notes(note);
  }
  for (const Span& span : report.spans) {
    v1::Span* wire = out->add_spans();
    wire->set_lane(span.lane);
    wire->set_name(span.name);
    wire->set_begin_seconds(span.begin_seconds);
    wire->set_end_seconds(span.end_seconds);
  }
}
Result<SyncReport> Decode(const v1::SyncOutcome& in) {
  SyncReport report{.request_id = in.request_id(),
                    .source = in.source(),
                    .status = Decode(in.status()),
                    .version = WeightVersion(in.version()),
                    .committed = in.committed(),
                    .latched = in.latched(),
                    .digest = DecodeId<Digest>(in.digest()),
                    .published = Decode(in.published()),
                    .seconds = in.seconds(),
                    .engines = {},
                    .notes = {in.notes().begin(), in.notes().end()},
                    .spans = {}};
  for (const v1::EngineOutcome& engine : in.engines()) {
    report.engines.push_back(DecodeEngine(engine));
  }
  for (const v1::Span& span : in.spans()) {
    report.spans.push_back({span.lane(), span.name(), span.begin_seconds(), span.end_seconds()});
  }
  return report;
}

void Encode(const FleetReport& report, v1::FleetStatus* out) {
  Encode(report.run, out->mutable_run());
  out->set_term(report.term.value());
  out->set_profile(report.profile);
  out->set_phase(report.phase);
  out->set_committed(report.committed.value());
  out->set_stale(report.stale);
  Encode(report.latch, out->mutable_latch());
  for (const SlotReport& slot : report.slots) {
    EncodeSlot(slot, out->add_slots());
  }
  for (const PolicyReport& policy : report.policies) {
    v1::PolicyStatus* wire = out->add_policies();
    wire->set_rank(policy.rank.value());
    Encode(policy.incarnation, wire->mutable_incarnation());
    wire->set_address(policy.address);
    wire->set_source(policy.source);
  }
  out->set_bytes_total(report.bytes_total);
  out->set_bytes_delivered(report.bytes_delivered);
  out->set_transfer_seconds(report.transfer_seconds);
  out->mutable_router()->set_url(report.router.url);
  Encode(report.router.status, out->mutable_router()->mutable_status());
  out->mutable_router()->set_entries(report.router.entries);
  out->mutable_router()->set_pid(report.router.pid);
}
Result<FleetReport> Decode(const v1::FleetStatus& in) {
  FleetReport report{
      .run = DecodeId<RunId>(in.run()),
      .term = Term(in.term()),
      .profile = in.profile(),
      .phase = in.phase(),
      .committed = WeightVersion(in.committed()),
      .stale = in.stale(),
      .latch = Decode(in.latch()),
      .slots = {},
      .policies = {},
      .bytes_total = in.bytes_total(),
      .bytes_delivered = in.bytes_delivered(),
      .transfer_seconds = in.transfer_seconds(),
      .router = {in.router().url(), Decode(in.router().status()), in.router().entries(), in.router().pid()}};
  for (const v1::SlotStatus& slot : in.slots()) {
    report.slots.push_back(DecodeSlot(slot));
  }
  for (const v1::PolicyStatus& policy : in.policies()) {
    report.policies.push_back(
        {PolicyRank(policy.rank()), DecodeId<Incarnation>(policy.incarnation()), policy.address(), policy.source()});
  }
  return report;
}

void Encode(const Result<control::History>& history, v1::HistoryReply* out) {
  Encode(history.status(), out->mutable_status());
  if (!history.has_value()) {
    return;
  }
  Encode(history->run, out->mutable_run());
  for (const control::HistoryEntry& entry : history->entries) {
    v1::HistoryEntry* wire = out->add_entries();
    wire->set_request_id(entry.request_id);
    wire->set_source(entry.source);
    wire->set_version(entry.version.value());
    wire->set_attempts(entry.attempts);
    wire->set_began_at_ms(entry.began_at);
    wire->set_ended_at_ms(entry.ended_at);
    wire->set_committed(entry.committed);
    wire->set_told(entry.status.has_value());
    Encode(entry.status.value_or(OkStatus()), wire->mutable_status());
    Encode(entry.digest, wire->mutable_digest());
    for (const SlotIndex slot : entry.members) {
      wire->add_members(slot.value());
    }
    for (const auto& [slot, reason] : entry.excluded) {
      v1::Exclusion* exclusion = wire->add_excluded();
      exclusion->set_slot(slot.value());
      exclusion->set_reason(reason);
    }
  }
}
Result<control::History> Decode(const v1::HistoryReply& in) {
  REFIT_RETURN_IF_ERROR(Decode(in.status()));
  control::History history{.run = DecodeId<RunId>(in.run()), .entries = {}};
  for (const v1::HistoryEntry& wire : in.entries()) {
    control::HistoryEntry& entry = history.entries.emplace_back(
        control::HistoryEntry{.request_id = wire.request_id(),
                              .source = wire.source(),
                              .version = WeightVersion(wire.version()),
                              .attempts = wire.attempts(),
                              .began_at = wire.began_at_ms(),
                              .ended_at = wire.ended_at_ms(),
                              .committed = wire.committed(),
                              .status = wire.told() ? std::optional(Decode(wire.status())) : std::nullopt,
                              .digest = DecodeId<Digest>(wire.digest()),
                              .members = {},
                              .excluded = {}});
    for (const std::uint32_t slot : wire.members()) {
      entry.members.emplace_back(slot);
    }
    for (const v1::Exclusion& exclusion : wire.excluded()) {
      entry.excluded.emplace_back(SlotIndex(exclusion.slot()), exclusion.reason());
    }
  }
  return history;
}

void Encode(const VerifyReport& report, v1::VerifyReport* out) {
  Encode(report.status, out->mutable_status());
  out->set_verified(report.verified);
  out->set_unproven(report.unproven);
  out->set_version(report.version.value());
  for (const EngineVerification& engine : report.engines) {
    v1::EngineVerification* wire = out->add_engines();
    wire->set_slot(engine.slot.value());
    Encode(engine.status, wire->mutable_status());
    wire->set_rank_count(engine.rank_count);
    wire->set_parameter_count(engine.parameter_count);
    for (const weights::HashDifference& difference : engine.differences) {
      v1::HashDifference* entry = wire->add_differences();
      entry->set_rank(difference.rank.value());
      entry->set_parameter(difference.parameter);
      entry->set_expected(difference.expected);
      entry->set_actual(difference.actual);
    }
  }
}
Result<VerifyReport> Decode(const v1::VerifyReport& in) {
  VerifyReport report{.status = Decode(in.status()),
                      .verified = in.verified(),
                      .unproven = in.unproven(),
                      .version = WeightVersion(in.version()),
                      .engines = {}};
  for (const v1::EngineVerification& engine : in.engines()) {
    EngineVerification decoded{
        SlotIndex(engine.slot()), Decode(engine.status()), engine.rank_count(), engine.parameter_count(), {}};
    for (const v1::HashDifference& difference : engine.differences()) {
      decoded.differences.push_back(
          {TpRank(difference.rank()), difference.parameter(), difference.expected(), difference.actual()});
    }
    report.engines.push_back(std::move(decoded));
  }
  return report;
}

}  // namespace refit::rpc
