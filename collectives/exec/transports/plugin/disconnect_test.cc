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
    xlad_transport_message message{peer, /*stream=*/1, memory.data(), memory.data(), kBytes};
    size_t received = 0;
    return sends ? api->post(engine, &message, &request, &error)
                 : api->post_receive(engine, &message, &request, &received, &error);
  }
};

// Makes progress on one or two ends for 100 ms, which is enough for messages on this machine.
void Move(const std::vector<End*>& ends) {
  const int64_t end_ns = RealClock().NowNs() + 100 * kNsPerMs;
  while (RealClock().NowNs() < end_ns) {
    for (End* end : ends) end->api->progress(end->engine);
  }
}

// One end disconnects while its operation waits for the other end, which makes no progress until then.
TEST(PluginDisconnect, UcxDoesNotAccessTheMemoryAfterwards) {
#if __has_feature(thread_sanitizer)
  GTEST_SKIP() << "UCX crashes under ThreadSanitizer";
#endif
  const auto api = LoadPlugin({"ucx", "libucx-dev", "libucx0"});
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

}  // namespace
}  // namespace xlad::collectives
