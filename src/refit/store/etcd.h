// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// etcd's key-value interface as Status, over gRPC. Every read is linearizable. Private to store/.

#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "refit/base/status.h"
#include "refit/base/time.h"

namespace refit::store {

struct EtcdPlace {
  std::vector<std::string> endpoints;  // host:port; of one cluster
  std::string prefix;                  // of every key, "/refit/smol"
};
bool IsEtcdPlace(std::string_view place);  // "etcd://…"
// etcd://HOST:PORT[,HOST:PORT…]/PREFIX
Result<EtcdPlace> ParseEtcdPlace(const std::string& place);

struct EtcdTransaction {
  struct Condition {
    std::string key;
    std::optional<std::string> value;  // nothing: the key is not there
  };
  std::vector<Condition> only_if{};
  std::vector<std::pair<std::string, std::string>> writes{};
  std::vector<std::string> otherwise_read{};
};
struct EtcdAnswer {
  bool done = false;
  std::map<std::string, std::string> read{};  // of what was to be read otherwise, where it is there
};

// Thread: one at a time. A call goes to one endpoint after the other until one answers or the deadline has come, so
// that a transaction may have been carried out more than once: its conditions must not hold the second time, or its
// writes be the same.
class Etcd {
 public:
  explicit Etcd(std::vector<std::string> endpoints);
  ~Etcd();
  Etcd(const Etcd&) = delete;
  Etcd& operator=(const Etcd&) = delete;

  Result<EtcdAnswer> Transact(const EtcdTransaction& transaction, Instant deadline);
  // Keys and values of all keys that begin so, in order, as they were at one moment.
  Result<std::vector<std::pair<std::string, std::string>>> ReadAll(const std::string& begin, Instant deadline);
  Result<std::string> ReadLastKey(const std::string& begin, Instant deadline);  // empty: there is none

 private:
  struct Endpoint;
  template <typename Call>
  Status Try(Instant deadline, Call call);

  std::vector<Endpoint> endpoints_;
  std::size_t current_ = 0;
};

}  // namespace refit::store
