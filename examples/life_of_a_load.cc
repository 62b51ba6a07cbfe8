// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// One load's life in one process, in the order of src/refit/README.md: a checkpoint's tensors are planned, cut into
// loads, packed into shared memory, announced, aligned, described to an engine, installed on two ranks, and proved.
// The same parts run in refit's processes; here nothing stands between them.

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "refit/base/str.h"
#include "refit/checkpoint/random_checkpoint.h"
#include "refit/device/copy.h"
#include "refit/device/hash.h"
#include "refit/device/shared_memory.h"
#include "refit/engine/engine_payload.h"
#include "refit/engine/reference/model.h"
#include "refit/engine/sglang/payload_pickle.h"
#include "refit/exec/clock.h"
#include "refit/runtime/source.h"
#include "refit/stream/bucket_packer.h"
#include "refit/stream/name_aligner.h"
#include "refit/stream/update_group.h"
#include "refit/transport/shm/shm_transport.h"
#include "refit/weights/rank_hashes.h"

namespace refit {
namespace {

constexpr std::uint32_t kTpSize = 3;
constexpr ByteCount kLoadBytes = 64 * kKiB;

// What both sides of the example share.
struct Scene {
  std::shared_ptr<runtime::Source> source;
  std::shared_ptr<const std::vector<stream::PackedBucket>> loads;
  transport::ShmTransport transport;
  MutableBytes slot_memory;  // the policy worker's mapping of its load slot
  MutableBytes mapped;       // the agent's mapping of the same object
  std::unique_ptr<transport::Link> link;
  std::string slot_name;
  std::vector<engine::reference::RankModel> ranks;
};

// 1-3: open, plan, cut. Nothing is copied yet.
Status Open(const std::string& folder, Scene& scene) {
  REFIT_ASSIGN_OR_RETURN(const weights::ModelConfig config, checkpoint::RandomShape("tiny-llama"));
  REFIT_RETURN_IF_ERROR(checkpoint::WriteRandomCheckpoint(config, 1, folder));
  REFIT_ASSIGN_OR_RETURN(scene.source, runtime::Source::Open(folder));
  REFIT_ASSIGN_OR_RETURN(scene.loads, scene.source->Cut(stream::PackUnit::kLoad, kLoadBytes));
  std::printf("source: %zu tensors, %llu bytes, cut into %zu loads\n", scene.source->manifest()->tensor_count(),
              static_cast<unsigned long long>(scene.source->manifest()->total_size()), scene.loads->size());
  for (std::uint32_t rank = 0; rank < kTpSize; ++rank) {
    REFIT_ASSIGN_OR_RETURN(engine::reference::RankModel model,
                           engine::reference::RankModel::Make(config, {TpRank(rank), kTpSize}));
    model.FillRandom(rank);
    scene.ranks.push_back(std::move(model));
  }
  return OkStatus();
}

// 5: a load slot, reserved by the sender and mapped in place by the receiver.
Status ShareSlot(Scene& scene) {
  const ByteCount capacity = stream::LargestBucket(*scene.loads);
  REFIT_ASSIGN_OR_RETURN(scene.slot_memory,
                         scene.transport.Allocate("example", device::LoadSlot::ObjectSize(capacity)));
  device::LoadSlot(scene.slot_memory).Initialise();
  REFIT_ASSIGN_OR_RETURN(const transport::Descriptor descriptor, scene.transport.Export(scene.slot_memory));
  REFIT_ASSIGN_OR_RETURN(scene.link,
                         scene.transport.Bind(scene.transport.Address(), exec::Now() + std::chrono::seconds(1)));
  REFIT_ASSIGN_OR_RETURN(const device::Memory mapped, scene.link->MapInPlace(descriptor));
  scene.mapped = mapped.bytes;
  REFIT_ASSIGN_OR_RETURN(const transport::ShmObject object, transport::ParseShmDescriptor(descriptor));
  scene.slot_name = object.name;
  return OkStatus();
}

// 4: the first memory pass, copy and hash in one. 6: what would be announced.
Result<stream::Bucket> Pack(Scene& scene, const stream::PackedBucket& load, DigestHasher& hasher) {
  std::vector<Digest> digests;
  REFIT_RETURN_IF_ERROR(device::RunCopies(load.copies, scene.source->tensors(),
                                          device::LoadSlot(scene.slot_memory).data().subspan(0, load.bucket.used),
                                          load.bucket.entries.size(), &hasher, digests));
  std::printf("load %llu: %zu tensors, %llu bytes packed, digest %s\n",
              static_cast<unsigned long long>(load.bucket.seq.value()), load.bucket.entries.size(),
              static_cast<unsigned long long>(load.bucket.used),
              ToHex(stream::BucketDigest(load.bucket, digests, hasher)).c_str());
  return load.bucket;
}

// 8-10: align (one stream feeds all ranks here), and describe the load to the engine.
Result<engine::UpdateCall> Describe(const Scene& scene, const stream::Bucket& bucket, stream::NameAligner& aligner) {
  REFIT_RETURN_IF_ERROR(stream::CheckBucket(bucket, scene.mapped.size() - device::kLoadHeaderSize));
  stream::Batch batch;
  for (const stream::Entry& entry : bucket.entries) {
    batch.push_back({entry.spec, static_cast<std::size_t>(entry.offset)});
  }
  for (const std::size_t wanted : aligner.Wanted()) {
    REFIT_RETURN_IF_ERROR(aligner.Accept(wanted, batch));
  }
  REFIT_ASSIGN_OR_RETURN(const std::optional<stream::AlignedGroup> group, aligner.Next());
  REFIT_ASSIGN_OR_RETURN(const auto calls, stream::SplitIntoCalls(*group, stream::DTypeSplit::kMixed));
  engine::UpdateCall call;
  engine::RankPayload payload{engine::HostLoad{scene.slot_name, bucket.used}, {}};
  for (const stream::BatchTensor& tensor : calls[0][0]) {
    payload.tensors.push_back({tensor.spec, static_cast<ByteCount>(tensor.location)});
  }
  call.ranks.assign(kTpSize, payload);
  std::printf("  update: %u payloads, each a pickle of %zu bytes that names %s\n", kTpSize,
              engine::sglang::PicklePayload(payload).size(), scene.slot_name.c_str());
  return call;
}

// 11-12: the second memory pass: each rank slices and fuses what it needs, then lets go.
Status Install(Scene& scene, const engine::UpdateCall& call) {
  device::LoadSlot slot(scene.mapped);
  slot.AddReaders(static_cast<std::int32_t>(call.ranks.size()));
  for (std::size_t rank = 0; rank < call.ranks.size(); ++rank) {
    for (const engine::PayloadTensor& tensor : call.ranks[rank].tensors) {
      REFIT_ASSIGN_OR_RETURN(const ByteCount size, weights::SizeOf(tensor.spec));
      static_cast<void>(scene.ranks[rank].Load(tensor.spec, slot.data().subspan(tensor.offset, size)));
    }
    slot.AddReaders(-1);
  }
  return slot.free() ? OkStatus() : Internal(StrCat("the slot's count is ", slot.count()));
}

// 16: what each rank must hold, computed from the source, against what it holds.
Status Prove(const Scene& scene) {
  REFIT_ASSIGN_OR_RETURN(const std::vector<weights::RankHashes> expected,
                         scene.source->ExpectedHashes({.tp_size = kTpSize}));
  std::vector<weights::RankHashes> held;
  std::size_t parameters = 0;
  for (std::uint32_t rank = 0; rank < kTpSize; ++rank) {
    held.push_back({TpRank(rank), scene.ranks[rank].Checksums()});
    parameters += held.back().hashes.size();
  }
  const auto differences = weights::CompareRankHashes(expected, held);
  std::printf("verified: %u ranks, %zu parameters, %zu differences\n", kTpSize, parameters, differences.size());
  return differences.empty() ? OkStatus() : DataLoss("a rank holds other bytes than were published");
}

Status Run(const std::string& folder) {
  Scene scene;
  REFIT_RETURN_IF_ERROR(Open(folder, scene));
  REFIT_RETURN_IF_ERROR(ShareSlot(scene));
  const auto hasher = device::MakeDigestHasher();
  stream::NameAligner aligner(1);
  for (const stream::PackedBucket& load : *scene.loads) {
    REFIT_ASSIGN_OR_RETURN(const stream::Bucket bucket, Pack(scene, load, *hasher));
    REFIT_ASSIGN_OR_RETURN(const engine::UpdateCall call, Describe(scene, bucket, aligner));
    REFIT_RETURN_IF_ERROR(Install(scene, call));
  }
  return Prove(scene);
}

}  // namespace
}  // namespace refit

int main() {
  const auto folder = std::filesystem::temp_directory_path() / refit::StrCat("refit-example-", getpid());
  const refit::Status status = refit::Run(folder.string());
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  if (!status.ok()) {
    std::fprintf(stderr, "life_of_a_load: %s\n", status.ToString().c_str());
    return EXIT_FAILURE;
  }
  return EXIT_SUCCESS;
}
