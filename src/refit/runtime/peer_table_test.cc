// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/runtime/peer_table.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "refit/base/ids.h"

namespace refit::runtime {
namespace {

struct Registration {
  Incarnation incarnation;
  std::string address;
};

struct Client {
  static std::shared_ptr<Client> Connect(const std::string& address) { return std::make_shared<Client>(address); }
  explicit Client(std::string where) : address(std::move(where)) {}
  std::string address;
};

using Table = PeerTable<PolicyRank, Registration, Client>;

constexpr PolicyRank kRank(3);
constexpr Incarnation kLife{{1, 1}};
constexpr Incarnation kNextLife{{1, 2}};

TEST(PeerTable, WhoSaysOnceMoreThatItIsThereIsKnown) {
  Table table(ClientOf::kLife);
  EXPECT_EQ(table.Find(kRank), nullptr);
  EXPECT_TRUE(table.Join(kRank, {kLife, "here:1"}));
  EXPECT_FALSE(table.Join(kRank, {kLife, "here:1"}));
  EXPECT_EQ(table.Find(kRank)->address, "here:1");
}

// Calls to it may be under way again: a new client would end them.
TEST(PeerTable, WhoWasSilentForAWhileIsHeardAnewAndKeepsItsClient) {
  for (const ClientOf client_of : {ClientOf::kLife, ClientOf::kProcess}) {
    Table table(client_of);
    table.Join(kRank, {kLife, "here:1"});
    const auto client = table.Find(kRank);
    table.OnSilence(kRank);
    EXPECT_TRUE(table.Join(kRank, {kLife, "here:1"}));
    EXPECT_EQ(table.Find(kRank), client);
    EXPECT_FALSE(table.Join(kRank, {kLife, "here:1"}));
  }
}

TEST(PeerTable, ANewLifeHasAClientOfItsOwnUnlessItsProcessIsTheSame) {
  for (const ClientOf client_of : {ClientOf::kLife, ClientOf::kProcess}) {
    Table table(client_of);
    table.Join(kRank, {kLife, "here:1"});
    const auto client = table.Find(kRank);
    EXPECT_TRUE(table.Join(kRank, {kNextLife, "here:1"}));
    EXPECT_EQ(table.Find(kRank) == client, client_of == ClientOf::kProcess);
    EXPECT_TRUE(table.Join(kRank, {kNextLife, "there:2"}));
    EXPECT_EQ(table.Find(kRank)->address, "there:2");
  }
}

}  // namespace
}  // namespace refit::runtime
