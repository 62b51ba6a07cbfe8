// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/runtime/verifier.h"

#include <cstddef>
#include <map>
#include <utility>

#include "refit/base/str.h"
#include "refit/device/hash.h"
#include "refit/exec/clock.h"
#include "refit/observe/log.h"

namespace refit::runtime {
namespace {

constexpr std::size_t kVersionsKept = 2;

}  // namespace

void Verifier::Remember(WeightVersion version, const std::string& source) {
  known_.With([&](Known& known) {
    known.sources[version] = source;
    // Whoever verifies while the next version is published still finds what he compares with.
    while (known.sources.size() > kVersionsKept) {
      known.sources.erase(known.sources.begin());
    }
    const WeightVersion oldest = known.sources.begin()->first;
    std::erase_if(known.hashes, [oldest](const auto& entry) { return entry.first.first < oldest; });
  });
}

void Verifier::Learn(WeightVersion version, const std::set<weights::Hashing>& hashings,
                     const std::shared_ptr<rpc::PolicyClient>& policy, Duration deadline) {
  for (const weights::Hashing hashing : hashings) {
    const auto hashes = Expected(version, "", hashing, policy, exec::Now() + deadline);
    if (!hashes.has_value()) {
      observe::LogWarning(StrCat("version ", version, " stays unproven: ", hashes.status().ToString()));
    }
  }
}

Result<Verifier::Hashes> Verifier::Expected(WeightVersion version, const std::string& model, weights::Hashing hashing,
                                            const std::shared_ptr<rpc::PolicyClient>& policy, Instant deadline) {
  Hashes hashes;
  std::string source = model;
  const bool ready = known_.With([&](Known& known) {
    const auto found = known.hashes.find({version, hashing});
    if (model.empty() && found != known.hashes.end()) {
      hashes = found->second;
      return true;
    }
    if (const auto at = known.sources.find(version); model.empty() && at != known.sources.end()) {
      source = at->second;
    }
    return false;
  });
  if (ready) {
    return hashes;
  }
  if (policy == nullptr) {
    return Unavailable("no policy worker can compute what must be there", "start one, or give --model DIR");
  }
  REFIT_ASSIGN_OR_RETURN(hashes, policy->ExpectedHashes(source, hashing, deadline - exec::Now()));
  if (model.empty()) {
    known_.With([&](Known& known) { known.hashes[{version, hashing}] = hashes; });
  }
  return hashes;
}

rpc::VerifyReport Verifier::Verify(WeightVersion committed, const std::string& model,
                                   const std::vector<VerifyTarget>& targets,
                                   const std::shared_ptr<rpc::PolicyClient>& policy, Duration budget) {
  const Instant deadline = exec::Now() + budget;
  rpc::VerifyReport report;
  report.version = committed;
  if (committed == WeightVersion(0) && model.empty()) {
    report.unproven = true;
    report.status = FailedPrecondition("no version is published yet", "run `refit sync`, or give --model DIR");
    return report;
  }
  report.verified = true;
  for (const VerifyTarget& target : targets) {
    rpc::EngineVerification engine{target.slot.slot, OkStatus(), 0, 0, {}};
    const std::string whom = StrCat("engine ", target.slot.slot);
    if (target.agent == nullptr || target.slot.incarnation.is_zero()) {
      engine.status = Unavailable(StrCat(whom, " is not registered"), "start its agent");
    } else if (!target.slot.serving && model.empty()) {
      engine.status = FailedPrecondition(
          StrCat(whom, " does not serve version ", committed, ", it holds ", ToString(target.slot.residue)),
          "run `refit sync`");
    } else {
      const auto expected = Expected(committed, model, {target.slot.tp_size, target.hash_kind}, policy, deadline);
      if (!expected.has_value()) {
        report.unproven = true;
        engine.status = expected.status();
      } else if (const auto held = target.agent->Checksums(target.slot.incarnation, deadline - exec::Now());
                 !held.has_value()) {
        engine.status = held.status();
      } else {
        engine.rank_count = static_cast<std::uint32_t>(held->size());
        for (const weights::RankHashes& rank : *held) {
          engine.parameter_count += rank.hashes.size();
        }
        engine.differences = weights::CompareRankHashes(*expected, *held);
      }
    }
    report.verified = report.verified && engine.status.ok() && engine.differences.empty();
    report.engines.push_back(std::move(engine));
  }
  return report;
}

control::HashesCompared ComparedIn(const rpc::VerifyReport& report, const std::vector<VerifyTarget>& targets) {
  control::HashesCompared compared{report.version, {}};
  for (std::size_t i = 0; i < report.engines.size(); ++i) {
    const rpc::EngineVerification& engine = report.engines[i];
    if (!engine.status.ok() || engine.rank_count == 0) {
      continue;  // nothing is known of it
    }
    std::string text;
    for (const weights::HashDifference& difference : engine.differences) {
      text += StrCat(difference.rank, ' ', difference.parameter, ' ', difference.actual, '\n');
    }
    std::optional<Digest> digest;
    if (!text.empty()) {
      const auto hasher = device::MakeDigestHasher();
      hasher->Update(AsBytes(text));
      digest = hasher->Finish();
    }
    compared.engines.push_back({engine.slot, targets[i].slot.incarnation, digest});
  }
  return compared;
}

}  // namespace refit::runtime
