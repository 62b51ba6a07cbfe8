// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include <openssl/evp.h>

#include <array>
#include <memory>
#include <string>

#include "refit/base/check.h"
#include "refit/device/gpu_hash.h"
#include "refit/device/hash.h"

namespace refit::device {
namespace {

constexpr std::size_t kSha256Size = 32;
constexpr std::size_t kPrefixSize = 8;  // what SGLang's CPU server reports (settled D8)

// OpenSSL's EVP chooses SHA-NI by itself.
class Sha256 {
 public:
  Sha256() : context_(EVP_MD_CTX_new(), &EVP_MD_CTX_free) {
    REFIT_CHECK(context_ != nullptr, "OpenSSL is out of memory");
    Reset();
  }

  void Reset() { REFIT_CHECK(EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1, "OpenSSL has no SHA-256"); }
  void Update(Bytes bytes) {
    REFIT_CHECK(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1, "SHA-256 update failed");
  }
  std::string FinishHex(std::size_t size) {
    std::array<unsigned char, kSha256Size> digest{};
    REFIT_CHECK(EVP_DigestFinal_ex(context_.get(), digest.data(), nullptr) == 1, "SHA-256 finish failed");
    return ToHex(std::as_bytes(std::span(digest)).first(size));
  }

 private:
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
};

class Sha256PrefixHasher final : public ParameterHasher {
 public:
  void Reset(ByteCount /*total*/) override { sha256_.Reset(); }
  void Update(Bytes bytes) override { sha256_.Update(bytes); }
  std::string Finish() override { return sha256_.FinishHex(kPrefixSize); }

 private:
  Sha256 sha256_;
};

}  // namespace

std::unique_ptr<ParameterHasher> MakeParameterHasher(ParameterHashKind kind) {
  switch (kind) {
    case ParameterHashKind::kSha256Prefix: return std::make_unique<Sha256PrefixHasher>();
    case ParameterHashKind::kGpu: return MakeGpuParameterHasher();
  }
  REFIT_CHECK(false, "unknown hash kind");
}

std::string Sha256Hex(Bytes bytes) {
  Sha256 sha256;
  sha256.Update(bytes);
  return sha256.FinishHex(kSha256Size);
}

}  // namespace refit::device
