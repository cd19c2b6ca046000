// The plugin of MPI refuses peers on other hosts unless the operator allows networks without encryption, and engines
// whose tags are in use.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/net/network.h"
#include "collectives/exec/transports/plugin/engine.h"
#include "collectives/exec/transports/plugin/load.h"

namespace xlad::collectives {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class PluginOfMpi : public ::testing::Test {
 protected:
  void SetUp() override {
#if __has_feature(thread_sanitizer)
    GTEST_SKIP() << "MPI is not built with ThreadSanitizer";
#endif
    const auto api = LoadPlugin({"openmpi", "libopenmpi-dev", "libopenmpi3"});
    if (absl::IsNotFound(api.status())) GTEST_SKIP() << api.status();
    ASSERT_TRUE(api.ok()) << api.status();
    api_ = *api;
  }

  const xlad_transport_api* api_ = nullptr;
};

// The address of an engine on this host, changed so that its host has another name.
TEST_F(PluginOfMpi, PeersOnOtherHostsAreRefusedUnlessAnyNetworkIsAllowed) {
  const auto secure = *Engine::Open(api_, 0, /*any_network=*/false);
  const auto insecure = *Engine::Open(api_, 1, /*any_network=*/true);
  const std::string here = insecure->address(), host = HostName();
  const size_t at = here.rfind(host);  // The boot id, which comes first, may contain a short name.
  ASSERT_NE(at, std::string::npos);
  std::string there = here;
  there[at] = host[0] == 'z' ? 'y' : 'z';
  const std::string other = there.substr(at, host.size());
  for (const auto& engine : {secure.get(), insecure.get()}) {
    const auto peer = engine->Connect(2, here);
    ASSERT_TRUE(peer.ok()) << peer.status();
    engine->Disconnect(*peer, 0);
  }
  const absl::Status refused = secure->Connect(2, there).status();
  EXPECT_TRUE(absl::IsUnavailable(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("device 2 is on host " + other), HasSubstr("this process is on " + host),
                    HasSubstr("--insecure-network"), HasSubstr("--transport tcp")));
  const auto allowed = insecure->Connect(2, there);
  ASSERT_TRUE(allowed.ok()) << allowed.status();
  insecure->Disconnect(*allowed, 0);
}

// Tags have 6 bits for the engines of a device. Two open engines with equal bits would receive each other's messages.
TEST_F(PluginOfMpi, TagsOfAnOpenEngineAreNotUsedAgain) {
  constexpr int kDevice = 900;  // No other test uses it.
  auto first = *Engine::Open(api_, kDevice, /*any_network=*/false);
  for (int i = 1; i < 64; ++i) ASSERT_EQ(Engine::Open(api_, kDevice, false).status(), absl::OkStatus()) << i;
  const absl::Status refused = Engine::Open(api_, kDevice, false).status();
  EXPECT_THAT(std::string(refused.message()), HasSubstr("an open engine of this device from 64 engines ago"));
  EXPECT_EQ(Engine::Open(api_, kDevice, false).status(), absl::OkStatus()) << "this one has other tags";
  first.reset();
  for (int i = 0; i < 64; ++i) ASSERT_EQ(Engine::Open(api_, kDevice, false).status(), absl::OkStatus()) << i;
}

}  // namespace
}  // namespace xlad::collectives
