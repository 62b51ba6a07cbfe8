// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/transport/nixl/nixl_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <system_error>

#include "refit/base/str.h"

namespace refit::transport {
namespace {

constexpr std::string_view kLibraryName = "libnixl_capi.so";
constexpr std::string_view kRemedy =
    "pip install --no-deps nixl-cu13==1.5.1, then set transport.nixl.library to its site-packages folder";
// It took this name with an argument more in its list functions: calling it as we do would be undefined.
constexpr const char* kOldSignatures = "nixl_capi_xfer_dlist_is_sorted";

namespace fs = std::filesystem;

// The entry of `folder` that begins and ends so; empty where there is none.
fs::path EntryOf(const fs::path& folder, std::string_view prefix, std::string_view suffix) {
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name.starts_with(prefix) && name.ends_with(suffix)) {
      return it->path();
    }
  }
  return {};
}

// "1.5.1" of "nixl_cu13-1.5.1.dist-info": pip writes that folder beside the package.
std::string WheelVersion(const fs::path& site_packages) {
  const std::string name = EntryOf(site_packages, "nixl_cu", ".dist-info").stem().string();
  const std::size_t dash = name.find('-');
  return dash == std::string::npos ? std::string() : name.substr(dash + 1);
}

template <typename Function>
bool Resolve(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

Status ResolveAll(void* library, NixlFunctions& call) {
#define REFIT_NIXL_RESOLVE(name, type)                                                        \
  if (!Resolve(library, "nixl_capi_" #name, call.name)) {                                     \
    return FailedPrecondition("NIXL's library lacks nixl_capi_" #name, std::string(kRemedy)); \
  }
  REFIT_NIXL_FUNCTIONS(REFIT_NIXL_RESOLVE)
#undef REFIT_NIXL_RESOLVE
  if (!Resolve(library, "nixl_capi_mem_free", call.free_buffer)) {
    call.free_buffer = std::free;
  }
  return OkStatus();
}

Result<std::unique_ptr<NixlLibrary>> Open(const NixlPlace& place) {
  // Its module for EFA loads the system's libefa beside the bundled one, and a destructor of libnl then ends the
  // process with a SIGSEGV at exit. What the user has set stays.
  setenv("UCX_MODULES", "^efa", 0);
  // Local, and its own libraries first: it brings a gRPC, a protobuf and an Abseil of its own, and a process that has
  // our protobuf would else register NIXL's messages in it and be ended for that.
  void* const library = dlopen(place.path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
  if (library == nullptr) {
    return FailedPrecondition(StrCat("cannot load NIXL: ", dlerror()),
                              "keep the wheel's folders .nixl_cu13.mesonpy.libs and nixl_cu13.libs side by side");
  }
  auto loaded = std::make_unique<NixlLibrary>();
  loaded->place = place;
  if (dlsym(library, kOldSignatures) != nullptr) {
    return FailedPrecondition(StrCat(place.path, " is a NIXL from before 1.0"), std::string(kRemedy));
  }
  if (Status status = ResolveAll(library, loaded->call); !status.ok()) {
    return status.WithContext(place.path);
  }
  if (loaded->call.is_stub()) {
    return FailedPrecondition(StrCat(place.path, " is NIXL's stub, which only aborts"), std::string(kRemedy));
  }
  return loaded;
}

}  // namespace

std::string NixlStatusName(NixlStatus status) {
  switch (status) {
    case kNixlDone: return "done";
    case kNixlInProgress: return "in progress";
    case -1: return "invalid parameter (-1)";
    case kNixlBackend: return "back end error (-2), which a disconnect is, too";
    case kNixlNotFound: return "not found (-6)";
    default: return StrCat("status ", status);
  }
}

Result<NixlPlace> FindNixl(const std::string& library) {
  if (library.empty()) {
    return FailedPrecondition("transport nixl needs NIXL's C library, and nothing says where it is",
                              std::string(kRemedy));
  }
  fs::path path(library);
  std::error_code error;
  if (fs::is_directory(path, error)) {
    const fs::path folder = EntryOf(path, ".nixl_cu", ".mesonpy.libs");
    path = (folder.empty() ? path : folder) / kLibraryName;
  }
  if (!fs::is_regular_file(path, error)) {
    return FailedPrecondition(StrCat("there is no ", kLibraryName, " of the wheel nixl-cu13 in ", library),
                              std::string(kRemedy));
  }
  NixlPlace place{fs::absolute(path, error).string(), WheelVersion(path.parent_path().parent_path())};
  if (!place.version.empty() && !place.version.starts_with("1.")) {
    return FailedPrecondition(StrCat("NIXL in ", library, " is version ", place.version, ", known here is 1.x"),
                              std::string(kRemedy));
  }
  return place;
}

Result<const NixlLibrary*> LoadNixl(const std::string& library) {
  REFIT_ASSIGN_OR_RETURN(const NixlPlace place, FindNixl(library));
  static std::mutex mutex;
  static auto& loaded = *new std::map<std::string, std::unique_ptr<NixlLibrary>>;  // outlives every static destructor
  const std::lock_guard lock(mutex);
  std::unique_ptr<NixlLibrary>& entry = loaded[place.path];
  if (entry == nullptr) {
    REFIT_ASSIGN_OR_RETURN(entry, Open(place));
  }
  return entry.get();
}

}  // namespace refit::transport
