// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Tests only: a server that answers every request with exactly the bytes it was told, broken ones included.
// One connection at a time, one request on each.

#pragma once

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "refit/base/str.h"

namespace refit::http {

struct SeenRequest {
  std::string method;
  std::string path;
  std::string head;  // request line and headers
  std::string body;
};

struct RawReply {
  enum class Then { kClose, kHang, kDrip };  // drip: one byte at a time, the last one for ever
  std::string bytes;
  Then then = Then::kClose;
};

inline RawReply Reply(int status, std::string_view body) {
  return {StrCat("HTTP/1.1 ", status, " Whatever\r\nContent-Length: ", body.size(), "\r\n\r\n", body)};
}

class ServerDouble {
 public:
  ServerDouble() : listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    auto* const generic = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(listener_, generic, length), 0);
    EXPECT_EQ(listen(listener_, 16), 0);
    EXPECT_EQ(getsockname(listener_, generic, &length), 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { Serve(); });
  }
  ~ServerDouble() {
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(listener_);
  }
  ServerDouble(const ServerDouble&) = delete;
  ServerDouble& operator=(const ServerDouble&) = delete;

  std::string url() const { return StrCat("http://127.0.0.1:", port_); }

  // `path` without the query; "*" for every path that has no reply of its own.
  void Answer(const std::string& path, RawReply reply) {
    const std::lock_guard lock(mutex_);
    replies_[path] = std::move(reply);
  }
  // The same, for requests whose head holds these words.
  void Answer(const std::string& path, const std::string& words, RawReply reply) {
    const std::lock_guard lock(mutex_);
    replies_for_[{path, words}] = std::move(reply);
  }
  std::vector<SeenRequest> seen() {
    const std::lock_guard lock(mutex_);
    return seen_;
  }
  SeenRequest last() {
    const std::lock_guard lock(mutex_);
    return seen_.empty() ? SeenRequest{} : seen_.back();
  }
  int connections() const { return connections_; }

 private:
  void Serve() {
    for (int fd = 0; (fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC)) >= 0; close(fd)) {
      ++connections_;
      SeenRequest request;
      if (!Read(fd, request)) {
        continue;
      }
      RawReply reply;
      {
        const std::lock_guard lock(mutex_);
        seen_.push_back(request);
        reply = ReplyTo(request.path.substr(0, request.path.find('?')), request.head);
      }
      Write(fd, reply);
    }
  }

  RawReply ReplyTo(const std::string& path, const std::string& head) {
    for (const auto& [key, reply] : replies_for_) {
      if (key.first == path && head.find(key.second) != std::string::npos) {
        return reply;
      }
    }
    const auto found = replies_.find(path);
    return found != replies_.end() ? found->second : replies_["*"];
  }

  static bool Read(int fd, SeenRequest& request) {
    std::string text;
    std::size_t head = std::string::npos;
    std::size_t wanted = std::string::npos;
    char chunk[65536];
    while (text.size() < wanted) {
      const ssize_t got = recv(fd, chunk, sizeof chunk, 0);
      if (got <= 0) {
        return false;
      }
      text.append(chunk, static_cast<std::size_t>(got));
      if (head == std::string::npos && (head = text.find("\r\n\r\n")) != std::string::npos) {
        const std::size_t length = text.find("Content-Length: ");
        wanted = head + 4 + (length < head ? std::stoul(text.substr(length + 16)) : 0);
      }
    }
    request.head = text.substr(0, head);
    request.body = text.substr(head + 4);
    const std::size_t space = text.find(' ');
    request.method = text.substr(0, space);
    request.path = text.substr(space + 1, text.find(' ', space + 1) - space - 1);
    return true;
  }

  // Waits until the client has closed, at most `milliseconds` (-1: as long as it takes).
  static bool ClientClosed(int fd, int milliseconds) {
    pollfd waiting{.fd = fd, .events = POLLRDHUP, .revents = 0};
    return poll(&waiting, 1, milliseconds) != 0;
  }

  static void Write(int fd, const RawReply& reply) {
    if (reply.then == RawReply::Then::kDrip) {
      for (std::size_t i = 0; !ClientClosed(fd, 5); ++i) {
        send(fd, &reply.bytes[std::min(i, reply.bytes.size() - 1)], 1, MSG_NOSIGNAL);
      }
      return;
    }
    for (std::size_t sent = 0; sent < reply.bytes.size();) {
      const ssize_t now = send(fd, reply.bytes.data() + sent, reply.bytes.size() - sent, MSG_NOSIGNAL);
      if (now <= 0) {
        return;
      }
      sent += static_cast<std::size_t>(now);
    }
    if (reply.then == RawReply::Then::kHang) {
      ClientClosed(fd, -1);
    }
  }

  const int listener_;
  int port_ = 0;
  std::atomic<int> connections_ = 0;
  std::mutex mutex_;
  std::map<std::string, RawReply> replies_;
  std::map<std::pair<std::string, std::string>, RawReply> replies_for_;
  std::vector<SeenRequest> seen_;
  std::thread thread_;
};

}  // namespace refit::http
