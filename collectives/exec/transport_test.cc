// Transport conformance: one suite, run on in-process links, on connections, and on both together.
#include "collectives/exec/transport.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <future>

#include "base/log.h"
#include "base/random.h"
#include "collectives/exec/testing/test_world.h"
#include "collectives/exec/transports/tcp_frame.h"

namespace xlad::collectives {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct TransportCase {
  std::string name;
  DevicesOfWorkers placement;
  size_t ring_bytes = 0;
};

class TransportTest : public ::testing::TestWithParam<TransportCase> {
 protected:
  static ConstPiece Bytes(const std::string& text) { return AsBytes(text); }
  static std::string Text(const Incoming& message) {
    std::string text;
    for (const ConstPiece& piece : message.pieces) {
      text.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    }
    EXPECT_EQ(std::ssize(text), message.bytes);
    return text;
  }
  static MessageHeader Header(uint32_t index) {
    MessageHeader header;
    header.step = -3;
    header.index = index;
    return header;
  }
};

TEST_P(TransportTest, DeliversInOrderWithManyMessagesInFlight) {
  TestWorld world(GetParam().placement, 4, GetParam().ring_bytes);
  const int n = world.num_devices();
  world.Run([&](int device) {
    const int next = (device + 1) % n, previous = (device + n - 1) % n;
    SendLink* to = *world.transport(device).OpenSend(next, 0);
    ReceiveLink* from = *world.transport(device).OpenReceive(previous, 0);
    for (uint32_t i = 0; i < 300; ++i) {
      const std::string payload(i * 37 % 9000, static_cast<char>('a' + i % 26));
      ASSERT_TRUE(to->Post(Header(i), {Bytes(payload)}).ok());
      const absl::StatusOr<Incoming> message = from->Next();
      ASSERT_TRUE(message.ok()) << message.status();
      EXPECT_EQ(message->header, Header(i));
      EXPECT_EQ(Text(*message), payload);
      ASSERT_TRUE(from->Release().ok());
      ASSERT_TRUE(to->WaitReleased(i + 1).ok());
    }
  });
}

TEST_P(TransportTest, SlotsBoundTheSenderAndSeveralMessagesMayBeHeld) {
  TestWorld world(GetParam().placement, /*slots=*/4, GetParam().ring_bytes);
  std::atomic<int> posted = 0;
  std::promise<void> held;
  world.Run([&](int device) {
    const std::string big(20000, 'x'), end = "!";
    if (device == 0) {
      SendLink* to = *world.transport(0).OpenSend(1, 5);
      for (uint32_t i = 0; i < 12; ++i) {
        ASSERT_TRUE(to->Post(Header(i), {Bytes(big), Bytes(end)}).ok());
        ++posted;
      }
      ASSERT_TRUE(to->WaitReleased(12).ok());
    } else if (device == 1) {
      ReceiveLink* from = *world.transport(1).OpenReceive(0, 5);
      std::vector<Incoming> messages;
      for (int i = 0; i < 4; ++i) messages.push_back(*from->Next());
      EXPECT_LE(posted.load(), 4);
      for (int i = 0; i < 4; ++i) {
        EXPECT_EQ(messages[i].header.index, i);
        EXPECT_EQ(Text(messages[i]), big + "!");
      }
      for (int i = 0; i < 4; ++i) ASSERT_TRUE(from->Release().ok());
      for (int i = 4; i < 12; ++i) {
        EXPECT_EQ(Text(*from->Next()), big + "!");
        ASSERT_TRUE(from->Release().ok());
      }
    }
  });
}

TEST_P(TransportTest, ChannelsAreIndependent) {
  TestWorld world(GetParam().placement, 4, GetParam().ring_bytes);
  world.Run([&](int device) {
    if (device == 0) {
      for (int channel : {2, 1, 0}) {
        SendLink* to = *world.transport(0).OpenSend(1, channel);
        ASSERT_TRUE(to->Post(Header(0), {Bytes(absl::StrCat("channel ", channel))}).ok());
        ASSERT_TRUE(to->Post(Header(1), {}).ok());
      }
      // The payloads above were temporaries: small messages are copied by every transport.
    } else if (device == 1) {
      for (int channel : {0, 1, 2}) {
        ReceiveLink* from = *world.transport(1).OpenReceive(0, channel);
        EXPECT_EQ(Text(*from->Next()), absl::StrCat("channel ", channel));
        EXPECT_EQ(Text(*from->Next()), "");
        ASSERT_TRUE(from->Release().ok());
        ASSERT_TRUE(from->Release().ok());
      }
    }
  });
}

TEST_P(TransportTest, LargeMessagesBothWaysAtOnce) {
  TestWorld world(GetParam().placement, 4, GetParam().ring_bytes);
  world.Run([&](int device) {
    if (device > 1) return;
    const int peer = 1 - device;
    std::vector<std::byte> mine(8 << 20, static_cast<std::byte>(device + 1));
    SendLink* to = *world.transport(device).OpenSend(peer, 0);
    ReceiveLink* from = *world.transport(device).OpenReceive(peer, 0);
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(to->Post(Header(i), {ConstPiece(mine)}).ok());
    for (int i = 0; i < 3; ++i) {
      const Incoming message = *from->Next();
      EXPECT_EQ(message.bytes, 8 << 20);
      EXPECT_EQ(message.pieces.back().back(), static_cast<std::byte>(peer + 1));
      ASSERT_TRUE(from->Release().ok());
    }
    ASSERT_TRUE(to->WaitReleased(3).ok());
  });
}

TEST_P(TransportTest, AbortWakesAllWaitingDevices) {
  TestWorld world(GetParam().placement, 4, GetParam().ring_bytes);
  const int n = world.num_devices();
  std::atomic<int> woken = 0;
  world.Run([&](int device) {
    // All other devices are connected to device 0 and wait for a message from it that is never sent.
    if (device == 0) {
      for (int peer = 1; peer < n; ++peer) {
        ASSERT_TRUE((*world.transport(0).OpenSend(peer, 0))->Post(Header(0), {}).ok());
      }
      world.worker_of(0).abort.Raise({absl::DataLossError("device 0 gives up"), "w9"});
      return;
    }
    ReceiveLink* from = *world.transport(device).OpenReceive(0, 0);
    ASSERT_TRUE(from->Next().ok() || world.worker_of(device).abort.raised());
    const absl::Status status = from->Next().status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("device 0 gives up"));
    EXPECT_EQ(world.worker_of(device).abort.failure().suspect_worker, "w9");
    ++woken;
  });
  EXPECT_EQ(woken.load(), n - 1);
}

TEST_P(TransportTest, RefusesInvalidLinks) {
  TestWorld world(GetParam().placement, 4, GetParam().ring_bytes);
  EXPECT_FALSE(world.transport(0).OpenSend(99, 0).ok());
  EXPECT_FALSE(world.transport(0).OpenReceive(0, 0).ok());
  EXPECT_FALSE(world.transport(0).OpenSend(1, -1).ok());
  EXPECT_FALSE(world.transport(0).OpenSend(1, kMaxChannels).ok());
}

// Rings of 200 bytes: no frame fits, so that every frame is split and wraps around.
INSTANTIATE_TEST_SUITE_P(All, TransportTest,
                         ::testing::Values(TransportCase{"in_process", {{0, 1, 2, 3}}},
                                           TransportCase{"tcp", {{0}, {1}, {2}, {3}}},
                                           TransportCase{"shared", {{0}, {1}, {2}, {3}}, 256 << 10},
                                           TransportCase{"shared_small", {{0}, {1}, {2}, {3}}, 200},
                                           TransportCase{"mixed", {{0, 2}, {1, 3, 4}}},
                                           TransportCase{"mixed_shared", {{0, 2}, {1, 3, 4}}, 4096}),
                         [](const auto& info) { return info.param.name; });

class TcpFabricTest : public ::testing::TestWithParam<size_t> {};  // The size of the rings in bytes.

TEST_P(TcpFabricTest, FinishIsNotAFailure) {
  TestWorld world({{0}, {1}}, 4, GetParam());
  world.Run([&](int device) {
    SendLink* to = *world.transport(device).OpenSend(1 - device, 0);
    ReceiveLink* from = *world.transport(device).OpenReceive(1 - device, 0);
    ASSERT_TRUE(to->Post({}, {}).ok());
    ASSERT_TRUE(from->Next().ok());
    ASSERT_TRUE(from->Release().ok());
    EXPECT_TRUE(world.worker_of(device).fabric->Finish().ok());
    // A call after the peer has finished fails.
    const absl::Status status = from->Next().status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), HasSubstr("has finished and sends nothing more"));
  });
  EXPECT_FALSE(world.worker(0).abort.raised());
  EXPECT_FALSE(world.worker(1).abort.raised());
}

TEST_P(TcpFabricTest, AllDevicesNameALostPeer) {
  TestWorld world({{0}, {1}, {2}}, 4, GetParam());
  std::promise<void> connected[2];
  world.Run([&](int device) {
    for (int peer = 0; peer < 3; ++peer) {
      if (peer == device) continue;
      ASSERT_TRUE((*world.transport(device).OpenSend(peer, 0))->Post({}, {}).ok());
      ASSERT_TRUE((*world.transport(device).OpenReceive(peer, 0))->Next().ok());
    }
    if (device == 2) {
      for (std::promise<void>& promise : connected) promise.get_future().wait();
      world.worker(2).fabric.reset();  // Like a killed process: closed without notice.
      return;
    }
    connected[device].set_value();
    // Device 0 waits for device 1, which is healthy, and must still learn that device 2 is lost.
    const absl::Status status = (*world.transport(device).OpenReceive(1 - device, 0))->Next().status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("lost device 2 (worker w2, host host2, pid 102)"));
    EXPECT_EQ(world.worker(device).abort.failure().suspect_worker, "w2");
  });
}

// All devices send large messages before any device receives one: a sender that waits for room must receive.
TEST_P(TcpFabricTest, FullRingsDoNotDeadlock) {
  TestWorld world({{0, 1}, {2, 3}, {4}}, 4, GetParam());
  const int n = world.num_devices();
  world.Run([&](int device) {
    const std::string big(300'000, static_cast<char>('a' + device));
    std::vector<SendLink*> links;
    for (uint32_t round = 0; round < 3; ++round) {
      for (int peer = 0; peer < n; ++peer) {
        if (peer == device) continue;
        links.push_back(*world.transport(device).OpenSend(peer, 3));
        ASSERT_TRUE(links.back()->Post({}, {AsBytes(big)}).ok());
      }
    }
    for (int round = 0; round < 3; ++round) {
      for (int peer = 0; peer < n; ++peer) {
        if (peer == device) continue;
        ReceiveLink* from = *world.transport(device).OpenReceive(peer, 3);
        const absl::StatusOr<Incoming> message = from->Next();
        ASSERT_TRUE(message.ok()) << message.status();
        EXPECT_EQ(message->bytes, 300'000);
        EXPECT_EQ(message->pieces.back().back(), static_cast<std::byte>('a' + peer));
        ASSERT_TRUE(from->Release().ok());
      }
    }
    for (SendLink* link : links) ASSERT_TRUE(link->WaitReleased(3).ok());
    EXPECT_TRUE(GetParam() == 0 || world.worker_of(device).fabric->shared_connections() > 0);
  });
}

INSTANTIATE_TEST_SUITE_P(Rings, TcpFabricTest, ::testing::Values(0, 100, 64 << 10));

TEST(SharedMemory, FallsBackToTcp) {
  SetLogLevel(LogLevel::kError);
  TestWorld world({{0}, {1}});
  for (const char* name : {"1/2", "x/y/z", "1/0/5", "999999999/3/7", "-1/-1/0", "/etc/passwd"}) {
    EXPECT_FALSE(SharedSegment::Open(name, 0).ok()) << name;
  }
  PeerHello hello;
  hello.set_job_id("job");
  hello.set_attempt(1);
  hello.set_to_device(1);
  hello.set_worker_id("w0");
  hello.set_incarnation(7);
  hello.set_machine(MachineName());
  hello.set_segment("1/2/3");
  std::unique_ptr<Connection> connection = *TcpNetwork().Dial(world.worker(1).data_plane->address(), 1000);
  ASSERT_TRUE(WriteBlock(connection.get(), hello.SerializeAsString()).ok());
  PeerWelcome welcome;
  ASSERT_TRUE(welcome.ParseFromString(*ReadBlock(connection.get())));
  EXPECT_EQ(welcome.refused(), "");
  EXPECT_FALSE(welcome.shared());
}

TEST(SharedMemory, OpensOnlyTheSegmentOfItsName) {
  const auto made = *SharedSegment::Create(1000);
  made->data()[999] = std::byte{42};
  const auto opened = *SharedSegment::Open(made->name(), 1000);
  EXPECT_EQ(opened->data()[999], std::byte{42});
  EXPECT_FALSE(SharedSegment::Open(made->name(), 999).ok());
  EXPECT_FALSE(SharedSegment::Open(made->name() + "1", 1000).ok());  // Another nonce.
}

TEST(SharedMemory, RefusesImpossiblePositions) {
  const auto here = *SharedWaiters::Create(1), there = *SharedWaiters::Create(3);
  const auto dialer = *SharedPipe::Create(*here, 0, 512);
  const auto acceptor = *SharedPipe::Open(dialer->name(), *there, 2);
  ASSERT_TRUE(dialer->Connect().ok());
  const std::string text(700, 'x');
  EXPECT_EQ(*dialer->Write(AsBytes(text)), 512u);
  EXPECT_EQ(*dialer->Write(AsBytes(text)), 0u);
  std::vector<std::byte> out(512);
  EXPECT_EQ(*acceptor->Read(absl::MakeSpan(out)), 512u);
  EXPECT_EQ(*dialer->Room(), 512u);
  dialer->NotifyPeer();
  EXPECT_EQ(there->words(2)->epoch.load(), 1u);  // No side waited for room, so there was no other notification.
  // The peer overwrites everything with random bytes.
  const auto segment = *SharedSegment::Open(dialer->name(), 0);
  for (size_t i = 0; i < segment->bytes(); ++i) segment->data()[i] = static_cast<std::byte>(i * 7);
  EXPECT_EQ(acceptor->Readable().status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(dialer->Room().status().code(), absl::StatusCode::kDataLoss);
}

// Sends a hello to the data plane of worker 1 in the name of device 0.
std::string Answer(TestWorld* world, const PeerHello& hello) {
  std::unique_ptr<Connection> connection = *TcpNetwork().Dial(world->worker(1).data_plane->address(), 1000);
  EXPECT_TRUE(WriteBlock(connection.get(), hello.SerializeAsString()).ok());
  const absl::StatusOr<std::string> block = ReadBlock(connection.get());
  PeerWelcome welcome;
  EXPECT_TRUE(block.ok() && welcome.ParseFromString(*block)) << block.status();
  return welcome.refused();
}

TEST(DataPlane, RefusesStaleAndWrongHellos) {
  TestWorld world({{0}, {1}});
  PeerHello hello;
  hello.set_job_id("job");
  hello.set_attempt(0);
  hello.set_to_device(1);
  hello.set_worker_id("w0");
  hello.set_incarnation(7);
  EXPECT_THAT(Answer(&world, hello), HasSubstr("worker w1 runs job job, attempt 1"));
  hello.set_attempt(1);
  hello.set_incarnation(8);
  EXPECT_THAT(Answer(&world, hello), HasSubstr("device 0 is on worker w0, host host0, pid 100, incarnation 7"));
  hello.set_incarnation(7);
  hello.set_from_device(5);
  EXPECT_THAT(Answer(&world, hello), HasSubstr("expects no hello from device 5 to device 1"));
  hello.set_from_device(0);
  EXPECT_EQ(Answer(&world, hello), "");
}

TEST(DataPlane, SurvivesConnectionsWithoutAHello) {
  const std::unique_ptr<Random> random = SeededRandom(5);
  SetLogLevel(LogLevel::kError);  // Each refused hello logs a warning.
  TestWorld world({{0}, {1}});
  for (int i = 0; i < 50; ++i) {
    std::unique_ptr<Connection> stranger = *TcpNetwork().Dial(world.worker(1).data_plane->address(), 1000);
    std::string noise(random->Below(200), '\0');
    for (char& c : noise) c = static_cast<char>(random->Next());
    stranger->Write(AsBytes(noise)).IgnoreError();
  }
  // A peer that connects and sends nothing.
  std::unique_ptr<Connection> silent = *TcpNetwork().Dial(world.worker(1).data_plane->address(), 1000);
  world.Run([&](int device) {
    ASSERT_TRUE((*world.transport(device).OpenSend(1 - device, 0))->Post({}, {}).ok());
    ASSERT_TRUE((*world.transport(device).OpenReceive(1 - device, 0))->Next().ok());
  });
}

TEST(DataPlane, HellosForUnknownTasksDoNotBlockOthers) {
  TestWorld world({{0}, {1}});
  std::vector<std::unique_ptr<Connection>> strangers;
  PeerHello hello;
  hello.set_job_id("unknown");
  for (int i = 0; i < 1100; ++i) {
    strangers.push_back(*TcpNetwork().Dial(world.worker(1).data_plane->address(), 10'000));
    ASSERT_TRUE(WriteBlock(strangers.back().get(), hello.SerializeAsString()).ok());
  }
  world.Run([&](int device) {
    ASSERT_TRUE((*world.transport(device).OpenSend(1 - device, 0))->Post({}, {}).ok());
    ASSERT_TRUE((*world.transport(device).OpenReceive(1 - device, 0))->Next().ok());
  });
}

TEST(DataPlane, TakesConnectionsThatAnotherProcessAccepted) {
  const std::unique_ptr<DataPlane> data_plane = DataPlane::WithoutListener();
  EXPECT_EQ(data_plane->address(), "");
  const std::unique_ptr<Listener> listener = *TcpNetwork().Listen("127.0.0.1:0");
  const std::unique_ptr<Connection> dialed = *TcpNetwork().Dial(listener->Address(), 1000);
  PeerHello hello;
  hello.set_job_id("job");
  data_plane->Deliver(*listener->Accept(), hello);  // Waits for its task.
  AbortSignal abort;
  TcpOptions options;
  options.job_id = "job";
  options.attempt = 2;
  TcpFabric fabric(options, {}, {}, &TcpNetwork(), &abort);
  data_plane->AddTask(&fabric);
  PeerWelcome welcome;
  const absl::StatusOr<std::string> answer = ReadBlock(dialed.get());
  ASSERT_TRUE(answer.ok() && welcome.ParseFromString(*answer)) << answer.status();
  EXPECT_THAT(welcome.refused(), HasSubstr("a later attempt of the job runs here"));
  data_plane->RemoveTask(&fabric);
}

TEST(DataPlane, ListensOnLoopbackOnly) {
  const absl::Status status = DataPlane::Listen(&TcpNetwork(), "0.0.0.0:0").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("0.0.0.0:0"), HasSubstr("loopback")));
}

TEST(Bootstrap, MapAndPeers) {
  const std::unique_ptr<Bootstrap> bootstrap = MapBootstrap({});
  const PeerInfo peer{"w1", 3, "host", 77, "127.0.0.1:1"};
  EXPECT_EQ(bootstrap->Get("k").status().code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(bootstrap->Put("k", EncodePeer(peer)).ok());
  EXPECT_EQ(bootstrap->Put("k", "other").code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(*DecodePeer(*bootstrap->Get("k")), peer);
  EXPECT_FALSE(DecodePeer("nonsense").ok());
}

}  // namespace
}  // namespace xlad::collectives
