// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// A real etcd of one member, on ports of its own.

#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/plain_process.h"
#include "tests/support/temp_folder.h"

namespace refit::test {

inline constexpr char kEtcd[] = "/usr/bin/etcd";
inline bool HasEtcd() { return std::filesystem::exists(kEtcd); }
inline constexpr char kNoEtcd[] = "no etcd on this machine: install etcd-server";

inline int FreePort() {
  const int file = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  bind(file, reinterpret_cast<sockaddr*>(&address), size);
  getsockname(file, reinterpret_cast<sockaddr*>(&address), &size);
  close(file);
  return ntohs(address.sin_port);
}

class EtcdProcess {
 public:
  EtcdProcess() : endpoint_(StrCat("127.0.0.1:", FreePort())), peers_(StrCat("http://127.0.0.1:", FreePort())) {
    Start();
  }

  const std::string& endpoint() const { return endpoint_; }
  std::string place() const { return StrCat("etcd://", endpoint_, "/refit/test"); }
  int pid() const { return process_->pid(); }
  void Freeze() const { kill(pid(), SIGSTOP); }
  void Thaw() const { kill(pid(), SIGCONT); }
  void Kill() { process_.reset(); }
  // Whoever calls it waits until it answers.
  void Start() {
    const std::string clients = StrCat("http://", endpoint_);
    process_ = std::make_unique<PlainProcess>(
        std::vector<std::string>{kEtcd, "--data-dir", folder_ / "data", "--name", "it", "--listen-client-urls", clients,
                                 "--advertise-client-urls", clients, "--listen-peer-urls", peers_,
                                 "--initial-advertise-peer-urls", peers_, "--initial-cluster", StrCat("it=", peers_)},
        folder_ / "log");
  }

 private:
  const TempFolder folder_;
  const std::string endpoint_;
  const std::string peers_;
  std::unique_ptr<PlainProcess> process_;
};

}  // namespace refit::test
