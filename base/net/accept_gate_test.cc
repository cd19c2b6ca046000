#include "base/net/accept_gate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>

#include "base/net/network.h"

namespace xlad {
namespace {

using Connections = std::vector<std::unique_ptr<Connection>>;

// Longer than any test takes, even on a busy machine.
constexpr int64_t kLongMs = 600'000;
constexpr AcceptGateOptions kPatient = {.first_byte_ms = kLongMs, .unknown_ms = kLongMs};

// A server that keeps the connections that the gate hands over.
class AcceptGateTest : public testing::Test {
 protected:
  void Start(const AcceptGateOptions& options, const std::string& address = "127.0.0.1:0") {
    auto gate = AcceptGate::Listen(address, options, [this](int fd) {
      const std::lock_guard lock(mutex_);
      delivered_.push_back(fd);
      changed_.notify_all();
    });
    ASSERT_TRUE(gate.ok()) << gate.status();
    gate_ = *std::move(gate);
    gate_->Begin();
  }
  void TearDown() override {
    gate_.reset();
    for (const int fd : delivered_) close(fd);
  }

  std::unique_ptr<Connection> Dial() { return *TcpNetwork().Dial(gate_->Address(), kLongMs); }
  static void SendByte(Connection* connection) {
    const std::byte byte{42};
    ASSERT_TRUE(connection->Write({&byte, 1}).ok());
  }
  void AwaitDelivered(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return delivered_.size() >= count; });
  }
  // Polls the gate's counts until the condition holds for them.
  template <typename Condition>
  void Await(const Condition& holds) {
    while (!holds(gate_->Counts())) std::this_thread::yield();
  }
  // Returns the address "127.0.0.1:PORT" of this test's end of a delivered connection.
  std::string PeerOf(size_t index) {
    const std::lock_guard lock(mutex_);
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    getpeername(delivered_[index], reinterpret_cast<sockaddr*>(&address), &size);
    return absl::StrCat("127.0.0.1:", ntohs(reinterpret_cast<sockaddr_in*>(&address)->sin_port));
  }
  // Expects that the connection has been closed at the other end.
  static void ExpectClosed(Connection* connection) {
    std::byte byte{};
    EXPECT_FALSE(connection->Read({&byte, 1}).ok());
  }

  std::unique_ptr<AcceptGate> gate_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<int> delivered_;
};

TEST_F(AcceptGateTest, AConnectionIsHandedOverAfterItsFirstByte) {
  Start(kPatient);
  const auto silent = Dial();
  const auto active = Dial();
  SendByte(active.get());
  AwaitDelivered(1);
  Await([](const auto& counts) { return counts.silent == 1 && counts.unknown == 1; });
  char byte = 0;
  EXPECT_EQ(recv(delivered_[0], &byte, 1, 0), 1) << "the byte is left for the server";
  EXPECT_EQ(byte, 42);
}

TEST_F(AcceptGateTest, TheOldestUnknownConnectionIsClosedAndKnownOnesStayOpen) {
  Start({.max_unknown = 8, .first_byte_ms = kLongMs, .unknown_ms = kLongMs});
  const auto known = Dial();
  SendByte(known.get());
  AwaitDelivered(1);
  gate_->MarkKnown(PeerOf(0), "alice");
  EXPECT_EQ(gate_->Counts().known, 1);
  Connections idle;
  for (int i = 0; i < 100; ++i) idle.push_back(Dial());
  Await([](const auto& counts) { return counts.closed_early == 92; });
  for (int i = 0; i < 92; ++i) ExpectClosed(idle[i].get());
  const auto late = Dial();  // There is still room for a connection that sends a byte.
  SendByte(late.get());
  AwaitDelivered(2);
  EXPECT_EQ(gate_->Counts().known, 1);
}

TEST_F(AcceptGateTest, AGateThatHasStoppedKeepsOnlyTheConnectionsThatItHasHandedOver) {
  Start(kPatient, "127.98.41.7:0");  // No other process uses the ports of this address.
  const std::string address = gate_->Address();
  const auto silent = Dial();
  const auto active = Dial();
  SendByte(active.get());
  AwaitDelivered(1);
  Await([](const auto& counts) { return counts.silent == 1; });
  gate_->StopAccepting();
  ExpectClosed(silent.get());
  EXPECT_TRUE(TcpNetwork().Listen(address).ok()) << "the port is still in use";
  gate_->MarkKnown(PeerOf(0), "alice");
  const AcceptGateCounts counts = gate_->Counts();
  EXPECT_EQ(counts.silent, 0);
  EXPECT_EQ(counts.known, 1);
  gate_->StopAccepting();
}

TEST(AcceptGateDeathTest, StopAcceptingMustNotBeCalledByDeliver) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto stop_in_deliver = [] {
    AcceptGate* stopped = nullptr;
    const auto gate = *AcceptGate::Listen("127.0.0.1:0", kPatient, [&stopped](int) { stopped->StopAccepting(); });
    stopped = gate.get();
    gate->Begin();
    const auto connection = *TcpNetwork().Dial(gate->Address(), kLongMs);
    const std::byte byte{42};
    connection->Write({&byte, 1}).IgnoreError();
    while (true) std::this_thread::yield();
  };
  EXPECT_DEATH(stop_in_deliver(), "must not stop its gate");
}

// Small limits are also exact.
TEST_F(AcceptGateTest, SmallLimitsAreKept) {
  for (const int most : {1, 2, 3, 6, 15}) {
    Start({.max_connections = most, .first_byte_ms = kLongMs});
    const int most_unknown = std::max(1, most / 2);
    Connections idle;
    for (int i = 0; i < 20; ++i) idle.push_back(Dial());
    Await([&](const auto& counts) { return counts.silent + counts.closed_early == 20; });
    EXPECT_EQ(gate_->Counts().silent, most_unknown) << most;
    gate_.reset();
  }
}

// At most six connections are known, so that two others can arrive.
TEST_F(AcceptGateTest, AnOwnerWithManyConnectionsDoesNotKeepOthersOut) {
  Start({.max_unknown = 2, .max_connections = 8, .first_byte_ms = kLongMs, .unknown_ms = kLongMs});
  Connections connections;
  const auto add = [&](const std::string& owner) {
    connections.push_back(Dial());
    SendByte(connections.back().get());
    AwaitDelivered(connections.size());
    const std::string peer = PeerOf(connections.size() - 1);
    gate_->MarkKnown(peer, owner);
    gate_->MarkKnown(peer, owner);  // It is counted once.
    return connections.back().get();
  };
  Connection* const first = add("alice");
  Connection* const of_bob = add("bob");
  for (int i = 0; i < 4; ++i) add("mallory");
  EXPECT_EQ(gate_->Counts().closed_early, 0);
  for (int i = 0; i < 20; ++i) ExpectClosed(add("mallory"));
  Connection* const newest_of_mallory = connections[5].get();
  Connection* const second = add("alice");
  ExpectClosed(newest_of_mallory);
  EXPECT_EQ(gate_->Counts().closed_early, 21);
  // When a connection ends, its place is free.
  shutdown(delivered_[1], SHUT_RDWR);
  ExpectClosed(of_bob);
  Await([](const auto& counts) { return counts.known == 5; });
  add("carol");
  EXPECT_EQ(gate_->Counts().closed_early, 21);
  for (const auto& [open, index] : {std::pair(first, 0), std::pair(second, 26)}) {
    std::byte byte{42};
    EXPECT_EQ(send(delivered_[index], &byte, 1, MSG_NOSIGNAL), 1);
    EXPECT_TRUE(open->Read({&byte, 1}).ok());
  }
}

TEST_F(AcceptGateTest, AConnectionThatStaysSilentIsClosed) {
  Start({.first_byte_ms = 1, .unknown_ms = kLongMs});
  const auto silent = Dial();
  ExpectClosed(silent.get());
}

TEST_F(AcceptGateTest, AConnectionThatStaysUnknownIsClosed) {
  Start({.first_byte_ms = kLongMs, .unknown_ms = 100});
  // On a busy machine, a connection may be closed before it is known.
  Connections known;
  while (gate_->Counts().known == 0) {
    known.push_back(Dial());
    SendByte(known.back().get());
    AwaitDelivered(known.size());
    gate_->MarkKnown(PeerOf(known.size() - 1), "alice");
  }
  const auto unknown = Dial();
  SendByte(unknown.get());
  ExpectClosed(unknown.get());
  EXPECT_EQ(gate_->Counts().known, 1);
}

TEST_F(AcceptGateTest, AnUnknownConnectionThatReceivesTooMuchIsClosed) {
  AcceptGateOptions options = kPatient;
  options.max_unknown_bytes = 1000;
  Start(options);
  const std::vector<std::byte> much(2000);
  const auto known = Dial(), unknown = Dial();
  SendByte(known.get());
  AwaitDelivered(1);
  gate_->MarkKnown(PeerOf(0), "alice");
  ASSERT_TRUE(known->Write(much).ok());
  ASSERT_TRUE(unknown->Write(much).ok());
  ExpectClosed(unknown.get());
  Await([](const auto& counts) { return counts.closed_early == 1; });
  EXPECT_EQ(gate_->Counts().known, 1);
  char byte = 0;
  EXPECT_EQ(recv(delivered_[1], &byte, 1, MSG_DONTWAIT), 0) << "the server does not get what has arrived";
}

TEST_F(AcceptGateTest, AConnectionIsRemovedWhenTheServerShutsItDown) {
  Start(kPatient);
  const auto connection = Dial();
  SendByte(connection.get());
  AwaitDelivered(1);
  shutdown(delivered_[0], SHUT_RDWR);
  Await([](const auto& counts) { return counts.unknown == 0; });
  ExpectClosed(connection.get());
}

TEST_F(AcceptGateTest, TheErrorNamesAPortInUse) {
  Start({});
  const auto second = AcceptGate::Listen(gate_->Address(), {}, [](int) {});
  EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(second.status().message(), testing::HasSubstr(gate_->Address()));
}

}  // namespace
}  // namespace xlad
