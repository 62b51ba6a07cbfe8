// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// nixl-read LIBRARY FROM INTO BYTES PIECE_BYTES ROUNDS: what NIXL itself reaches. Two processes; the first offers one
// allocation on FROM, the second reads it into one on INTO (each "cuda:N" or "cpu"), ROUNDS times after one to warm up,
// in pieces of PIECE_BYTES (0: one request for everything), kInFlight of them at once. Prints one line of JSON.
//
// On purpose not refit's own code: it calls NIXL's C library and the CUDA driver alone, both loaded at run time.

#include <dlfcn.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "refit/base/time.h"
#include "refit/exec/clock.h"

namespace {

constexpr std::size_t kInFlight = 8;
constexpr std::uint64_t kBlock = 16 << 20;  // one pattern word per block of memory
constexpr int kReadOperation = 0;
constexpr int kInProgress = 1;
constexpr auto kPatience = std::chrono::seconds(30);

using Handle = void*;

[[noreturn]] __attribute__((format(printf, 1, 2))) void Die(const char* format, ...) {
  std::fputs("nixl-read: ", stderr);
  va_list words;
  va_start(words, format);
  std::vfprintf(stderr, format, words);
  va_end(words);
  std::fputs("\n", stderr);
  _exit(1);
}

template <typename Function>
void Load(void* library, const char* name, Function& function) {
  void* const symbol = dlsym(library, name);
  if (symbol == nullptr) {
    Die("the library has no %s", name);
  }
  std::memcpy(&function, &symbol, sizeof(function));
}

struct AgentConfig {  // nixl_capi_agent_config_t
  bool progress_thread = false;
  bool listen_thread = false;
  int listen_port = 0;
  int sync_mode = 0;
  unsigned worker_count = 1;
  std::uint64_t progress_delay_us = 0;
  std::uint64_t listen_delay_us = 100'000;
  bool telemetry = false;
};

struct Nixl {
  int (*create_agent)(const char*, const AgentConfig*, Handle*) = nullptr;
  int (*create_params)(Handle*) = nullptr;
  int (*create_backend)(Handle, const char*, Handle, Handle*) = nullptr;
  int (*create_options)(Handle*) = nullptr;
  int (*options_add_backend)(Handle, Handle) = nullptr;
  int (*create_registration)(int, Handle*) = nullptr;
  int (*registration_add)(Handle, std::uintptr_t, std::size_t, std::uint64_t, const void*, std::size_t) = nullptr;
  int (*register_memory)(Handle, Handle, Handle) = nullptr;
  int (*get_metadata)(Handle, void**, std::size_t*) = nullptr;
  int (*load_metadata)(Handle, const void*, std::size_t, char**) = nullptr;
  int (*connect)(Handle, const char*, Handle) = nullptr;
  int (*create_list)(int, Handle*) = nullptr;
  int (*list_add)(Handle, std::uintptr_t, std::size_t, std::uint64_t) = nullptr;
  int (*prepare_list)(Handle, const char*, Handle, Handle*, Handle) = nullptr;
  int (*make_request)(Handle, int, Handle, const int*, std::size_t, Handle, const int*, std::size_t, Handle*,
                      Handle) = nullptr;
  int (*post)(Handle, Handle, Handle) = nullptr;
  int (*request_status)(Handle, Handle) = nullptr;
  int (*create_notifications)(Handle*) = nullptr;
  int (*get_notifications)(Handle, Handle, Handle) = nullptr;

  explicit Nixl(const char* path) {
    // Its module for EFA brings the system's libraries for RDMA beside the wheel's, and dies at exit.
    setenv("UCX_MODULES", "^efa", 0);
    void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      Die("%s", dlerror());
    }
    Load(library, "nixl_capi_create_configured_agent", create_agent);
    Load(library, "nixl_capi_create_params", create_params);
    Load(library, "nixl_capi_create_backend", create_backend);
    Load(library, "nixl_capi_create_opt_args", create_options);
    Load(library, "nixl_capi_opt_args_add_backend", options_add_backend);
    Load(library, "nixl_capi_create_reg_dlist", create_registration);
    Load(library, "nixl_capi_reg_dlist_add_desc", registration_add);
    Load(library, "nixl_capi_register_mem", register_memory);
    Load(library, "nixl_capi_get_local_md", get_metadata);
    Load(library, "nixl_capi_load_remote_md", load_metadata);
    Load(library, "nixl_capi_agent_make_connection", connect);
    Load(library, "nixl_capi_create_xfer_dlist", create_list);
    Load(library, "nixl_capi_xfer_dlist_add_desc", list_add);
    Load(library, "nixl_capi_prep_xfer_dlist", prepare_list);
    Load(library, "nixl_capi_make_xfer_req", make_request);
    Load(library, "nixl_capi_post_xfer_req", post);
    Load(library, "nixl_capi_get_xfer_status", request_status);
    Load(library, "nixl_capi_create_notif_map", create_notifications);
    Load(library, "nixl_capi_get_notifs", get_notifications);
  }
};

void Check(int status, const char* what) {
  if (status < 0) {
    Die("%s: NIXL says %d", what, status);
  }
}

// The driver's memory functions; cuMemAlloc gives what cudaMalloc gives.
struct Cuda {
  int (*init)(unsigned) = nullptr;
  int (*retain_context)(void**, int) = nullptr;
  int (*set_context)(void*) = nullptr;
  int (*allocate)(std::uint64_t*, std::size_t) = nullptr;
  int (*fill)(std::uint64_t, unsigned, std::size_t) = nullptr;
  int (*copy_out)(void*, std::uint64_t, std::size_t) = nullptr;
  int (*synchronize)() = nullptr;
  bool loaded = false;

  void Use(int device) {
    void* const library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == nullptr) {
      Die("%s", dlerror());
    }
    Load(library, "cuInit", init);
    Load(library, "cuDevicePrimaryCtxRetain", retain_context);
    Load(library, "cuCtxSetCurrent", set_context);
    Load(library, "cuMemAlloc_v2", allocate);
    Load(library, "cuMemsetD32_v2", fill);
    Load(library, "cuMemcpyDtoH_v2", copy_out);
    Load(library, "cuCtxSynchronize", synchronize);
    void* context = nullptr;
    if (init(0) != 0 || retain_context(&context, device) != 0 || set_context(context) != 0) {
      Die("GPU %d cannot be used", device);
    }
    loaded = true;
  }
};

// One allocation on one device.
class Place {
 public:
  Place(std::string_view where, std::uint64_t size) : size_(size) {
    if (where != "cpu") {
      device_ = std::atoi(std::string(where.substr(where.find(':') + 1)).c_str());
      cuda_.Use(device_);
      if (cuda_.allocate(&address_, size) != 0) {
        Die("GPU %d has not %llu bytes", device_, static_cast<unsigned long long>(size));
      }
      return;
    }
    void* const memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory == MAP_FAILED) {
      Die("no %llu bytes of memory", static_cast<unsigned long long>(size));
    }
    address_ = reinterpret_cast<std::uint64_t>(memory);
  }

  std::uint64_t address() const { return address_; }
  std::uint64_t device() const { return static_cast<std::uint64_t>(device_); }
  int kind() const { return cuda_.loaded ? 1 : 0; }  // VRAM, DRAM

  void Fill(std::uint32_t seed) {
    for (std::uint64_t at = 0; at < size_; at += kBlock) {
      const std::size_t words = static_cast<std::size_t>(std::min(kBlock, size_ - at) / 4);
      const std::uint32_t word = Word(seed, at);
      if (cuda_.loaded) {
        cuda_.fill(address_ + at, word, words);
      } else {
        std::fill_n(reinterpret_cast<std::uint32_t*>(address_ + at), words, word);
      }
    }
    if (cuda_.loaded && cuda_.synchronize() != 0) {
      Die("filling the memory failed");
    }
  }

  // The first and last word of every block.
  bool Holds(std::uint32_t seed) const {
    for (std::uint64_t at = 0; at < size_; at += kBlock) {
      for (const std::uint64_t where : {at, at + (std::min(kBlock, size_ - at) / 4 - 1) * 4}) {
        std::uint32_t word = 0;
        if (cuda_.loaded) {
          cuda_.copy_out(&word, address_ + where, sizeof(word));
        } else {
          std::memcpy(&word, reinterpret_cast<const void*>(address_ + where), sizeof(word));
        }
        if (word != Word(seed, at)) {
          return false;
        }
      }
    }
    return true;
  }

 private:
  static std::uint32_t Word(std::uint32_t seed, std::uint64_t at) {
    return seed + static_cast<std::uint32_t>(at / kBlock + 1) * 0x9e3779b1U;
  }
  std::uint64_t size_;
  std::uint64_t address_ = 0;
  int device_ = 0;
  Cuda cuda_;
};

struct Options {
  const char* library = nullptr;
  std::string from;
  std::string into;
  std::uint64_t bytes = 0;
  std::uint64_t piece_bytes = 0;
  int rounds = 0;
};

void Write(int socket, const void* bytes, std::size_t size) {
  if (write(socket, bytes, size) != static_cast<ssize_t>(size)) {
    Die("the other process is gone");
  }
}

void Read(int socket, void* bytes, std::size_t size) {
  for (std::size_t done = 0; done < size;) {
    const ssize_t got = read(socket, static_cast<char*>(bytes) + done, size - done);
    if (got <= 0) {
      Die("the other process is gone");
    }
    done += static_cast<std::size_t>(got);
  }
}

// One side: an agent that has registered its memory, and has the other's metadata.
struct Side {
  Nixl nixl;
  Handle agent = nullptr;
  Handle options = nullptr;
  char* peer = nullptr;

  Side(const char* library, const char* name, const Place& place, std::uint64_t size) : nixl(library) {
    const AgentConfig config;
    Check(nixl.create_agent(name, &config, &agent), "making an agent");
    Handle parameters = nullptr;
    Handle backend = nullptr;
    Check(nixl.create_params(&parameters), "making parameters");
    Check(nixl.create_backend(agent, "UCX", parameters, &backend), "making the UCX back end");
    Check(nixl.create_options(&options), "making options");
    Check(nixl.options_add_backend(options, backend), "naming the back end");
    Handle list = nullptr;
    Check(nixl.create_registration(place.kind(), &list), "making a list");
    Check(nixl.registration_add(list, place.address(), size, place.device(), nullptr, 0), "naming the memory");
    Check(nixl.register_memory(agent, list, options), "registering the memory");
  }

  void Exchange(int socket) {
    void* mine = nullptr;
    std::size_t size = 0;
    Check(nixl.get_metadata(agent, &mine, &size), "asking for the metadata");
    Write(socket, &size, sizeof(size));
    Write(socket, mine, size);
    Read(socket, &size, sizeof(size));
    std::vector<char> theirs(size);
    Read(socket, theirs.data(), size);
    Check(nixl.load_metadata(agent, theirs.data(), size, &peer), "loading the metadata");
  }
};

// Offers its memory and keeps its end of the connection going until the reader hangs up.
[[noreturn]] void Offer(const Options& options, int socket) {
  Place place(options.from, options.bytes);
  Side side(options.library, "offers", place, options.bytes);
  const std::uint64_t where[2] = {place.address(), place.device()};
  Write(socket, where, sizeof(where));
  const int kind = place.kind();
  Write(socket, &kind, sizeof(kind));
  side.Exchange(socket);
  Handle notifications = nullptr;
  Check(side.nixl.create_notifications(&notifications), "making a map");
  const timespec nap{0, 200'000};
  for (;;) {
    pollfd waiting{socket, POLLIN, 0};
    ppoll(&waiting, 1, &nap, nullptr);
    std::uint32_t seed = 0;
    if (waiting.revents != 0) {
      if (read(socket, &seed, sizeof(seed)) != sizeof(seed)) {
        _exit(0);
      }
      place.Fill(seed);
      Write(socket, &seed, sizeof(seed));
    }
    Check(side.nixl.get_notifications(side.agent, notifications, side.options), "progressing");
  }
}

std::vector<Handle> MakeRequests(Side& side, const Options& options, const Place& place, const std::uint64_t where[2],
                                 int kind) {
  const std::uint64_t piece = options.piece_bytes == 0 ? options.bytes : options.piece_bytes;
  Handle mine = nullptr;
  Handle theirs = nullptr;
  Check(side.nixl.create_list(place.kind(), &mine), "making a list");
  Check(side.nixl.create_list(kind, &theirs), "making a list");
  int count = 0;
  for (std::uint64_t at = 0; at < options.bytes; at += piece, ++count) {
    const std::size_t size = static_cast<std::size_t>(std::min(piece, options.bytes - at));
    Check(side.nixl.list_add(mine, place.address() + at, size, place.device()), "naming a piece");
    Check(side.nixl.list_add(theirs, where[0] + at, size, where[1]), "naming a piece");
  }
  Handle to = nullptr;
  Handle from = nullptr;
  Check(side.nixl.prepare_list(side.agent, "", mine, &to, side.options), "preparing a list");
  Check(side.nixl.prepare_list(side.agent, side.peer, theirs, &from, side.options), "preparing a list");
  std::vector<Handle> requests(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) {
    Check(side.nixl.make_request(side.agent, kReadOperation, to, &i, 1, from, &i, 1,
                                 &requests[static_cast<std::size_t>(i)], side.options),
          "making a request");
  }
  return requests;
}

double ReadAll(Side& side, const std::vector<Handle>& requests) {
  const refit::Instant start = refit::exec::Now();
  std::size_t posted = 0;
  for (std::size_t done = 0; done < requests.size();) {
    for (; posted < requests.size() && posted - done < kInFlight; ++posted) {
      Check(side.nixl.post(side.agent, requests[posted], nullptr), "posting a request");
    }
    const int status = side.nixl.request_status(side.agent, requests[done]);
    Check(status, "reading");
    done += status == kInProgress ? 0U : 1U;
    if (refit::exec::Now() - start > kPatience) {
      Die("%zu of %zu requests are not done after 30 s", requests.size() - done, requests.size());
    }
  }
  return refit::ToSeconds(refit::exec::Now() - start);
}

int Measure(const Options& options, int socket) {
  Place place(options.into, options.bytes);
  Side side(options.library, "reads", place, options.bytes);
  std::uint64_t where[2] = {};
  int kind = 0;
  Read(socket, where, sizeof(where));
  Read(socket, &kind, sizeof(kind));
  side.Exchange(socket);
  Check(side.nixl.connect(side.agent, side.peer, side.options), "connecting");
  const std::vector<Handle> requests = MakeRequests(side, options, place, where, kind);
  std::vector<double> samples;
  bool exact = true;
  for (int round = 0; round <= options.rounds; ++round) {
    const std::uint32_t seed = static_cast<std::uint32_t>(round) * 77'777U + 1;
    std::uint32_t filled = 0;
    Write(socket, &seed, sizeof(seed));
    Read(socket, &filled, sizeof(filled));
    const double seconds = ReadAll(side, requests);
    exact = exact && place.Holds(seed);
    if (round > 0) {
      samples.push_back(seconds);
    }
  }
  std::string listed;
  for (const double sample : samples) {
    listed += (listed.empty() ? "" : ", ") + std::to_string(sample);
  }
  std::sort(samples.begin(), samples.end());
  const double median = samples[samples.size() / 2];
  std::printf(
      "{\"from\": \"%s\", \"into\": \"%s\", \"bytes\": %llu, \"piece_bytes\": %llu, \"requests\": %zu, \"exact\": %s, "
      "\"seconds_median\": %.6f, \"gbps\": %.2f, \"samples\": [%s]}\n",
      options.from.c_str(), options.into.c_str(), static_cast<unsigned long long>(options.bytes),
      static_cast<unsigned long long>(options.piece_bytes), requests.size(), exact ? "true" : "false", median,
      static_cast<double>(options.bytes) / median / 1e9, listed.c_str());
  std::fflush(stdout);
  return exact ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 7) {
    std::fputs("usage: nixl-read LIBRARY FROM INTO BYTES PIECE_BYTES ROUNDS (FROM, INTO: cuda:N or cpu)\n", stderr);
    return 2;
  }
  const Options options{.library = argv[1],
                        .from = argv[2],
                        .into = argv[3],
                        .bytes = std::strtoull(argv[4], nullptr, 10) / 4 * 4,
                        .piece_bytes = std::strtoull(argv[5], nullptr, 10),
                        .rounds = std::max(1, std::atoi(argv[6]))};
  int sockets[2] = {};
  if (options.bytes == 0 || socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0) {
    Die("nothing to read");
  }
  const pid_t child = fork();  // before either side has touched the driver
  if (child == 0) {
    close(sockets[0]);
    Offer(options, sockets[1]);
  }
  close(sockets[1]);
  const int outcome = Measure(options, sockets[0]);
  close(sockets[0]);
  waitpid(child, nullptr, 0);
  _exit(outcome);  // the libraries' destructors have nothing to tell
}
