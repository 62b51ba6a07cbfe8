// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/rpc/codec.h"

#include <utility>

#include "refit/base/str.h"

namespace refit::rpc {
namespace {

// The private overloads below stand beside the public ones.
using rpc::Decode;
using rpc::Encode;

template <typename Kind>
Result<Kind> DecodeKind(std::uint32_t value, Kind last, std::string_view what) {
  if (value == 0 || value > static_cast<std::uint32_t>(last) + 1) {
    return InvalidArgument(StrCat(what, " kind ", value, " is unknown"), "run one version of refit everywhere");
  }
  return static_cast<Kind>(value - 1);
}
template <typename Kind>
std::uint32_t EncodeKind(Kind kind) {
  return static_cast<std::uint32_t>(kind) + 1;
}

DigestKind KindOf(bool gpu_digests) { return gpu_digests ? DigestKind::kGpuHash : DigestKind::kXxh3; }

void Encode(const sync::Stamp& stamp, v1::Stamp* out) {
  Encode(stamp.run, out->mutable_run());
  out->set_term(stamp.term.value());
  out->set_seq(stamp.seq.value());
  out->set_attempt(stamp.attempt.packed());
  out->set_version(stamp.version.value());
  Encode(stamp.incarnation, out->mutable_incarnation());
}
sync::Stamp Decode(const v1::Stamp& in) {
  return {.run = DecodeId<RunId>(in.run()),
          .term = Term(in.term()),
          .seq = CommandSeq(in.seq()),
          .attempt = AttemptId::FromPacked(in.attempt()),
          .version = WeightVersion(in.version()),
          .incarnation = DecodeId<Incarnation>(in.incarnation())};
}

void Encode(const weights::TensorSpec& spec, v1::TensorSpec* out) {
  out->set_name(spec.name);
  out->set_dtype(std::string(weights::TorchName(spec.dtype)));
  out->mutable_shape()->Assign(spec.shape.begin(), spec.shape.end());
}
Result<weights::TensorSpec> Decode(const v1::TensorSpec& in) {
  const auto dtype = weights::DTypeFromTorchName(in.dtype());
  if (!dtype.has_value()) {
    return InvalidArgument(StrCat("tensor ", in.name(), ": dtype ", in.dtype(), " is unknown"));
  }
  return weights::TensorSpec{in.name(), *dtype, weights::Shape(in.shape().begin(), in.shape().end())};
}

void Encode(const weights::Manifest& manifest, v1::Manifest* out) {
  for (const weights::TensorSpec& spec : manifest.tensors()) {
    Encode(spec, out->add_tensors());
  }
}
Result<std::shared_ptr<const weights::Manifest>> Decode(const v1::Manifest& in) {
  std::vector<weights::TensorSpec> specs;
  specs.reserve(static_cast<std::size_t>(in.tensors_size()));
  for (const v1::TensorSpec& spec : in.tensors()) {
    REFIT_ASSIGN_OR_RETURN(weights::TensorSpec decoded, Decode(spec));
    specs.push_back(std::move(decoded));
  }
  REFIT_ASSIGN_OR_RETURN(weights::Manifest manifest, weights::Manifest::Make(std::move(specs)));
  return std::make_shared<const weights::Manifest>(std::move(manifest));
}

template <typename Wire>
std::vector<std::uint32_t> Ranks(const Wire& in) {
  return {in.tp_ranks().begin(), in.tp_ranks().end()};
}

void Encode(const stream::Bucket& bucket, v1::Announcement* out) {
  out->set_seq(bucket.seq.value());
  out->set_used(bucket.used);
  out->set_is_last(bucket.is_last);
  for (const stream::Entry& entry : bucket.entries) {
    v1::Entry* wire = out->add_entries();
    Encode(entry.spec, wire->mutable_spec());
    wire->set_chunk_offset(entry.chunk_offset);
    wire->set_chunk_size(entry.chunk_size);
    wire->set_offset(entry.offset);
  }
}
Result<stream::Bucket> DecodeBucket(const v1::Announcement& in) {
  stream::Bucket bucket{.seq = LoadSeq(in.seq()), .entries = {}, .used = in.used(), .is_last = in.is_last()};
  bucket.entries.reserve(static_cast<std::size_t>(in.entries_size()));
  for (const v1::Entry& entry : in.entries()) {
    REFIT_ASSIGN_OR_RETURN(weights::TensorSpec spec, Decode(entry.spec()));
    bucket.entries.push_back({std::move(spec), entry.chunk_offset(), entry.chunk_size(), entry.offset()});
  }
  return bucket;
}

void Encode(const SenderIdentity& sender, v1::SenderIdentity* out) {
  out->set_protocol(sender.protocol);
  Encode(sender.run, out->mutable_run());
  out->set_term(sender.term.value());
  Encode(sender.incarnation, out->mutable_incarnation());
  out->set_bucket_bytes(sender.bucket_bytes);
}
SenderIdentity Decode(const v1::SenderIdentity& in) {
  return {.protocol = in.protocol(),
          .run = DecodeId<RunId>(in.run()),
          .term = Term(in.term()),
          .incarnation = DecodeId<Incarnation>(in.incarnation()),
          .bucket_bytes = in.bucket_bytes()};
}

}  // namespace

void Encode(const Id128& id, v1::Id128* out) {
  out->set_high(id.high);
  out->set_low(id.low);
}

void Encode(const sync::TransferTotals& totals, v1::TransferTotals* out) {
  out->set_tensors(totals.tensors);
  out->set_loads(totals.loads);
  out->set_bytes(totals.bytes);
  out->set_staged_ns(totals.staged.count());
  out->set_installing_ns(totals.installing.count());
}
sync::TransferTotals Decode(const v1::TransferTotals& in) {
  return {.tensors = in.tensors(),
          .loads = in.loads(),
          .bytes = in.bytes(),
          .staged = Duration(in.staged_ns()),
          .installing = Duration(in.installing_ns())};
}

void Encode(const sync::Residue& residue, v1::Residue* out) {
  out->set_kind(EncodeKind(residue.kind));
  out->set_version(residue.version.value());
  out->set_attempt(residue.attempt.packed());
  Encode(residue.digest, out->mutable_digest());
}
Result<sync::Residue> Decode(const v1::Residue& in) {
  REFIT_ASSIGN_OR_RETURN(const sync::ResidueKind kind, DecodeKind(in.kind(), sync::ResidueKind::kUnknown, "residue"));
  return sync::Residue{kind, WeightVersion(in.version()), AttemptId::FromPacked(in.attempt()),
                       DecodeId<Digest>(in.digest())};
}

void Encode(const Status& status, v1::Status* out) {
  out->set_code(static_cast<std::int32_t>(status.code()));
  out->set_message(status.message());
  out->set_remedy(status.remedy());
}
Status Decode(const v1::Status& in) {
  if (in.code() == 0) {
    return OkStatus();
  }
  const bool known = in.code() > 0 && in.code() <= static_cast<std::int32_t>(StatusCode::kDataLoss);
  return {known ? static_cast<StatusCode>(in.code()) : StatusCode::kUnknown, in.message(), in.remedy()};
}

static void Encode(const sync::StreamSource& source, v1::StreamSource* out) {
  out->set_policy_rank(source.policy.value());
  out->set_address(source.address);
  Encode(source.incarnation, out->mutable_incarnation());
  out->mutable_tp_ranks()->Assign(source.tp_ranks.begin(), source.tp_ranks.end());
  out->set_link(source.link.value());
}
static sync::StreamSource Decode(const v1::StreamSource& in) {
  return {PolicyRank(in.policy_rank()), in.address(), DecodeId<Incarnation>(in.incarnation()), Ranks(in),
          LinkId(in.link())};
}

void Encode(const sync::AgentCommand& command, v1::AgentCommand* out) {
  Encode(command.stamp, out->mutable_stamp());
  out->set_kind(EncodeKind(command.kind));
  out->set_budget_ns(command.budget.count());
  if (command.manifest != nullptr) {
    Encode(*command.manifest, out->mutable_manifest());
  }
  for (const sync::StreamSource& source : command.streams) {
    Encode(source, out->add_streams());
  }
  Encode(command.digest, out->mutable_digest());
}
Result<sync::AgentCommand> Decode(const v1::AgentCommand& in) {
  REFIT_ASSIGN_OR_RETURN(const sync::AgentCommandKind kind,
                         DecodeKind(in.kind(), sync::AgentCommandKind::kKill, "agent command"));
  sync::AgentCommand command{.stamp = Decode(in.stamp()),
                             .kind = kind,
                             .budget = Duration(in.budget_ns()),
                             .manifest = nullptr,
                             .streams = {},
                             .digest = DecodeId<Digest>(in.digest())};
  if (in.has_manifest()) {
    REFIT_ASSIGN_OR_RETURN(command.manifest, Decode(in.manifest()));
  }
  for (const v1::StreamSource& source : in.streams()) {
    command.streams.push_back(Decode(source));
  }
  return command;
}

void Encode(const sync::AgentReply& reply, v1::AgentReply* out) {
  Encode(reply.stamp, out->mutable_stamp());
  out->set_kind(EncodeKind(reply.kind));
  Encode(reply.status, out->mutable_status());
  Encode(reply.residue, out->mutable_residue());
  Encode(reply.totals, out->mutable_totals());
  out->set_retryable_in_place(reply.retryable_in_place);
  out->set_highest_term(reply.highest_term.value());
  out->set_attempt(reply.attempt.packed());
  out->set_serving(reply.serving);
  out->set_died_in_update(reply.died_in_update);
  for (const sync::StreamSource& link : reply.links) {
    Encode(link, out->add_links());
  }
}
Result<sync::AgentReply> Decode(const v1::AgentReply& in) {
  REFIT_ASSIGN_OR_RETURN(const sync::ReplyKind kind, DecodeKind(in.kind(), sync::ReplyKind::kUnbound, "agent reply"));
  REFIT_ASSIGN_OR_RETURN(const sync::Residue residue, Decode(in.residue()));
  sync::AgentReply reply{.stamp = Decode(in.stamp()),
                         .kind = kind,
                         .status = Decode(in.status()),
                         .residue = residue,
                         .totals = Decode(in.totals()),
                         .retryable_in_place = in.retryable_in_place(),
                         .highest_term = Term(in.highest_term()),
                         .attempt = AttemptId::FromPacked(in.attempt()),
                         .serving = in.serving(),
                         .died_in_update = in.died_in_update(),
                         .links = {}};
  for (const v1::StreamSource& link : in.links()) {
    reply.links.push_back(Decode(link));
  }
  return reply;
}

void Encode(const EngineErrand& errand, v1::EngineErrand* out) {
  Encode(errand.run, out->mutable_run());
  out->set_term(errand.term.value());
  out->set_kind(EncodeKind(errand.kind));
  Encode(errand.incarnation, out->mutable_incarnation());
  out->set_budget_ns(errand.budget.count());
}
Result<EngineErrand> Decode(const v1::EngineErrand& in) {
  REFIT_ASSIGN_OR_RETURN(const ErrandKind kind, DecodeKind(in.kind(), ErrandKind::kDrain, "engine errand"));
  return EngineErrand{.run = DecodeId<RunId>(in.run()),
                      .term = Term(in.term()),
                      .kind = kind,
                      .incarnation = DecodeId<Incarnation>(in.incarnation()),
                      .budget = Duration(in.budget_ns())};
}

Result<control::SlotAction> DecodeSlotAction(std::uint32_t action) {
  return DecodeKind(action, control::SlotAction::kRestart, "slot action");
}

void Encode(const ErrandReply& reply, v1::ErrandReply* out) {
  Encode(reply.status, out->mutable_status());
  out->set_gone(reply.gone);
  out->set_highest_term(reply.highest_term.value());
}
Result<ErrandReply> Decode(const v1::ErrandReply& in) {
  return ErrandReply{.status = Decode(in.status()), .gone = in.gone(), .highest_term = Term(in.highest_term())};
}

void Encode(const sync::PolicyCommand& command, v1::PolicyCommand* out) {
  Encode(command.stamp, out->mutable_stamp());
  out->set_kind(EncodeKind(command.kind));
  out->set_budget_ns(command.budget.count());
  out->set_source(command.source);
  for (const sync::Receiver& receiver : command.receivers) {
    v1::Receiver* wire = out->add_receivers();
    wire->set_slot(receiver.slot.value());
    Encode(receiver.incarnation, wire->mutable_incarnation());
    wire->mutable_tp_ranks()->Assign(receiver.tp_ranks.begin(), receiver.tp_ranks.end());
  }
}
Result<sync::PolicyCommand> Decode(const v1::PolicyCommand& in) {
  REFIT_ASSIGN_OR_RETURN(const sync::PolicyCommandKind kind,
                         DecodeKind(in.kind(), sync::PolicyCommandKind::kRelease, "policy command"));
  sync::PolicyCommand command{.stamp = Decode(in.stamp()),
                              .kind = kind,
                              .budget = Duration(in.budget_ns()),
                              .source = in.source(),
                              .receivers = {}};
  for (const v1::Receiver& receiver : in.receivers()) {
    command.receivers.push_back(
        {SlotIndex(receiver.slot()), DecodeId<Incarnation>(receiver.incarnation()), Ranks(receiver)});
  }
  return command;
}

void Encode(const sync::PolicyReply& reply, v1::PolicyReply* out) {
  Encode(reply.stamp, out->mutable_stamp());
  out->set_kind(EncodeKind(reply.kind));
  Encode(reply.status, out->mutable_status());
  if (reply.manifest != nullptr) {
    Encode(*reply.manifest, out->mutable_manifest());
  }
  Encode(reply.digest, out->mutable_digest());
  Encode(reply.totals, out->mutable_totals());
  out->set_highest_term(reply.highest_term.value());
}
Result<sync::PolicyReply> Decode(const v1::PolicyReply& in) {
  REFIT_ASSIGN_OR_RETURN(const sync::ReplyKind kind, DecodeKind(in.kind(), sync::ReplyKind::kStale, "policy reply"));
  sync::PolicyReply reply{.stamp = Decode(in.stamp()),
                          .kind = kind,
                          .status = Decode(in.status()),
                          .manifest = nullptr,
                          .digest = DecodeId<Digest>(in.digest()),
                          .totals = Decode(in.totals()),
                          .highest_term = Term(in.highest_term())};
  if (in.has_manifest()) {
    REFIT_ASSIGN_OR_RETURN(reply.manifest, Decode(in.manifest()));
  }
  return reply;
}

void Encode(const OpenStream& open, v1::OpenStream* out) {
  Encode(open.stamp, out->mutable_stamp());
  out->set_slot(open.slot.value());
  Encode(open.policy_incarnation, out->mutable_policy_incarnation());
  out->mutable_tp_ranks()->Assign(open.tp_ranks.begin(), open.tp_ranks.end());
  for (const Offer& offer : open.offers) {
    v1::Offer* wire = out->add_offers();
    wire->set_transport(offer.transport);
    wire->set_pieces(offer.unit == stream::PackUnit::kPiece);
    wire->set_bytes(offer.bytes);
    wire->set_gpu_digests(offer.digests == DigestKind::kGpuHash);
  }
  out->set_budget_ns(open.budget.count());
  out->set_patience_ns(open.patience.count());
  out->set_protocol(open.protocol);
  out->set_prove(open.purpose == StreamPurpose::kProve);
}
Result<OpenStream> Decode(const v1::OpenStream& in) {
  std::vector<Offer> offers;
  for (const v1::Offer& wire : in.offers()) {
    if (wire.bytes() == 0) {
      return InvalidArgument(StrCat("stream of slot ", in.slot(), " offers buckets of 0 bytes"));
    }
    offers.push_back({wire.transport(), wire.pieces() ? stream::PackUnit::kPiece : stream::PackUnit::kLoad,
                      wire.bytes(), KindOf(wire.gpu_digests())});
  }
  if (offers.empty() || in.tp_ranks_size() == 0) {
    return InvalidArgument(StrCat("stream of slot ", in.slot(), " names no ranks or offers no transport"));
  }
  return OpenStream{.stamp = Decode(in.stamp()),
                    .slot = SlotIndex(in.slot()),
                    .policy_incarnation = DecodeId<Incarnation>(in.policy_incarnation()),
                    .tp_ranks = Ranks(in),
                    .offers = std::move(offers),
                    .budget = Duration(in.budget_ns()),
                    .patience = Duration(in.patience_ns()),
                    .purpose = in.prove() ? StreamPurpose::kProve : StreamPurpose::kSend,
                    .protocol = in.protocol()};
}

void Encode(const SenderMessage& message, v1::FromSender* out) {
  if (const auto* opened = std::get_if<StreamOpened>(&message)) {
    v1::StreamOpened* wire = out->mutable_opened();
    wire->set_attempt(opened->attempt.packed());
    wire->set_transport_address(opened->transport_address);
    wire->set_offer(opened->offer);
    wire->set_gpu_digests(opened->digests == DigestKind::kGpuHash);
    wire->set_slot_bytes(opened->slot_bytes);
    wire->set_total_bytes(opened->total_bytes);
    Encode(opened->sender, wire->mutable_sender());
    for (const std::string& slot : opened->slots) {
      wire->add_slots(slot);
    }
  } else if (const auto* announced = std::get_if<LoadAnnouncement>(&message)) {
    v1::Announcement* wire = out->mutable_announcement();
    wire->set_attempt(announced->attempt.packed());
    Encode(announced->incarnation, wire->mutable_incarnation());
    wire->set_slot_index(announced->slot_index);
    Encode(announced->bucket, wire);
    Encode(announced->digest, wire->mutable_digest());
  } else if (const auto* failed = std::get_if<StreamFailed>(&message)) {
    out->mutable_failed()->set_attempt(failed->attempt.packed());
    Encode(failed->status, out->mutable_failed()->mutable_status());
  }
}
Result<SenderMessage> Decode(const v1::FromSender& in) {
  if (in.has_opened()) {
    const v1::StreamOpened& wire = in.opened();
    return SenderMessage(StreamOpened{.attempt = AttemptId::FromPacked(wire.attempt()),
                                      .offer = wire.offer(),
                                      .digests = KindOf(wire.gpu_digests()),
                                      .transport_address = wire.transport_address(),
                                      .slots = {wire.slots().begin(), wire.slots().end()},
                                      .slot_bytes = wire.slot_bytes(),
                                      .total_bytes = wire.total_bytes(),
                                      .sender = Decode(wire.sender())});
  }
  if (in.has_announcement()) {
    const v1::Announcement& wire = in.announcement();
    REFIT_ASSIGN_OR_RETURN(stream::Bucket bucket, DecodeBucket(wire));
    return SenderMessage(LoadAnnouncement{AttemptId::FromPacked(wire.attempt()),
                                          DecodeId<Incarnation>(wire.incarnation()), wire.slot_index(),
                                          std::move(bucket), DecodeId<Digest>(wire.digest())});
  }
  if (in.has_failed()) {
    Status status = Decode(in.failed().status());
    if (status.ok()) {
      status = Internal("sender failed without saying why");
    }
    return SenderMessage(StreamFailed{AttemptId::FromPacked(in.failed().attempt()), std::move(status)});
  }
  return InvalidArgument("empty message on a load stream", "run one version of refit everywhere");
}

std::uint32_t EncodeHashKind(ParameterHashKind kind) { return EncodeKind(kind); }
Result<ParameterHashKind> DecodeHashKind(std::uint32_t kind) {
  return DecodeKind(kind, ParameterHashKind::kGpu, "parameter hash");
}

void Encode(const weights::RankHashes& hashes, v1::RankHashes* out) {
  out->set_rank(hashes.rank.value());
  for (const auto& [name, hash] : hashes.hashes) {
    (*out->mutable_hashes())[name] = hash;
  }
}
weights::RankHashes Decode(const v1::RankHashes& in) {
  weights::RankHashes hashes{TpRank(in.rank()), {}};
  for (const auto& [name, hash] : in.hashes()) {
    hashes.hashes.emplace(name, hash);
  }
  return hashes;
}

}  // namespace refit::rpc
