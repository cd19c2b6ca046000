// The UCX plugin does not access the memory of an operation after `disconnect` has returned, even if the peer makes no
// progress or has been killed.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/clock.h"
#include "base/testing/case_count.h"
#include "collectives/exec/transports/plugin/load.h"

namespace xlad::collectives {
namespace {

constexpr size_t kBytes = 4 << 20;        // Too large for the libraries' own buffers.
constexpr size_t kLargeBytes = 32 << 20;  // Larger than the buffers of a connection.

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
  int Start(bool sends, int32_t stream = 1) {
    xlad_transport_message message{peer, stream, memory.data(), memory.data(), memory.size()};
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

// Sets a variable of the environment, or removes it if the value is null, while the object exists.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const char* value) : name_(name) {
    if (const char* const before = std::getenv(name)) before_ = before;
    Set(value);
  }
  ~ScopedVariable() { Set(before_.has_value() ? before_->c_str() : nullptr); }

 private:
  void Set(const char* value) {
    if (value == nullptr) unsetenv(name_);
    if (value != nullptr) setenv(name_, value, 1);
  }

  const char* const name_;
  std::optional<std::string> before_;
};

// The parameter is the value of UCX_TLS. If it is null, UCX may use shared memory.
class PluginDisconnect : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
#if __has_feature(thread_sanitizer)
    GTEST_SKIP() << "UCX crashes under ThreadSanitizer";
#endif
    const auto api = LoadPlugin({"ucx", "libucx-dev", "libucx0"});
    if (absl::IsNotFound(api.status())) GTEST_SKIP() << api.status();
    ASSERT_TRUE(api.ok()) << api.status();
    api_ = *api;
  }

  // A case takes seconds, so each transport runs one half of the cases, or all of them if XLAD_ALL_CASES is set.
  static bool HasCase(bool second_half) { return AllCases() || second_half == (GetParam() == nullptr); }

  const xlad_transport_api* api_ = nullptr;

 private:
  const ScopedVariable transports_{"UCX_TLS", GetParam()};
  const ScopedVariable memory_{"UCX_MM_ERROR_HANDLING", GetParam() == nullptr ? "y" : nullptr};
};

std::string NameOf(const testing::TestParamInfo<const char*>& info) {
  return info.param == nullptr ? "shared_memory" : info.param;
}
INSTANTIATE_TEST_SUITE_P(, PluginDisconnect, testing::Values("tcp", nullptr), NameOf);

// One end disconnects while its operation waits for the other end, which makes no progress until then.
TEST_P(PluginDisconnect, UcxDoesNotAccessTheMemoryAfterwards) {
  for (const bool sends : {false, true}) {
    for (const int flush_ms : {0, 500}) {
      if (!HasCase(sends == (flush_ms == 0))) continue;
      SCOPED_TRACE(absl::StrCat(sends ? "send" : "receive", ", flush ", flush_ms, " ms"));
      End here, there;
      here.api = there.api = api_;
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
}

// A message in fragments has partly arrived when its receiver disconnects. The sender then sends the rest. Another peer
// of the receiver has an operation, too.
TEST_P(PluginDisconnect, UcxDoesNotWriteTheRestOfAMessage) {
  const ScopedVariable fragments("UCX_RNDV_THRESH", "inf");
  for (const bool other_sends : {false, true}) {
    if (!HasCase(other_sends)) continue;
    SCOPED_TRACE(other_sends ? "send" : "receive");
    End here, there, other;
    here.api = there.api = other.api = api_;
    ASSERT_EQ(here.Open(0), XLAD_TRANSPORT_OK) << here.error.text;
    ASSERT_EQ(there.Open(1), XLAD_TRANSPORT_OK) << there.error.text;
    ASSERT_EQ(other.Open(2), XLAD_TRANSPORT_OK) << other.error.text;
    End here_too;
    here_too.api = api_;
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
}

// Like the last frame of a peer after its task has ended. UCX writes its warnings to the standard output.
TEST_P(PluginDisconnect, AMessageThatIsNotReceivedCausesNoWarning) {
  End here, there;
  here.api = there.api = api_;
  ASSERT_EQ(here.Open(0), XLAD_TRANSPORT_OK) << here.error.text;
  ASSERT_EQ(there.Open(1), XLAD_TRANSPORT_OK) << there.error.text;
  ASSERT_EQ(here.Connect(&there, 1), XLAD_TRANSPORT_OK) << here.error.text;
  ASSERT_EQ(there.Connect(&here, 0), XLAD_TRANSPORT_OK) << there.error.text;
  there.memory.resize(64);
  there.Start(/*sends=*/true);
  Move({&here, &there});
  testing::internal::CaptureStdout();
  for (End* end : {&here, &there}) end->api->disconnect(end->engine, end->peer, 0);
  for (End* end : {&here, &there}) end->api->close(end->engine);
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
}

// UCX may warn of the large message, whose payload it would have to request from the sender.
TEST_P(PluginDisconnect, ASmallMessageBehindALargeOneCausesNoWarning) {
  const ScopedVariable requested("UCX_RNDV_THRESH", "16k");
  End here, there, small;
  here.api = there.api = small.api = api_;
  ASSERT_EQ(here.Open(0), XLAD_TRANSPORT_OK) << here.error.text;
  ASSERT_EQ(there.Open(1), XLAD_TRANSPORT_OK) << there.error.text;
  ASSERT_EQ(here.Connect(&there, 1), XLAD_TRANSPORT_OK) << here.error.text;
  ASSERT_EQ(there.Connect(&here, 0), XLAD_TRANSPORT_OK) << there.error.text;
  small.engine = there.engine;
  small.peer = there.peer;
  small.memory.resize(64);
  ASSERT_EQ(there.Start(/*sends=*/true), XLAD_TRANSPORT_PENDING);
  small.Start(/*sends=*/true, /*stream=*/0);
  Move({&here, &there});
  testing::internal::CaptureStdout();
  for (End* end : {&here, &there}) end->api->disconnect(end->engine, end->peer, 0);
  for (End* end : {&here, &there}) end->api->close(end->engine);
  const std::string output = testing::internal::GetCapturedStdout();
  const std::vector<std::string> parts = absl::StrSplit(output, "was not matched");
  EXPECT_LE(parts.size(), 2u) << output;
}

std::string AddressOf(const End& end) {
  const void* address = nullptr;
  size_t bytes = 0;
  xlad_transport_error error = {};
  EXPECT_EQ(end.api->address(end.engine, &address, &bytes, &error), XLAD_TRANSPORT_OK) << error.text;
  return std::string(static_cast<const char*>(address), bytes);
}

// Sends an address to another process and receives that of the other process.
void Exchange(int fd, const std::string& own, std::string* theirs) {
  ASSERT_EQ(send(fd, own.data(), own.size(), MSG_NOSIGNAL), std::ssize(own));
  theirs->resize(64 << 10);
  theirs->resize(std::max<ssize_t>(recv(fd, theirs->data(), theirs->size(), 0), 0));
}

int ConnectTo(const std::string& address, int device, End* end) {
  const xlad_transport_target target{device, address.data(), address.size()};
  return end->api->connect(end->engine, &target, &end->peer, &end->error);
}

// Runs in a process of its own: sends a message until the process is killed.
[[noreturn]] void SendUntilKilled(const xlad_transport_api* api, int fd) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  End end;
  end.api = api;
  end.memory.assign(kLargeBytes, 'x');
  std::string address;
  if (end.Open(1) == XLAD_TRANSPORT_OK) Exchange(fd, AddressOf(end), &address);
  if (address.empty() || ConnectTo(address, 0, &end) != XLAD_TRANSPORT_OK) _exit(1);
  if (end.Start(/*sends=*/true) != XLAD_TRANSPORT_PENDING) _exit(1);
  while (true) api->progress(end.engine);
}

bool HasEnded(pid_t child) {
  siginfo_t info = {};
  return waitid(P_PID, child, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == child;
}

// The sender of a message is killed when a part of the message has arrived.
TEST_P(PluginDisconnect, UcxDoesNotWriteTheRestOfAMessageOfAKilledProcess) {
  const ScopedVariable fragments("UCX_RNDV_THRESH", "inf");
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
  const pid_t child = fork();  // Before this process opens an engine, because threads of UCX do not survive a fork.
  if (child == 0) SendUntilKilled(api_, pair[1]);
  close(pair[1]);
  End here;
  here.api = api_;
  ASSERT_EQ(here.Open(0), XLAD_TRANSPORT_OK) << here.error.text;
  std::string address;
  Exchange(pair[0], AddressOf(here), &address);
  ASSERT_FALSE(address.empty()) << "the child has failed";
  ASSERT_EQ(ConnectTo(address, 1, &here), XLAD_TRANSPORT_OK) << here.error.text;
  here.memory.assign(kLargeBytes, '.');
  ASSERT_EQ(here.Start(/*sends=*/false), XLAD_TRANSPORT_PENDING);
  // Without these limits, a child that has failed or a message that never arrives would stop all tests.
  constexpr int64_t kLimitNs = 300 * kNsPerSecond;
  const int64_t end_ns = RealClock().NowNs() + kLimitNs;
  while (here.memory[0] == '.' && !HasEnded(child) && RealClock().NowNs() < end_ns) api_->progress(here.engine);
  EXPECT_EQ(here.memory[0], 'x') << "nothing has arrived";
  kill(child, SIGKILL);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status)) << status;
  close(pair[0]);
  Move({&here});
  here.api->disconnect(here.engine, here.peer, 0);
  std::fill(here.memory.begin(), here.memory.end(), '*');
  Move({&here});
  EXPECT_EQ(std::count(here.memory.begin(), here.memory.end(), '*'), std::ssize(here.memory));
  api_->close(here.engine);
}

}  // namespace
}  // namespace xlad::collectives
