// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The proof of what each engine serves (settled D8): hashes that must be there, computed from the published tensors by
// a policy worker, against the hashes that each engine computes of what it holds.

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "refit/base/ids.h"
#include "refit/base/status.h"
#include "refit/base/time.h"
#include "refit/control/controller.h"
#include "refit/exec/watched.h"
#include "refit/rpc/agent_rpc.h"
#include "refit/rpc/policy_rpc.h"
#include "refit/rpc/report.h"
#include "refit/weights/rank_hashes.h"

namespace refit::runtime {

struct VerifyTarget {
  rpc::SlotReport slot;
  ParameterHashKind hash_kind = ParameterHashKind::kSha256Prefix;
  std::shared_ptr<rpc::AgentClient> agent;  // null: nobody registered
};

// Of the engines that were looked at: what differs, in one digest each. For the controller's machine.
control::HashesCompared ComparedIn(const rpc::VerifyReport& report, const std::vector<VerifyTarget>& targets);

// Thread: any. Keeps (version, hashing) -> hashes of the versions published by this controller.
class Verifier {
 public:
  // Where a version that was just published came from: its hashes can be asked for later. Those before the newest two
  // are forgotten.
  void Remember(WeightVersion version, const std::string& source);
  // Computes and keeps the hashes of such a version. A failure leaves it unproven, and is logged.
  void Learn(WeightVersion version, const std::set<weights::Hashing>& hashings,
             const std::shared_ptr<rpc::PolicyClient>& policy, Duration deadline);

  // model: compare with that checkpoint instead. Hashes that are not known are computed, where the source of the
  // version is.
  rpc::VerifyReport Verify(WeightVersion committed, const std::string& model, const std::vector<VerifyTarget>& targets,
                           const std::shared_ptr<rpc::PolicyClient>& policy, Duration budget);

 private:
  using Hashes = std::vector<weights::RankHashes>;
  struct Known {
    std::map<std::pair<WeightVersion, weights::Hashing>, Hashes> hashes;
    std::map<WeightVersion, std::string> sources;
  };
  Result<Hashes> Expected(WeightVersion version, const std::string& model, weights::Hashing hashing,
                          const std::shared_ptr<rpc::PolicyClient>& policy, Instant deadline);

  exec::Watched<Known> known_;
};

}  // namespace refit::runtime
