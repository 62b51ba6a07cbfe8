// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/engine/reference/server.h"

#include <httplib.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <set>
#include <string_view>
#include <thread>
#include <utility>

#include "refit/base/str.h"
#include "refit/exec/clock.h"

namespace refit::engine::reference {
namespace {

constexpr int kReadTimeoutMs = 60'000;
constexpr int kKeepAliveMs = 5'000;  // uvicorn's
constexpr Duration kHoldPoll = std::chrono::milliseconds(5);

// What becomes of an answer on its way out.
enum class Outgoing : std::uint8_t { kWhole, kNothing, kHalf, kDrip };

// One connection, for httplib to read and write. Buffers both ways, so that a call costs one read and one send, and has
// the faults that only a socket can have.
class Connection : public httplib::Stream {
 public:
  Connection(socket_t socket, ReferenceEngine& engine) : socket_(socket), engine_(engine) {}

  void Prepare() { outgoing_ = Outgoing::kWhole; }
  void set_outgoing(Outgoing outgoing) { outgoing_ = outgoing; }
  bool broken() const { return broken_; }

  bool WaitForRequest() { return begin_ < end_ || Poll(kKeepAliveMs); }

  void Flush() {
    std::string_view data = outbox_;
    if (outgoing_ == Outgoing::kNothing) {
      data = {};
      broken_ = true;
    } else if (outgoing_ == Outgoing::kHalf) {
      data = data.substr(0, data.size() / 2);
    }
    const std::size_t step = outgoing_ == Outgoing::kDrip ? 1 : data.size();
    while (!data.empty() && !broken_) {
      Send(data.substr(0, step));
      data.remove_prefix(std::min(step, data.size()));
      broken_ = broken_ || (outgoing_ == Outgoing::kDrip && !engine_.Sleep(std::chrono::seconds(1)));
    }
    broken_ = broken_ || outgoing_ == Outgoing::kHalf;
    outbox_.clear();
  }

  bool is_readable() const override { return !broken_; }
  bool is_writable() const override { return !broken_; }
  ssize_t read(char* target, size_t size) override {
    if (begin_ == end_) {
      Flush();  // "100 Continue" must not wait for the end
      if (broken_ || !Poll(kReadTimeoutMs)) {
        return -1;
      }
      const ssize_t got = recv(socket_, inbox_.data(), inbox_.size(), 0);
      if (got <= 0) {
        return got;
      }
      begin_ = 0;
      end_ = static_cast<std::size_t>(got);
    }
    const std::size_t taken = std::min(size, end_ - begin_);
    std::memcpy(target, inbox_.data() + begin_, taken);
    begin_ += taken;
    return static_cast<ssize_t>(taken);
  }
  ssize_t write(const char* data, size_t size) override {
    outbox_.append(data, size);
    return static_cast<ssize_t>(size);
  }
  void get_remote_ip_and_port(std::string& ip, int& port) const override {
    ip.clear();
    port = 0;
  }
  void get_local_ip_and_port(std::string& ip, int& port) const override { get_remote_ip_and_port(ip, port); }
  socket_t socket() const override { return socket_; }

 private:
  bool Poll(int timeout_ms) const {
    pollfd watched{socket_, POLLIN, 0};
    return poll(&watched, 1, timeout_ms) > 0;
  }
  void Send(std::string_view data) {
    while (!data.empty() && !broken_) {
      const ssize_t sent = send(socket_, data.data(), data.size(), MSG_NOSIGNAL);
      broken_ = sent <= 0;
      data.remove_prefix(broken_ ? 0 : static_cast<std::size_t>(sent));
    }
  }

  const socket_t socket_;
  ReferenceEngine& engine_;
  Outgoing outgoing_ = Outgoing::kWhole;
  bool broken_ = false;
  std::array<char, 65536> inbox_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  std::string outbox_;
};

thread_local Connection* current_connection = nullptr;

// A thread per connection: a held request must never keep others out.
class ThreadPerConnection : public httplib::TaskQueue {
 public:
  void enqueue(std::function<void()> serve) override {
    {
      const std::lock_guard lock(mutex_);
      ++live_;
    }
    std::thread([this, serve = std::move(serve)] {
      serve();
      const std::lock_guard lock(mutex_);  // notified under it: shutdown() may free us right after
      --live_;
      ended_.notify_all();
    }).detach();
  }
  void shutdown() override {
    std::unique_lock lock(mutex_);
    ended_.wait(lock, [this] { return live_ == 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable ended_;
  std::size_t live_ = 0;
};

// httplib's parser over our connections.
class Listener : public httplib::Server {
 public:
  explicit Listener(ReferenceEngine& engine) : engine_(engine) {
    new_task_queue = [] { return new ThreadPerConnection(); };
    set_tcp_nodelay(true);
    // Not httplib's SO_REUSEPORT, with which two engines could share a port unnoticed.
    set_socket_options([](socket_t socket) {
      const int on = 1;
      setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    });
  }

  // Ends every connection, for good.
  void CloseAll() {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    for (const socket_t socket : sockets_) {
      ::shutdown(socket, SHUT_RDWR);
    }
  }

 private:
  bool process_and_close_socket(socket_t socket) override {
    {
      const std::lock_guard lock(mutex_);
      sockets_.insert(socket);
      if (closing_) {
        ::shutdown(socket, SHUT_RDWR);
      }
    }
    Connection connection(socket, engine_);
    current_connection = &connection;
    bool closed = false;
    while (!closed && !connection.broken() && connection.WaitForRequest()) {
      connection.Prepare();
      bool is_request = false;  // what is none ends the connection, as uvicorn does: a router's gRPC probe waits for it
      const bool served = process_request(connection, false, closed, [&is_request](httplib::Request& request) {
        is_request = true;
        if (!request.has_header("Content-Length") && !request.has_header("Transfer-Encoding")) {
          request.set_header("Content-Length", "0");  // httplib would read to the connection's end
        }
      });
      connection.Flush();
      closed = closed || !served || !is_request;
    }
    {
      const std::lock_guard lock(mutex_);
      sockets_.erase(socket);
    }
    ::shutdown(socket, SHUT_RDWR);
    ::close(socket);
    return true;
  }

  ReferenceEngine& engine_;
  std::mutex mutex_;
  std::set<socket_t> sockets_;
  bool closing_ = false;
};

}  // namespace

struct ReferenceServer::Impl {
  Impl(ReferenceEngine& served_engine, ServerOptions server_options)
      : engine(served_engine),
        options(std::move(server_options)),
        faults(options.faults, options.fault_file),
        listener(served_engine) {}

  void Serve(const httplib::Request& request, httplib::Response& response);
  HttpReply Handle(const HttpRequest& request, std::string_view authorization, std::optional<Fault>& fault);
  HttpReply Misbehave(const Fault& fault, const Route& route, const HttpRequest& request);
  HttpReply NeverAnswer() {
    engine.Hang();
    current_connection->set_outgoing(Outgoing::kNothing);
    return {};
  }

  ReferenceEngine& engine;
  const ServerOptions options;
  FaultTable faults;
  Listener listener;
  std::uint16_t port = 0;
  std::thread thread;
};

void ReferenceServer::Impl::Serve(const httplib::Request& request, httplib::Response& response) {
  const HttpRequest call{request.method, request.path, request.body, {request.params.begin(), request.params.end()}};
  std::optional<Fault> fault;
  HttpReply reply = Handle(call, request.get_header_value("Authorization"), fault);
  if (reply.death.has_value()) {
    engine.Die(*reply.death);
  }
  if (engine.dead()) {
    reply = NeverAnswer();
  }
  response.status = reply.status;
  if (fault.has_value() && fault->action == FaultAction::kBrokenJson) {
    response.status = 200;
    reply.body.resize(reply.body.size() / 2);
  }
  response.set_content(std::move(reply.body), std::string(reply.content_type));
}

HttpReply ReferenceServer::Impl::Handle(const HttpRequest& request, std::string_view authorization,
                                        std::optional<Fault>& fault) {
  if (engine.dead()) {
    return NeverAnswer();
  }
  const Route* route = FindRoute(request.path, engine.options().family);
  const bool admitted = route != nullptr && Admits(route->methods, request.method);
  // A path without a route counts as NORMAL, and is refused before it is not found.
  const bool open = request.path.starts_with("/health") || request.path.starts_with("/metrics");
  const AuthLevel level = open ? AuthLevel::kOpen : admitted ? route->auth : AuthLevel::kNormal;
  if (!Authorized(options.keys, level, authorization)) {
    return {401, R"({"error":"Unauthorized"})"};
  }
  if (!admitted) {
    return route == nullptr ? DetailAnswer(404, "Not Found") : DetailAnswer(405, "Method Not Allowed");
  }
  // A body without the fields that its route requires is refused before the route runs: clients ask so whether it is
  // there.
  const bool asks_only =
      request.body == "{}" && (route->fault == FaultRoute::kUpdate || route->fault == FaultRoute::kLabel);
  fault = asks_only ? std::nullopt : faults.CountCall(route->fault);
  return fault.has_value() ? Misbehave(*fault, *route, request) : route->handle(engine, request);
}

HttpReply ReferenceServer::Impl::Misbehave(const Fault& fault, const Route& route, const HttpRequest& request) {
  switch (fault.action) {
    case FaultAction::kHang: return NeverAnswer();
    case FaultAction::kDie: return {.body = {}, .death = "a fault switch said so"};
    case FaultAction::kExit: std::_Exit(137);
    case FaultAction::kRefuse: return AnswerOf({ReplyKind::kRefused, "refused by a fault switch"});
    case FaultAction::kHttp500: return {500, "Internal Server Error", "text/plain"};
    case FaultAction::kEcho: return ErrorAnswer(400, std::string(static_cast<std::size_t>(fault.parameter * 1e6), 'x'));
    case FaultAction::kSlow:
      if (!engine.Sleep(FromSeconds(fault.parameter))) {
        return NeverAnswer();
      }
      break;
    case FaultAction::kHold:
      for (const Instant end = exec::Now() + FromSeconds(fault.parameter); exec::Now() < end && faults.Stands(fault);) {
        if (!engine.Sleep(kHoldPoll)) {
          return NeverAnswer();
        }
      }
      break;
    case FaultAction::kDrip: current_connection->set_outgoing(Outgoing::kDrip); break;
    case FaultAction::kClose: current_connection->set_outgoing(Outgoing::kHalf); break;
    case FaultAction::kBrokenJson: break;  // when the answer is there
  }
  return route.handle(engine, request);
}

ReferenceServer::ReferenceServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Result<std::unique_ptr<ReferenceServer>> ReferenceServer::Start(ReferenceEngine& engine, ServerOptions options) {
  auto impl = std::make_unique<Impl>(engine, std::move(options));
  const httplib::Server::Handler serve = [raw = impl.get()](const httplib::Request& request,
                                                            httplib::Response& response) {
    raw->Serve(request, response);
  };
  // One pattern for everything: the table of routes is ours, and quicker than a regular expression per route.
  impl->listener.Get(".*", serve).Post(".*", serve).Put(".*", serve).Delete(".*", serve).Patch(".*", serve);
  impl->listener.Options(".*", serve);
  const int wanted = impl->options.port;
  const int port = wanted == 0 ? impl->listener.bind_to_any_port(impl->options.host)
                               : (impl->listener.bind_to_port(impl->options.host, wanted) ? wanted : -1);
  if (port <= 0) {
    return Unavailable(StrCat("cannot listen on ", impl->options.host, ":", wanted),
                       "is the port in use? --port 0 takes a free one");
  }
  impl->port = static_cast<std::uint16_t>(port);
  impl->thread = std::thread([raw = impl.get()] { raw->listener.listen_after_bind(); });
  // httplib forgets a stop() that comes before its loop runs.
  const auto listening = [raw = impl.get()] { return raw->listener.is_running(); };
  REFIT_CHECK(exec::WaitUntil(listening, exec::Now() + std::chrono::seconds(30)),
              "the listener's thread does not start");
  return std::unique_ptr<ReferenceServer>(new ReferenceServer(std::move(impl)));
}

ReferenceServer::~ReferenceServer() {
  impl_->engine.Stop();
  impl_->listener.CloseAll();
  impl_->listener.stop();
  impl_->thread.join();
}

std::uint16_t ReferenceServer::port() const { return impl_->port; }

}  // namespace refit::engine::reference
