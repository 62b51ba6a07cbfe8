// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Who has registered with this controller in one role, and by what they are reached.

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "refit/base/time.h"
#include "refit/exec/watched.h"

namespace refit::runtime {

// What a client is connected to: an agent outlives its engines, a policy worker is one life.
enum class ClientOf : std::uint8_t { kProcess, kLife };

// Thread: any.
template <typename Key, typename Registration, typename Client>
class PeerTable {
 public:
  struct Peer {
    bool reached = false;  // since it registered; else it is heard anew when it does so again
    Registration registration;
    std::shared_ptr<Client> client;  // shared with rpc threads that ask it
  };
  using Peers = std::map<Key, Peer>;

  explicit PeerTable(ClientOf client_of) : client_of_(client_of) {}

  // False: it says once more what is known.
  bool Join(Key key, const Registration& registration) {
    bool known = false;
    const bool connected = peers_.With([&](Peers& peers) {
      Peer& peer = peers[key];
      const bool same_process = peer.client != nullptr && peer.registration.address == registration.address;
      const bool same_life = same_process && peer.registration.incarnation == registration.incarnation;
      known = same_life && peer.reached;
      // Whoever was silent for a while keeps its client: calls to it may be under way again.
      const bool keeps = same_life || (same_process && peer.reached && client_of_ == ClientOf::kProcess);
      peer.reached = peer.reached || same_life;
      peer.registration = registration;
      return keeps;
    });
    if (!connected) {
      std::shared_ptr<Client> client = Client::Connect(registration.address);
      peers_.With([&](Peers& peers) {
        std::swap(peers[key].client, client);
        peers[key].reached = true;
      });
      client.reset();  // outside the lock: it waits for its calls
    }
    return !known;
  }
  std::shared_ptr<Client> Find(Key key) const {  // null: nobody registered
    return peers_.With([key](const Peers& peers) {
      const auto found = peers.find(key);
      return found == peers.end() ? nullptr : found->second.client;
    });
  }
  void OnSilence(Key key) {
    peers_.With([key](Peers& peers) { peers[key].reached = false; });
  }
  Peers All() const {
    return peers_.With([](const Peers& peers) { return peers; });
  }
  template <typename Act>
  auto With(Act act) {
    return peers_.With(act);
  }

 private:
  const ClientOf client_of_;
  mutable exec::Watched<Peers> peers_;
};

}  // namespace refit::runtime
