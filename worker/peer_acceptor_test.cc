// The data port of a worker: hellos, and misuse by unknown clients.
#include "worker/peer_acceptor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <condition_variable>
#include <vector>

#include "base/log.h"
#include "base/net/network.h"
#include "base/random.h"
#include "base/testing/open_files.h"
#include "collectives/exec/transports/frame.h"

namespace xlad::worker {
namespace {

using ::testing::HasSubstr;

PeerHello HelloOf(const std::string& job, int64_t attempt, int device = 0) {
  PeerHello hello;
  hello.set_job_id(job);
  hello.set_attempt(attempt);
  hello.set_from_device(device);
  return hello;
}

// Longer than any test takes, however busy the machine is.
constexpr int64_t kLongMs = 600'000;

class PeerAcceptorTest : public ::testing::Test {
 protected:
  explicit PeerAcceptorTest(int64_t greeting_ms = kLongMs, int64_t waiting_ms = kLongMs)
      : acceptor_(*PeerAcceptor::Listen("127.0.0.1:0", {16, 32, greeting_ms, waiting_ms})) {
    SetLogLevel(LogLevel::kError);
  }
  ~PeerAcceptorTest() override { SetLogLevel(LogLevel::kInfo); }

  std::unique_ptr<Connection> Dial() { return *TcpNetwork().Dial(acceptor_->address(), kLongMs); }
  std::unique_ptr<Connection> DialWith(const PeerHello& hello) {
    std::unique_ptr<Connection> connection = Dial();
    EXPECT_TRUE(collectives::WriteBlock(connection.get(), hello.SerializeAsString()).ok());
    return connection;
  }
  // The reason for which a connection is refused; "closed" if there is no answer.
  static std::string Refusal(Connection* connection) {
    const absl::StatusOr<std::string> block = collectives::ReadBlock(connection);
    PeerWelcome welcome;
    return block.ok() && welcome.ParseFromString(*block) ? welcome.refused() : "closed";
  }
  void Add(const TaskKey& key) {
    acceptor_->Add(key, [this](FileDescriptor socket, const PeerHello& hello, const std::string& address) {
      std::lock_guard<std::mutex> lock(mutex_);
      taken_.emplace_back(AdoptSocket(socket.Release(), address), hello);
      changed_.notify_all();
    });
  }
  // Waits until this many connections have been taken.
  void WaitForTaken(size_t count) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return taken_.size() >= count; });
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::pair<std::unique_ptr<Connection>, PeerHello>> taken_;
  const std::unique_ptr<PeerAcceptor> acceptor_;
};

TEST_F(PeerAcceptorTest, PassesConnectionsToTheirAttemptWithWhatFollowsTheHello) {
  Add({"job", 1});
  const auto connection = DialWith(HelloOf("job", 1, 5));
  ASSERT_TRUE(connection->Write(collectives::AsBytes("after")).ok());
  WaitForTaken(1);
  EXPECT_EQ(taken_[0].second.from_device(), 5);
  std::string after(5, '\0');
  ASSERT_TRUE(collectives::ReadFully(taken_[0].first.get(),
                                     absl::MakeSpan(reinterpret_cast<std::byte*>(after.data()), after.size()))
                  .ok());
  EXPECT_EQ(after, "after");
}

TEST_F(PeerAcceptorTest, TheProgramsOfASessionBelongToItsAttempt) {
  const auto early = DialWith(HelloOf("session/1", 1));
  Add({"session", 1});
  const auto later = DialWith(HelloOf("session/2", 1));
  WaitForTaken(2);
}

TEST_F(PeerAcceptorTest, AHelloWaitsForItsAttempt) {
  const auto early = DialWith(HelloOf("job", 3, 1));
  const auto other = DialWith(HelloOf("other", 1));
  const auto old = DialWith(HelloOf("job", 2));
  Add({"job", 3});
  EXPECT_THAT(Refusal(old.get()), HasSubstr("a later attempt of the job runs here"));
  WaitForTaken(1);
  EXPECT_EQ(taken_[0].second.from_device(), 1);
  const auto stale = DialWith(HelloOf("job", 2));
  EXPECT_THAT(Refusal(stale.get()), HasSubstr("a later attempt of the job runs here"));
  acceptor_->Remove({"job", 3});
  Add({"other", 1});
  WaitForTaken(2);
}

TEST_F(PeerAcceptorTest, IdleConnectionsDoNotBlockOthers) {
  if (!MayOpenFiles(4096)) GTEST_SKIP() << "this process may not open 4096 files";
  std::vector<std::unique_ptr<Connection>> idle;
  for (int i = 0; i < 1000; ++i) idle.push_back(Dial());
  Add({"job", 1});
  std::vector<std::unique_ptr<Connection>> peers;
  for (int i = 0; i < 10; ++i) peers.push_back(DialWith(HelloOf("job", 1, i)));
  WaitForTaken(10);
}

TEST_F(PeerAcceptorTest, HellosForUnknownJobsDoNotBlockOthers) {
  if (!MayOpenFiles(4096)) GTEST_SKIP() << "this process may not open 4096 files";
  std::vector<std::unique_ptr<Connection>> unknown;
  for (int i = 0; i < 1100; ++i) unknown.push_back(DialWith(HelloOf("unknown", i)));
  const auto early = DialWith(HelloOf("job", 1));
  EXPECT_EQ(Refusal(unknown[0].get()), "closed") << "the oldest connections are closed first";
  Add({"job", 1});
  WaitForTaken(1);
}

TEST_F(PeerAcceptorTest, GarbageIsHarmless) {
  const std::unique_ptr<Random> random = SeededRandom(5);
  for (int i = 0; i < 300; ++i) {
    const auto client = Dial();
    std::string noise(random->Below(200), '\0');
    for (char& c : noise) c = static_cast<char>(random->Next());
    if (i % 3 == 0 && noise.size() >= 4) noise[1] = noise[2] = noise[3] = 0;  // A size within the limit of a hello.
    client->Write(collectives::AsBytes(noise)).IgnoreError();
  }
  Add({"job", 1});
  const auto peer = DialWith(HelloOf("job", 1));
  WaitForTaken(1);
}

TEST_F(PeerAcceptorTest, AHelloMayArriveInPieces) {
  Add({"job", 1});
  const auto peer = Dial();
  const std::string hello = HelloOf("job", 1, 9).SerializeAsString();
  std::string bytes(4, '\0');
  bytes[0] = static_cast<char>(hello.size());
  bytes += hello;
  for (const char& byte : bytes) {
    ASSERT_TRUE(peer->Write({reinterpret_cast<const std::byte*>(&byte), 1}).ok());
  }
  WaitForTaken(1);
  EXPECT_EQ(taken_[0].second.from_device(), 9);
}

TEST_F(PeerAcceptorTest, ContinuesWithoutDescriptors) {
  Add({"job", 1});
  const int next = dup(0);
  close(next);
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  const rlimit small{static_cast<rlim_t>(next) + 50, before.rlim_max};
  setrlimit(RLIMIT_NOFILE, &small);
  std::vector<std::unique_ptr<Connection>> idle;
  while (true) {
    auto connection = TcpNetwork().Dial(acceptor_->address(), 1000);
    if (!connection.ok()) break;  // From here on, this process has no descriptor left.
    idle.push_back(*std::move(connection));
  }
  idle.clear();
  const auto peer = DialWith(HelloOf("job", 1));
  WaitForTaken(1);
  setrlimit(RLIMIT_NOFILE, &before);
}

class ShortGreetings : public PeerAcceptorTest {
 protected:
  ShortGreetings() : PeerAcceptorTest(/*greeting_ms=*/1) {}
};

TEST_F(ShortGreetings, ASilentConnectionExpires) {
  const auto silent = Dial();
  EXPECT_EQ(Refusal(silent.get()), "closed");
}

class ShortWaits : public PeerAcceptorTest {
 protected:
  ShortWaits() : PeerAcceptorTest(kLongMs, /*waiting_ms=*/1) {}
};

TEST_F(ShortWaits, AConnectionForAnUnknownAttemptExpires) {
  const auto unknown = DialWith(HelloOf("job", 1));
  EXPECT_THAT(Refusal(unknown.get()), HasSubstr("no such attempt was started on this worker"));
}

TEST(PeerAcceptor, ListensAgainOnThePortOfAnEndedWorker) {
  auto first = PeerAcceptor::Listen("127.0.0.1:0", {16, 32, /*greeting_ms=*/1, /*waiting_ms=*/1});
  ASSERT_TRUE(first.ok()) << first.status();
  const std::string address = (*first)->address();
  auto silent = TcpNetwork().Dial(address, kLongMs);
  ASSERT_TRUE(silent.ok()) << silent.status();
  // The acceptor is the first to close the connection, so the kernel keeps its port for a while.
  EXPECT_FALSE(collectives::ReadBlock(silent->get()).ok());
  silent->reset();
  first->reset();
  EXPECT_TRUE(PeerAcceptor::Listen(address).ok());
}

TEST(PeerAcceptor, ListensOnAddressesOtherThanLoopbackToo) {
  const auto everywhere = PeerAcceptor::Listen("0.0.0.0:0");
  ASSERT_TRUE(everywhere.ok()) << everywhere.status();
  EXPECT_THAT((*everywhere)->address(), testing::StartsWith("0.0.0.0:"));
  // No name server is asked for a name with an empty label.
  const absl::Status status = PeerAcceptor::Listen("no..such.host:0").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("no..such.host"));
}

}  // namespace
}  // namespace xlad::worker
