// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/store/store.h"

#include <chrono>
#include <span>
#include <utility>

#include "refit/base/str.h"
#include "refit/device/hash.h"
#include "refit/store/etcd_store.h"
#include "refit/store/sqlite_store.h"

namespace refit::store {
namespace {

template <typename Kind>
Result<std::unique_ptr<Store>> AsStore(Result<std::unique_ptr<Kind>> store) {
  if (!store.has_value()) {
    return store.status();
  }
  return std::unique_ptr<Store>(*std::move(store));
}

}  // namespace

Result<std::unique_ptr<Store>> Store::Open(const std::string& place) {
  return IsEtcdPlace(place) ? AsStore(EtcdStore::Open(place)) : AsStore(SqliteStore::Open(place));
}

Result<std::unique_ptr<Store>> Store::OpenExisting(const std::string& place) {
  return IsEtcdPlace(place) ? AsStore(EtcdStore::OpenExisting(place)) : AsStore(SqliteStore::OpenExisting(place));
}

Result<std::vector<std::string>> Store::ReadRecords() {
  REFIT_ASSIGN_OR_RETURN(std::vector<Row> rows, ReadRows());
  std::vector<std::string> payloads;
  for (Row& row : rows) {
    payloads.push_back(std::move(row.payload));
  }
  return payloads;
}

std::uint64_t UnixMilliseconds() {
  const auto since_epoch = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(since_epoch).count());
}

std::string DigestOf(std::string_view payload) {
  const auto hasher = device::MakeDigestHasher();
  hasher->Reset();
  hasher->Update(std::as_bytes(std::span(payload.data(), payload.size())));
  return ToHex(hasher->Finish());
}

Status Damaged(const std::string& place, std::string_view what) {
  return DataLoss(StrCat(place, " is corrupt: ", what), "look at the disk; then restore the file, or begin a new run");
}

Status Superseded(Term term, Term by) {
  return Aborted(StrCat("term ", term, " is superseded by term ", by), "another controller has taken over");
}

}  // namespace refit::store
