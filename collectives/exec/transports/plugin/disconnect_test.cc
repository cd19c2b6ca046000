// The UCX plugin does not access the memory of an operation after `disconnect` has returned, even if the peer makes no
// progress.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "collectives/exec/transports/plugin/load.h"

namespace xlad::collectives {
namespace {

constexpr size_t kBytes = 4 << 20;  // Too large for the libraries' own buffers.

// An engine that makes progress only when it is told to, and its peer.
struct End {
  const xlad_transport_api* api = nullptr;
  xlad_transport_engine* engine = nullptr;
  xlad_transport_peer* peer = nullptr;
  xlad_transport_request* request = nullptr;
  std::vector<char> memory = std::vector<char>(kBytes);
  xlad_transport_error error = {};

  int Open(int device) {
    const xlad_transport_options options{sizeof options, device, /*any_network=*/0};
    return api->open(&options, &engine, &error);
  }
  int Connect(End* to, int device) {
    const void* address = nullptr;
    size_t bytes = 0;
    const int code = to->api->address(to->engine, &address, &bytes, &error);
    const xlad_transport_target target{device, address, bytes};
    return code != XLAD_TRANSPORT_OK ? code : api->connect(engine, &target, &peer, &error);
  }
  int Start(bool sends) {
    xlad_transport_message message{peer, /*stream=*/1, memory.data(), memory.data(), memory.size()};
    size_t received = 0;
    return sends ? api->post(engine, &message, &request, &error)
                 : api->post_receive(engine, &message, &request, &received, &error);
  }
};

// Makes progress on the ends for 100 ms and at least 10,000 times, which is enough for messages on this machine. If the
// machine is busy, 100 ms may pass while this thread does not run.
void Move(const std::vector<End*>& ends) {
  const int64_t end_ns = RealClock().NowNs() + 100 * kNsPerMs;
  for (int times = 0; times < 10'000 || RealClock().NowNs() < end_ns; ++times) {
    for (End* end : ends) end->api->progress(end->engine);
  }
}

absl::StatusOr<const xlad_transport_api*> LoadUcx() { return LoadPlugin({"ucx", "libucx-dev", "libucx0"}); }

// One end disconnects while its operation waits for the other end, which makes no progress until then.
TEST(PluginDisconnect, UcxDoesNotAccessTheMemoryAfterwards) {
#if __has_feature(thread_sanitizer)
  GTEST_SKIP() << "UCX crashes under ThreadSanitizer";
#endif
  const auto api = LoadUcx();
  if (absl::IsNotFound(api.status())) GTEST_SKIP() << api.status();
  ASSERT_TRUE(api.ok()) << api.status();
  setenv("UCX_TLS", "tcp", 1);  // With shared memory, an operation needs no progress of the other end.
  for (const bool sends : {false, true}) {
    for (const int flush_ms : {0, 500}) {
      SCOPED_TRACE(absl::StrCat(sends ? "send" : "receive", ", flush ", flush_ms, " ms"));
      End here, there;
      here.api = there.api = *api;
      ASSERT_EQ(here.Open(0), XLAD_TRANSPORT_OK) << here.error.text;
      ASSERT_EQ(there.Open(1), XLAD_TRANSPORT_OK) << there.error.text;
      ASSERT_EQ(here.Connect(&there, 1), XLAD_TRANSPORT_OK) << here.error.text;
      ASSERT_EQ(there.Connect(&here, 0), XLAD_TRANSPORT_OK) << there.error.text;
      std::fill(there.memory.begin(), there.memory.end(), 'x');
      ASSERT_EQ(there.Start(!sends), XLAD_TRANSPORT_PENDING);
      Move({&here, &there});
      ASSERT_EQ(here.Start(sends), XLAD_TRANSPORT_PENDING);
      Move({&here});
      ASSERT_EQ(here.api->test(here.engine, here.request, nullptr, &here.error), XLAD_TRANSPORT_PENDING);
      here.api->disconnect(here.engine, here.peer, flush_ms);
      std::fill(here.memory.begin(), here.memory.end(), '*');
      Move({&here, &there});
      EXPECT_EQ(std::count(here.memory.begin(), here.memory.end(), '*'), std::ssize(here.memory));
      if (sends) {
        EXPECT_EQ(std::count(there.memory.begin(), there.memory.end(), '*'), 0);
      }
      there.api->disconnect(there.engine, there.peer, 0);
      here.api->close(here.engine);
      there.api->close(there.engine);
    }
  }
  unsetenv("UCX_TLS");
}

// A message in fragments has partly arrived when its receiver disconnects. The sender then sends the rest. Another peer
// of the receiver has an operation, too.
TEST(PluginDisconnect, UcxDoesNotWriteTheRestOfAMessage) {
#if __has_feature(thread_sanitizer)
  GTEST_SKIP() << "UCX crashes under ThreadSanitizer";
#endif
  constexpr size_t kLargeBytes = 32 << 20;  // The buffers of a connection are smaller.
  const auto api = LoadUcx();
  if (absl::IsNotFound(api.status())) GTEST_SKIP() << api.status();
  ASSERT_TRUE(api.ok()) << api.status();
  setenv("UCX_TLS", "tcp", 1);
  setenv("UCX_RNDV_THRESH", "inf", 1);
  for (const bool other_sends : {false, true}) {
    SCOPED_TRACE(other_sends ? "send" : "receive");
    End here, there, other;
    here.api = there.api = other.api = *api;
    ASSERT_EQ(here.Open(0), XLAD_TRANSPORT_OK) << here.error.text;
    ASSERT_EQ(there.Open(1), XLAD_TRANSPORT_OK) << there.error.text;
    ASSERT_EQ(other.Open(2), XLAD_TRANSPORT_OK) << other.error.text;
    End here_too;
    here_too.api = *api;
    here_too.engine = here.engine;
    ASSERT_EQ(here.Connect(&there, 1), XLAD_TRANSPORT_OK) << here.error.text;
    ASSERT_EQ(here_too.Connect(&other, 2), XLAD_TRANSPORT_OK) << here_too.error.text;
    ASSERT_EQ(there.Connect(&here, 0), XLAD_TRANSPORT_OK) << there.error.text;
    ASSERT_EQ(other.Connect(&here, 0), XLAD_TRANSPORT_OK) << other.error.text;
    for (End* end : {&here, &there, &here_too, &other}) end->memory.assign(kLargeBytes, end == &there ? 'x' : '.');
    Move({&here, &there, &other});
    ASSERT_EQ(here.Start(/*sends=*/false), XLAD_TRANSPORT_PENDING);
    ASSERT_EQ(here_too.Start(other_sends), XLAD_TRANSPORT_PENDING);
    ASSERT_EQ(there.Start(/*sends=*/true), XLAD_TRANSPORT_PENDING);
    ASSERT_EQ(other.Start(!other_sends), XLAD_TRANSPORT_PENDING);
    Move({&here});
    ASSERT_GT(std::count(here.memory.begin(), here.memory.end(), 'x'), 0);
    here.api->disconnect(here.engine, here.peer, 0);
    EXPECT_EQ(here_too.Start(other_sends), XLAD_TRANSPORT_PEER_LOST);
    EXPECT_NE(std::string(here_too.error.text).find("this engine has stopped"), std::string::npos);
    here_too.api->disconnect(here.engine, here_too.peer, 500);
    std::fill(here.memory.begin(), here.memory.end(), '*');
    std::fill(here_too.memory.begin(), here_too.memory.end(), '*');
    Move({&here, &there, &other});
    EXPECT_EQ(std::count(here.memory.begin(), here.memory.end(), '*'), std::ssize(here.memory));
    EXPECT_EQ(std::count(here_too.memory.begin(), here_too.memory.end(), '*'), std::ssize(here_too.memory));
    there.api->disconnect(there.engine, there.peer, 0);
    other.api->disconnect(other.engine, other.peer, 0);
    for (End* end : {&here, &there, &other}) end->api->close(end->engine);
  }
  unsetenv("UCX_RNDV_THRESH");
  unsetenv("UCX_TLS");
}

}  // namespace
}  // namespace xlad::collectives
