// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// What NIXL may answer and do, played by a library of ours in its place.

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "refit/transport/nixl/nixl_transport.h"
#include "tests/conformance/transport_helpers.h"
#include "tests/support/fake_nixl.h"
#include "tests/support/temp_folder.h"

namespace refit::transport {
namespace {

using test::FakeNixl;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

NixlOptions Options(const std::string& library = REFIT_FAKE_NIXL) {
  return {.library = library, .backend_params = {}, .ucx_tls = {}};
}

Status Refusal(const NixlOptions& options) { return NixlTransport::Create(options).status(); }

// A site-packages folder with the fake in place of the wheel of that version.
void InstallFake(const test::TempFolder& folder, const std::string& version) {
  const std::filesystem::path root = folder.path();
  std::filesystem::create_directories(root / ".nixl_cu13.mesonpy.libs");
  std::filesystem::create_directories(root / ("nixl_cu13-" + version + ".dist-info"));
  std::filesystem::copy_file(REFIT_FAKE_NIXL, root / ".nixl_cu13.mesonpy.libs" / "libnixl_capi.so");
}

TEST(NixlLibrary, NamesTheWheelAndTheKeyWhereItIsMissing) {
  test::TempFolder empty;
  for (const std::string& library : {std::string(), std::string("/nowhere"), empty.path(), empty / "libnixl_capi.so"}) {
    const Status status = Refusal(Options(library));
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << library;
    EXPECT_THAT(status.ToString(), HasSubstr("nixl-cu13==1.5.1"));
    EXPECT_THAT(status.ToString(), HasSubstr("transport.nixl.library"));
  }
  empty.Write("libnixl_capi.so", "no library");
  EXPECT_EQ(Refusal(Options(empty.path())).code(), StatusCode::kFailedPrecondition);
}

TEST(NixlLibrary, TakesAWheelsFolderOrTheLibraryInIt) {
  test::TempFolder folder;
  InstallFake(folder, "1.5.1");
  for (const std::string& library :
       {folder.path(), folder / ".nixl_cu13.mesonpy.libs", folder / ".nixl_cu13.mesonpy.libs/libnixl_capi.so"}) {
    const auto place = FindNixl(library);
    ASSERT_TRUE(place.ok()) << place.status().ToString();
    EXPECT_EQ(place->version, "1.5.1") << library;
  }
  EXPECT_EQ(FindNixl(REFIT_FAKE_NIXL)->version, "");
}

TEST(NixlLibrary, RefusesAnotherMajorVersion) {
  for (const std::string version : {"0.9.0", "2.0.0", "11.0"}) {
    test::TempFolder folder;
    InstallFake(folder, version);
    const Status status = Refusal(Options(folder.path()));
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(status.ToString(), HasSubstr("is version " + version));
    EXPECT_THAT(status.ToString(), HasSubstr("nixl-cu13==1.5.1"));
  }
}

TEST(NixlLibrary, RefusesOneThatLacksAFunctionOrTakesOthers) {
  EXPECT_THAT(Refusal(Options(REFIT_FAKE_NIXL_WITHOUT)).ToString(), HasSubstr("lacks nixl_capi_get_notifs"));
  EXPECT_THAT(Refusal(Options(REFIT_FAKE_NIXL_OLD)).ToString(), HasSubstr("from before 1.0"));
}

TEST(NixlLibrary, RefusesAStub) {
  test::TempFolder folder;  // a copy: what has been loaded under its own path once is not asked again
  InstallFake(folder, "1.5.1");
  const std::string path = folder / ".nixl_cu13.mesonpy.libs/libnixl_capi.so";
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr);
  static_cast<FakeNixl*>(dlsym(library, "fake_nixl"))->is_stub = true;
  EXPECT_THAT(Refusal(Options(folder.path())).ToString(), HasSubstr("stub"));
}

// RC-ENV-01: a list without a network transport fails the back end, even within one host.
TEST(NixlOptions, RefusesATransportListOfOneHostAlone) {  // S84
  for (const std::string tls :
       {"cma", "sm,self", "posix,cma", "cuda_copy,cuda_ipc", "cuda,sm,self", "^tcp", "^tcp,cma"}) {
    NixlOptions options = Options();
    options.ucx_tls = tls;
    const Status status = Refusal(options);
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << tls;
    EXPECT_THAT(status.ToString(), HasSubstr(tls));
    EXPECT_THAT(status.ToString(), HasSubstr("add tcp"));
    options.ucx_tls.clear();
    options.backend_params["engine_config"] = "RNDV_THRESH=inf,TLS=" + tls + ",NET_DEVICES=lo";
    EXPECT_FALSE(Refusal(options).ok()) << tls;
  }
  for (const std::string tls : {"", "all", "tcp", "cma,tcp,self", "cuda_ipc,rc", "rc_mlx5,cuda", "^posix", "^ib"}) {
    NixlOptions options = Options();
    options.ucx_tls = tls;
    EXPECT_TRUE(CheckNixlOptions(options).ok()) << tls;
  }
}

// RC-ENV-04.
TEST(NixlOptions, RefusesToRunWithoutPeerFailureReporting) {  // S84
  NixlOptions options = Options();
  options.backend_params["ucx_error_handling_mode"] = "none";
  EXPECT_EQ(Refusal(options).code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(Refusal(options).ToString(), HasSubstr("for ever"));
  options.backend_params["ucx_error_handling_mode"] = "peer";
  EXPECT_TRUE(Refusal(options).ok());
}

class NixlFaults : public ::testing::Test {
 protected:
  static constexpr ByteCount kSize = 1000;

  static FakeNixl& Fake() {
    static void* const library = dlopen(REFIT_FAKE_NIXL, RTLD_NOW | RTLD_LOCAL);
    return *static_cast<FakeNixl*>(dlsym(library, "fake_nixl"));
  }

  static int Rounds() { return std::atomic_ref(Fake().rounds); }  // the exporter's lane counts as well

  void SetUp() override {
    Fake() = FakeNixl();
    exporter_ = Made();
    reader_ = Made();
    FillPattern(memory_);
    descriptor_ = *exporter_->Export(MutableBytes(memory_));
  }

  static std::unique_ptr<NixlTransport> Made() {
    auto made = NixlTransport::Create(Options());
    EXPECT_TRUE(made.ok()) << made.status().ToString();
    return *std::move(made);
  }
  Result<std::unique_ptr<Link>> Bind(Duration wait = std::chrono::seconds(10)) {
    return reader_->Bind(exporter_->Address(), In(wait));
  }
  std::unique_ptr<Link> Bound() {
    auto link = Bind();
    EXPECT_TRUE(link.ok()) << link.status().ToString();
    return *std::move(link);
  }
  OpId Fetched(Link& link) {
    const auto op = link.Fetch(descriptor_, {0, kSize}, MutableBytes(into_));
    EXPECT_TRUE(op.ok()) << op.status().ToString();
    return op.ok() ? *op : 0;
  }
  // What the exporter's address would be if its metadata had changed and nothing else.
  std::string ChangedAddress() {
    NixlAddress address = *ParseNixlAddress(exporter_->Address());
    address.metadata += "+changed";
    return FormatNixlAddress(address);
  }

  std::vector<std::byte> memory_ = std::vector<std::byte>(kSize);
  std::vector<std::byte> into_ = std::vector<std::byte>(kSize, kUntouched);
  std::unique_ptr<NixlTransport> exporter_;
  std::unique_ptr<NixlTransport> reader_;
  Descriptor descriptor_;
};

TEST_F(NixlFaults, SaysWhichBackEndCannotBeMadeAndLeavesNoAgent) {
  const int agents = Fake().agents;
  Fake().create_backend = kNixlBackend;
  const Status status = Refusal(Options());
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.ToString(), HasSubstr("back end UCX"));
  EXPECT_EQ(Fake().agents, agents);
}

TEST_F(NixlFaults, PassesTheBackEndsParametersOnWithTheSettingsThatTcpNeeds) {
  NixlOptions options = Options();
  options.backend_params = {{"num_workers", "2"}, {"engine_config", "TLS=cma,tcp,TCP_TX_SEG_SIZE=8k"}};
  ASSERT_TRUE(NixlTransport::Create(options).ok());
  EXPECT_EQ(Fake().params["num_workers"], "2");
  EXPECT_EQ(Fake().params["engine_config"], "TLS=cma,tcp,TCP_TX_SEG_SIZE=8k,TCP_RX_SEG_SIZE=64k,KEEPALIVE_INTERVAL=1s");
}

TEST_F(NixlFaults, SaysWhatMemoryCannotBeRegistered) {  // S66
  Fake().register_mem = kNixlBackend;
  std::vector<std::byte> other(77);
  EXPECT_THAT(exporter_->Export(MutableBytes(other)).status().ToString(), HasSubstr("77 bytes of the host"));
  const device::Memory gpu(MutableBytes(other), 3);
  EXPECT_THAT(exporter_->Export(gpu).status().ToString(), HasSubstr("GPU 3"));
  EXPECT_THAT(exporter_->Export(gpu).status().ToString(), HasSubstr("libcuda.so.1"));
}

// RC-BIND-06, RX-ASM-T5.
// S69.
TEST_F(NixlFaults, NamesEveryAgentAfresh) { EXPECT_NE(exporter_->Address(), Made()->Address()); }

TEST_F(NixlFaults, FailsABindWhoseMetadataDoesNotLoad) {
  Fake().load = kNixlBackend;
  EXPECT_EQ(Bind().status().code(), StatusCode::kUnavailable);
  Fake().load = 0;
  Fake().loaded_name = "refit-somebody-else";
  EXPECT_EQ(Bind().status().code(), StatusCode::kInvalidArgument);
  Fake().loaded_name.clear();
  Fake().make_connection = kNixlNotFound;
  EXPECT_EQ(Bind().status().code(), StatusCode::kUnavailable);
  Fake().make_connection = 0;
  EXPECT_TRUE(Bind().ok());
}

// RX-ASM-T4: metadata and a connection prove nothing; a byte does, and it has until the deadline.
TEST_F(NixlFaults, EndsABindToAPeerThatAnswersNoRead) {
  Fake().statuses.assign(1'000'000, kNixlInProgress);
  EXPECT_EQ(Bind(std::chrono::milliseconds(20)).status().code(), StatusCode::kUnavailable);
  Fake().statuses = {kNixlBackend};
  const auto other = Made();
  EXPECT_EQ(other->Bind(exporter_->Address(), In(std::chrono::seconds(10))).status().code(), StatusCode::kUnavailable);
}

TEST_F(NixlFaults, LeavesAnUnchangedPeersConnectionAlone) {  // RC-BIND-04
  const auto first = Bound();
  const auto second = Bound();
  EXPECT_EQ(reader_->connections(), 1U);
  EXPECT_EQ(Fake().Count("load"), 1);
}

// RC-BIND-03: what was known under a name goes before the new is loaded.
TEST_F(NixlFaults, RemovesAChangedPeerBeforeItAddsIt) {
  const auto first = Bound();
  Fake().calls.clear();
  ASSERT_TRUE(reader_->Bind(ChangedAddress(), In(std::chrono::seconds(10))).ok());
  Fake().calls.resize(2);
  EXPECT_THAT(Fake().calls, ElementsAre("invalidate", "load"));
  EXPECT_EQ(reader_->connections(), 2U);
}

TEST_F(NixlFaults, DoesNotRemoveAPeerUnderARunningRead) {
  const auto link = Bound();
  Fake().statuses.assign(1'000'000, kNixlInProgress);
  const OpId op = Fetched(*link);
  const auto changed = reader_->Bind(ChangedAddress(), In(std::chrono::milliseconds(20)));
  EXPECT_EQ(changed.status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(Fake().Count("invalidate"), 0);
  Fake().statuses.clear();
  EXPECT_TRUE(reader_->Bind(ChangedAddress(), In(std::chrono::seconds(10))).ok());
  EXPECT_EQ(link->Poll(op), OpState::kDone);
}

// A folded disconnect: retryable, after another Bind, which loads again.
TEST_F(NixlFaults, FailsAReadThatNixlFailsAndConnectsAgain) {
  const auto link = Bound();
  Fake().statuses = {kNixlInProgress, kNixlInProgress, kNixlBackend};
  const OpId op = Fetched(*link);
  EXPECT_EQ(link->Poll(op), OpState::kPending);
  EXPECT_EQ(link->Poll(op), OpState::kPending);
  EXPECT_EQ(link->Poll(op), OpState::kFailed);
  EXPECT_EQ(link->error(op).code(), StatusCode::kUnavailable);
  EXPECT_EQ(link->Fetch(descriptor_, {0, 1}, MutableBytes(into_).first(1)).status().code(), StatusCode::kUnavailable);
  Fake().statuses.clear();
  const auto again = Bound();
  EXPECT_EQ(reader_->connections(), 2U);
  EXPECT_EQ(End(*again, Fetched(*again)), OpState::kDone);
  EXPECT_TRUE(HasPattern(into_, 0));
}

TEST_F(NixlFaults, EndsAReadThatCannotBePostedOrPrepared) {
  const auto link = Bound();
  Fake().post = kNixlBackend;
  EXPECT_EQ(link->Poll(Fetched(*link)), OpState::kFailed);
  Fake().post = 0;
  const auto again = Bound();
  Fake().create_request = kNixlNotFound;
  EXPECT_EQ(again->Fetch(descriptor_, {0, 1}, MutableBytes(into_).first(1)).status().code(), StatusCode::kUnavailable);
  Fake().create_request = 0;
  EXPECT_EQ(reader_->connections(), 2U);
  EXPECT_EQ(End(*Bound(), Fetched(*Bound())), OpState::kFailed);  // of another link: not its operation
  EXPECT_EQ(reader_->connections(), 3U);
}

// nixl #2067: parts of a failed request may still run. Nothing of it goes before the fence has let them end.
TEST_F(NixlFaults, KeepsWhatAFailedReadNeedsUntilTheFence) {
  const auto link = Bound();
  const int deregistered = Fake().Count("deregister");
  const int released = Fake().Count("release");
  Fake().statuses = {kNixlBackend};
  ASSERT_EQ(link->Poll(Fetched(*link)), OpState::kFailed);
  EXPECT_EQ(Fake().Count("release"), released);
  EXPECT_EQ(Fake().Count("deregister"), deregistered);
  const int rounds = Rounds();
  EXPECT_EQ(link->Fence(exec::Now()), FenceOutcome::kFenced);
  EXPECT_GE(Rounds(), rounds + 1000);
  EXPECT_EQ(Fake().Count("release"), released + 1);
  EXPECT_EQ(Fake().Count("deregister"), deregistered + 1);
}

// NIXL deletes a request whose peer it has dropped meanwhile.
TEST_F(NixlFaults, NeverTouchesARequestAgainThatNixlDoesNotKnow) {
  const auto link = Bound();
  Fake().statuses = {kNixlNotFound};
  ASSERT_EQ(link->Poll(Fetched(*link)), OpState::kFailed);
  EXPECT_EQ(link->Fence(exec::Now()), FenceOutcome::kFenced);
  reader_.reset();
  EXPECT_FALSE(Fake().has_touched_a_gone_request);
}

// RX-XFER-03, RX-XFER-07, RX-ASM-T2: what runs cannot be fenced, and keeps all it needs when everything else goes.
TEST_F(NixlFaults, TakesNothingFromAReadThatNeverEnds) {
  auto link = Bound();
  Fake().statuses.assign(1'000'000, kNixlInProgress);
  const OpId op = Fetched(*link);
  EXPECT_EQ(link->Fence(In(std::chrono::milliseconds(5))), FenceOutcome::kUnknown);
  link->Close();
  EXPECT_EQ(link->Poll(op), OpState::kPending);  // it still may write, so it has not ended
  EXPECT_EQ(link->Fence(In(std::chrono::milliseconds(5))), FenceOutcome::kUnknown);
  const int agents = Fake().agents;
  link.reset();
  reader_.reset();
  EXPECT_EQ(Fake().agents, agents);
  EXPECT_FALSE(Fake().has_released_a_running_request);
  EXPECT_FALSE(Fake().has_deregistered_under_a_request);
}

TEST_F(NixlFaults, CleansUpAReadThatEndsAfterItsLinkHasGone) {
  auto link = Bound();
  Fake().statuses = {kNixlInProgress};
  Fetched(*link);
  link.reset();
  const int agents = Fake().agents;
  reader_.reset();
  EXPECT_EQ(Fake().agents, agents - 1);
  EXPECT_FALSE(Fake().has_released_a_running_request);
  EXPECT_FALSE(Fake().has_touched_a_gone_request);
}

TEST_F(NixlFaults, RegistersPreparedLandingMemoryOnce) {
  const auto link = Bound();
  ASSERT_TRUE(reader_->Prepare(MutableBytes(into_)).ok());
  EXPECT_EQ(reader_->Prepare(MutableBytes(into_)).code(), StatusCode::kFailedPrecondition);
  const int registered = Fake().registered;
  for (const ByteCount offset : {ByteCount{0}, ByteCount{100}, ByteCount{900}}) {
    const auto op = link->Fetch(descriptor_, {offset, 100}, MutableBytes(into_).subspan(offset, 100));
    EXPECT_EQ(End(*link, *op), OpState::kDone);
  }
  EXPECT_EQ(Fake().registered, registered);
  reader_->Forget(MutableBytes(into_));
  EXPECT_EQ(End(*link, Fetched(*link)), OpState::kDone);
  EXPECT_EQ(Fake().registered, registered + 1);
}

TEST_F(NixlFaults, WorksOnWhatPeersReadWhileSomethingIsExported) {
  const auto is_serving = [rounds = Rounds()] { return Rounds() > rounds; };
  EXPECT_TRUE(exec::WaitUntil(is_serving, In(std::chrono::seconds(10))));
}

// Addresses come from a peer.
TEST(NixlAddress, RefusesWhatItDidNotWrite) {
  const NixlAddress address{"refit-1", "metadata", {{"nixl:refit-1:1:7f00:10:dram:0", {0x7f00, 10}}}};
  const std::string good = FormatNixlAddress(address);
  ASSERT_TRUE(ParseNixlAddress(good).ok()) << good;
  EXPECT_EQ(FormatNixlAddress(*ParseNixlAddress(good)), good);
  for (const std::string& bad : {std::string(),
                                 std::string("nixl:"),
                                 std::string("nixl::00"),
                                 std::string("nixl:a:"),
                                 std::string("nixl:a:0"),
                                 std::string("nixl:a:xx"),
                                 std::string("nixl:A:00"),
                                 std::string("shm:a:00"),
                                 good + "x",
                                 good + ";1",
                                 good + ";1:7f00:10:dram:0",
                                 good + ";2:7f00:0:dram:0",
                                 good + ";2:7f00:10:dram:1",
                                 good + ";2:7f00:10:disk:0",
                                 good + ";2:7f00:10:vram:9999",
                                 good + ";2:ffffffffffffffff:10:dram:0",
                                 good + ";2:7f00:-1:dram:0",
                                 good + ";02:7f00:10:dram:0",
                                 "nixl:" + std::string(65, 'a') + ":00",
                                 std::string(2'000'000, 'n')}) {
    EXPECT_FALSE(ParseNixlAddress(bad).ok()) << bad.substr(0, 80);
  }
}

}  // namespace
}  // namespace refit::transport
