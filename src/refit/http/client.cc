// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/http/client.h"

#include <curl/curl.h>

#include <algorithm>
#include <chrono>
#include <memory>

#include "refit/base/mutant.h"
#include "refit/base/str.h"
#include "refit/exec/clock.h"

namespace refit::http {
namespace {

constexpr ByteCount kHeaderLimit = 64 * kKiB;
constexpr Duration kReusableFor = std::chrono::seconds(1);
constexpr std::chrono::milliseconds kLongestCall = std::chrono::hours(24);

// Appends what libcurl hands over; a short return makes libcurl end the transfer.
struct Sink {
  std::string bytes;
  ByteCount limit = 0;
  bool overflowed = false;
};

std::size_t Append(char* data, std::size_t size, std::size_t count, void* user) {
  Sink& sink = *static_cast<Sink*>(user);
  const std::size_t length = size * count;
  if (sink.bytes.size() + length > sink.limit) {
    sink.overflowed = true;
    return 0;
  }
  sink.bytes.append(data, length);
  return length;
}

// libcurl takes headers that end in the middle for an answer.
struct HeaderSink {
  Sink sink;
  bool ended = false;  // the blank line after the last status line came
};

std::size_t AppendHeader(char* data, std::size_t size, std::size_t count, void* user) {
  HeaderSink& header = *static_cast<HeaderSink*>(user);
  const std::string_view line(data, size * count);
  if (line.starts_with("HTTP/")) {
    header.ended = false;
  } else if (line == "\r\n" || line == "\n") {
    header.ended = true;
  }
  return Append(data, size, count, &header.sink);
}

// An answer of no stated length ends where the connection does: nobody can tell whether it is whole.
bool HasLength(CURL* curl) {
  curl_off_t length = -1;
  curl_header* encoding = nullptr;
  return (curl_easy_getinfo(curl, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length) == CURLE_OK && length >= 0) ||
         curl_easy_header(curl, "Transfer-Encoding", 0, CURLH_HEADER, -1, &encoding) == CURLHE_OK;
}

using Handle = std::unique_ptr<CURL, decltype(&curl_easy_cleanup)>;
using Headers = std::unique_ptr<curl_slist, decltype(&curl_slist_free_all)>;

Headers MakeHeaders(const Request& request) {
  // libcurl would wait for "100 Continue" before a large body.
  curl_slist* list = curl_slist_append(nullptr, "Expect:");
  list = curl_slist_append(list, "Content-Type: application/json");
  if (!request.bearer.empty()) {
    list = curl_slist_append(list, StrCat("Authorization: Bearer ", request.bearer).c_str());
  }
  return {list, &curl_slist_free_all};
}

enum class Connect { kFresh, kReuse };

void Configure(CURL* curl, const Request& request, const Headers& headers, long timeout_ms, Connect connect) {
  curl_easy_setopt(curl, CURLOPT_URL, request.url.c_str());
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers.get());
  if (!request.body.empty()) {
    curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, request.body.data());
  }
  if (!request.method.empty()) {
    curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, request.method.c_str());
  }
  curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, REFIT_MUTANT("RC-RPC-04/late-timeout", timeout_ms, timeout_ms + 3000));
  curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, timeout_ms);
  curl_easy_setopt(curl, CURLOPT_FRESH_CONNECT, connect == Connect::kFresh ? 1L : 0L);
  curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
  curl_easy_setopt(curl, CURLOPT_NOPROXY, "*");
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
}

CURL* NewHandle() {
  static const CURLcode global = curl_global_init(CURL_GLOBAL_DEFAULT);
  return global == CURLE_OK ? curl_easy_init() : nullptr;
}

Result<Response> Perform(CURL* curl, const Request& request, Connect connect) {
  if (curl == nullptr) {
    return Internal("libcurl does not start");
  }
  // Zero would mean "for ever" to libcurl.
  const auto timeout = std::chrono::duration_cast<std::chrono::milliseconds>(request.deadline);
  const long timeout_ms = std::clamp(timeout, std::chrono::milliseconds(1), kLongestCall).count();
  const Headers headers = MakeHeaders(request);
  Configure(curl, request, headers, timeout_ms, connect);
  Sink body{.bytes = {}, .limit = request.body_limit};
  HeaderSink header{.sink = {.bytes = {}, .limit = kHeaderLimit}};
  char error[CURL_ERROR_SIZE] = "";
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, &Append);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, &body);
  curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, &AppendHeader);
  curl_easy_setopt(curl, CURLOPT_HEADERDATA, &header);
  curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, error);

  const CURLcode code = curl_easy_perform(curl);
  if (body.overflowed || header.sink.overflowed) {
    return ResourceExhausted(StrCat(request.url, ": the answer is longer than ",
                                    body.overflowed ? body.limit : header.sink.limit, " bytes"));
  }
  if (code == CURLE_OPERATION_TIMEDOUT) {
    return DeadlineExceeded(StrCat(request.url, ": no complete answer within ", timeout_ms, " ms"));
  }
  if (code != CURLE_OK) {
    return Unavailable(StrCat(request.url, ": ", error[0] != '\0' ? error : curl_easy_strerror(code)));
  }
  if (!header.ended || !HasLength(curl)) {
    return Unavailable(StrCat(request.url, ": the answer ", header.ended ? "states no length" : "ends in its headers"));
  }
  long status = 0;
  curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
  return Response{.status = static_cast<int>(status), .body = std::move(body.bytes)};
}

}  // namespace

Result<Response> Send(const Request& request) {
  const Handle curl(NewHandle(), &curl_easy_cleanup);
  return Perform(curl.get(), request, Connect::kFresh);
}

Connection::~Connection() { curl_easy_cleanup(curl_); }

Result<Response> Connection::Send(const Request& request) {
  if (curl_ == nullptr) {
    curl_ = NewHandle();
  } else {
    curl_easy_reset(curl_);  // options only: the connection stays
  }
  const Connect connect = exec::Now() - idle_since_ < kReusableFor ? Connect::kReuse : Connect::kFresh;
  Result<Response> response = Perform(curl_, request, connect);
  idle_since_ = response.has_value() ? exec::Now() : Instant{};
  return response;
}

}  // namespace refit::http
