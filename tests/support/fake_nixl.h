// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// What a test tells the fake NIXL library, and what it asks it afterwards. The library is loaded as the real one is;
// the test finds this object in it by the symbol "fake_nixl".

#pragma once

#include <map>
#include <string>
#include <vector>

namespace refit::test {

struct FakeNixl {
  // What the calls answer. A status of 0 is success, as in NIXL.
  bool is_stub = false;
  int create_backend = 0;
  int register_mem = 0;
  int load = 0;
  int make_connection = 0;
  int create_request = 0;
  int post = 0;
  std::string loaded_name;    // of the agent whose metadata was loaded; empty: as it says
  std::vector<int> statuses;  // of every request, one per ask; then 0. A read moves its bytes with that 0

  // What happened.
  std::vector<std::string> calls;                 // load, invalidate, release, deregister: in this order
  std::map<std::string, std::string> params;      // of the last back end
  int agents = 0;                                 // alive
  int registered = 0;                             // times
  int rounds = 0;                                 // of get_notifs
  bool has_touched_a_gone_request = false;        // after not_found, or after its release
  bool has_released_a_running_request = false;    // nixl #2067
  bool has_deregistered_under_a_request = false;  // memory of a request that runs

  int Count(const std::string& call) const {
    int count = 0;
    for (const std::string& one : calls) {
      count += one == call ? 1 : 0;
    }
    return count;
  }
};

}  // namespace refit::test
