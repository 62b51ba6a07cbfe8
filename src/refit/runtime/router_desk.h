// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Where the controller's calls to its router are carried out, one at a time and never on the controller's loop. Each is
// answered, however it ends.

#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "refit/base/ids.h"
#include "refit/base/status.h"
#include "refit/base/time.h"
#include "refit/control/controller.h"
#include "refit/exec/lane.h"
#include "refit/exec/watched.h"
#include "refit/router/router_client.h"
#include "refit/router/router_command.h"
#include "refit/rpc/report.h"
#include "refit/runtime/router_process.h"

namespace refit::runtime {

enum class RouterOwner : std::uint8_t { kController, kSomebodyElse };

struct RouterOptions {
  RouterOwner owner = RouterOwner::kController;    // else it runs already
  router::RouterCommand command{};                 // where it listens, and how ours is started
  std::string log_path{};                          // of the started one
  Duration silence = std::chrono::seconds(10);     // without an answer, before the started one is started again
  std::string api_key{};                           // of the router; empty: none
  std::map<SlotIndex, std::string> worker_keys{};  // that engines want of whoever generates with them
};

// Thread: any.
class RouterDesk {
 public:
  struct Fleet {
    std::function<std::string(SlotIndex, Incarnation)> find_url;  // of that life; empty: nobody knows
    std::function<void(control::ControllerEvent)> post;
  };
  // port_list: of the run, where the file names no port.
  static Result<std::unique_ptr<RouterDesk>> Open(RouterOptions options, const std::string& port_list, Fleet fleet);

  void Carry(const control::RouterCall& effect);  // answered by RouterAnswered
  rpc::RouterReport report() const;
  const std::string& url() const { return client_.url(); }

 private:
  RouterDesk(RouterOptions options, const std::string& port_list, Fleet fleet);

  control::RouterAnswered CarryOut(const control::RouterCall& call, Instant deadline);
  void Note(const Status& listed, std::size_t entries, int pid);
  Status List(Duration deadline, std::vector<fleet::RouterEntry>& entries);
  Status Add(const fleet::RouterAdd& add, Duration deadline);

  const RouterOptions options_;
  const Fleet fleet_;
  const std::unique_ptr<RouterProcess> process_;  // null: the router is somebody else's
  const router::RouterClient client_;
  Instant heard_;                                    // the lane's: when it answered last, or was started
  mutable exec::Watched<rpc::RouterReport> report_;  // as its last list left it
  exec::Lane lane_;
};

}  // namespace refit::runtime
