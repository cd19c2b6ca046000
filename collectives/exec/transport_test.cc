// Tests of features that only some transports have: connections, rings in shared memory, the data plane. Features of
// all transports are tested in transport_conformance_test.cc.
#include "collectives/exec/transport.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstring>
#include <future>

#include "base/log.h"
#include "base/random.h"
#include "base/testing/open_files.h"
#include "collectives/exec/testing/test_world.h"
#include "collectives/exec/transports/frame.h"
#include "collectives/exec/transports/plugin/engine.h"
#include "collectives/exec/transports/plugin/load.h"
#include "collectives/exec/transports/registry/registry.h"
#include "collectives/exec/transports/skeleton/skeleton.h"
#include "collectives/exec/transports/tcp/tcp_connection.h"

namespace xlad::collectives {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr size_t kSmallRing = 100;
// Longer than any test takes, however busy the machine is.
constexpr int64_t kLongMs = 600'000;

// The parameter is the size of the rings in bytes. Without rings, messages are sent by TCP.
class TcpFabricTest : public ::testing::TestWithParam<size_t> {
 protected:
  // The size is several times that of a ring. It is small for small rings, because the sender wakes the receiver each
  // time a ring is full, and thousands of wakes take a long time.
  static int64_t SizeOfLargeMessages() { return GetParam() == kSmallRing ? 3000 : 300'000; }
};

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
      world.worker(2).fabric.reset();  // Like a killed process, worker 2 closes its connections without notice.
      return;
    }
    connected[device].set_value();
    // Device 0 waits for device 1, which is healthy, but must still be told that device 2 is lost.
    const absl::Status status = (*world.transport(device).OpenReceive(1 - device, 0))->Next().status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("lost device 2 (worker w2, host host2, pid 102)"));
    EXPECT_EQ(world.worker(device).abort.failure().suspect_worker, "w2");
  });
}

// All devices send large messages before any device receives one. There is no deadlock only if a sender that waits for
// room in a ring also receives.
TEST_P(TcpFabricTest, FullRingsDoNotDeadlock) {
  TestWorld world({{0, 1}, {2, 3}, {4}}, 4, GetParam());
  const int n = world.num_devices();
  const int64_t bytes = SizeOfLargeMessages();
  world.Run([&](int device) {
    const std::string big(bytes, static_cast<char>('a' + device));
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
        EXPECT_EQ(message->bytes, bytes);
        EXPECT_EQ(message->pieces.back().back(), static_cast<std::byte>('a' + peer));
        ASSERT_TRUE(from->Release().ok());
      }
    }
    for (SendLink* link : links) ASSERT_TRUE(link->WaitReleased(3).ok());
    EXPECT_TRUE(GetParam() == 0 || world.worker_of(device).fabric->shared_connections() > 0);
  });
}

// Device 2 fails while large messages to and from it are being sent.
TEST_P(TcpFabricTest, TheReasonOfAnAbortArrivesAfterLargeMessages) {
  const std::string big(10 * SizeOfLargeMessages(), 'x');
  for (int last = 0; last < 8; ++last) {
    TestWorld world({{0}, {1}, {2}}, 4, GetParam());
    const auto exchange = [&](int device) -> absl::Status {
      for (int peer = 0; peer < 3; ++peer) {
        if (peer == device) continue;
        XLAD_RETURN_IF_ERROR((*world.transport(device).OpenSend(peer, 3))->Post({}, {AsBytes(big)}));
      }
      for (int peer = 0; peer < 3; ++peer) {
        if (peer == device) continue;
        ReceiveLink* const from = *world.transport(device).OpenReceive(peer, 3);
        XLAD_RETURN_IF_ERROR(from->Next().status());
        XLAD_RETURN_IF_ERROR(from->Release());
      }
      return absl::OkStatus();
    };
    world.Run([&](int device) {
      absl::Status status;
      for (int round = 0; status.ok(); ++round) {
        if (device == 2 && round > last) {
          world.worker(2).abort.Raise({absl::ResourceExhaustedError("device 2 has no memory left"), "w2"});
        }
        status = exchange(device);
      }
      EXPECT_THAT(std::string(status.message()), HasSubstr("device 2 has no memory left")) << "device " << device;
      EXPECT_EQ(world.worker(device).abort.failure().suspect_worker, "w2");
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Rings, TcpFabricTest, ::testing::Values(0, kSmallRing, 64 << 10));

// Returns the hello that device 0, on worker w0 of the test world, sends to device 1.
PeerHello HelloToDevice1() {
  PeerHello hello;
  hello.set_job_id("job");
  hello.set_attempt(1);
  hello.set_to_device(1);
  hello.set_worker_id("w0");
  hello.set_incarnation(7);
  return hello;
}

TEST(SharedMemory, FallsBackToTcp) {
  SetLogLevel(LogLevel::kError);
  TestWorld world({{0}, {1}});
  for (const char* name : {"1/2", "x/y/z", "1/0/5", "999999999/3/7", "-1/-1/0", "/etc/passwd"}) {
    EXPECT_FALSE(SharedSegment::Open(name, 0).ok()) << name;
  }
  PeerHello hello = HelloToDevice1();
  hello.set_machine(MachineName());
  hello.set_segment("1/2/3");
  std::unique_ptr<Connection> connection = *TcpNetwork().Dial(world.worker(1).data_plane->address(), kLongMs);
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
  EXPECT_FALSE(SharedSegment::Open(made->name() + "1", 1000).ok());  // The name has another nonce.
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
  EXPECT_EQ(there->words(2)->epoch.load(), 1u);  // Neither side waited for room, so there was no other notification.
  // The peer overwrites everything with arbitrary bytes.
  const auto segment = *SharedSegment::Open(dialer->name(), 0);
  for (size_t i = 0; i < segment->bytes(); ++i) segment->data()[i] = static_cast<std::byte>(i * 7);
  EXPECT_EQ(acceptor->Readable().status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(dialer->Room().status().code(), absl::StatusCode::kDataLoss);
}

// Sends a hello to the data plane of worker 1. Returns the reason why worker 1 refuses it, or an empty text.
std::string Answer(TestWorld* world, const PeerHello& hello) {
  std::unique_ptr<Connection> connection = *TcpNetwork().Dial(world->worker(1).data_plane->address(), kLongMs);
  EXPECT_TRUE(WriteBlock(connection.get(), hello.SerializeAsString()).ok());
  const absl::StatusOr<std::string> block = ReadBlock(connection.get());
  PeerWelcome welcome;
  EXPECT_TRUE(block.ok() && welcome.ParseFromString(*block)) << block.status();
  return welcome.refused();
}

// The data plane must not wait for a peer that does not read the answer.
TEST(DataPlane, TheAnswerToALongHelloIsShort) {
  SetLogLevel(LogLevel::kError);
  TestWorld world({{0}, {1}});
  for (const char* const before : {"", "x"}) {
    PeerHello hello = HelloToDevice1();
    std::string id = before;
    for (int i = 0; i < 20000; ++i) absl::StrAppend(&id, "\u00e9");
    hello.set_worker_id(id);
    const std::string refused = Answer(&world, hello);
    EXPECT_THAT(refused, HasSubstr("the hello is from worker"));
    EXPECT_LE(refused.size(), 1003u);
  }
}

TEST(Transports, TheErrorForAnUnknownNameListsAllNames) {
  const absl::Status status = ChooseTransport("pigeon").status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  for (const TransportRow& row : AllTransports()) {
    EXPECT_THAT(std::string(status.message()), HasSubstr(std::string(row.name)));
  }
  EXPECT_TRUE(ChooseTransport("in-process")->one_process);
  EXPECT_TRUE(ChooseTransport("shm")->requires_shared_memory);
  EXPECT_FALSE(ChooseTransport("tcp")->shares_memory);
}

TEST(Transports, AMissingPluginNamesFoldersAndPackage) {
  const absl::Status status =
      LoadPlugin({"nothing", "libnothing-dev", "libnothing0"}, {"/nowhere", "/elsewhere"}).status();
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("libxlad_transport_nothing.so in /nowhere, /elsewhere"),
                                                   HasSubstr("libnothing-dev"), HasSubstr("XLAD_PLUGIN_PATH")));
}

TEST(Transports, AFileThatIsNotAPluginIsRefused) {
  const std::string folder = ::testing::TempDir(), name = absl::StrCat("text-", getpid());
  const std::string path = JoinPath(folder, absl::StrCat("libxlad_transport_", name, ".so"));
  ASSERT_TRUE(RealFileSystem().WriteAtomically(path, "not a library").ok());
  const absl::Status status = LoadPlugin({name, "libtext-dev", "libtext0"}, {folder}).status();
  EXPECT_TRUE(RealFileSystem().Remove(path).ok());
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("cannot load"), HasSubstr("libtext0")));
}

// One side uses a plugin, the other does not.
TEST(DataPlane, RefusesAHelloOfAnotherTransport) {
  TestWorld world({{0}, {1}});
  PeerHello hello = HelloToDevice1();
  hello.set_machine("plugin:ucx");
  EXPECT_THAT(Answer(&world, hello),
              AllOf(HasSubstr("without a plugin"), HasSubstr("by ucx"), HasSubstr("the same --transport")));
}

// Both sides use the same plugin. The bytes of a malformed address must not reach its library.
TEST(DataPlane, RefusesAHelloWithAMalformedAddressOfThePlugin) {
  TestWorld::Options options;
  options.ring_bytes = 0;
  options.transport.plugin = SkeletonTransport();
  TestWorld world({{0}, {1}}, options);
  PeerHello hello = HelloToDevice1();
  hello.set_machine(absl::StrCat("plugin:", options.transport.plugin->name));
  const std::string valid(2 * sizeof(int64_t), '0');
  for (const std::string& address : {std::string(), valid + "0", "x" + valid.substr(1), valid + " \n"}) {
    hello.set_segment(address);
    EXPECT_THAT(Answer(&world, hello), AllOf(HasSubstr("device 0 on worker w0: found the address"),
                                             HasSubstr("expected bytes in hexadecimal")));
  }
  hello.set_segment(valid);
  EXPECT_EQ(Answer(&world, hello), "");
}

TEST(Engine, RefusesAnEmptyAddress) {
  const std::unique_ptr<Engine> engine = *Engine::Open(SkeletonTransport(), 0, /*any_network=*/false);
  const absl::Status status = engine->Connect(3, "").status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("device 3"));
}

TEST(DataPlane, RefusesStaleAndWrongHellos) {
  TestWorld world({{0}, {1}});
  PeerHello hello = HelloToDevice1();
  hello.set_attempt(0);
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

TEST(DataPlane, ContinuesAfterConnectionsWithoutAHello) {
  const std::unique_ptr<Random> random = SeededRandom(5);
  SetLogLevel(LogLevel::kError);  // Each refused hello logs a warning.
  TestWorld world({{0}, {1}});
  for (int i = 0; i < 50; ++i) {
    std::unique_ptr<Connection> stranger = *TcpNetwork().Dial(world.worker(1).data_plane->address(), kLongMs);
    std::string noise(random->Below(200), '\0');
    for (char& c : noise) c = static_cast<char>(random->Next());
    stranger->Write(AsBytes(noise)).IgnoreError();
  }
  // A peer that connects and does not send anything.
  std::unique_ptr<Connection> silent = *TcpNetwork().Dial(world.worker(1).data_plane->address(), kLongMs);
  world.Run([&](int device) {
    ASSERT_TRUE((*world.transport(device).OpenSend(1 - device, 0))->Post({}, {}).ok());
    ASSERT_TRUE((*world.transport(device).OpenReceive(1 - device, 0))->Next().ok());
  });
}

TEST(DataPlane, HellosForUnknownTasksDoNotBlockOthers) {
  if (!MayOpenFiles(4096)) GTEST_SKIP() << "this process may not open 4096 files";
  TestWorld world({{0}, {1}});
  std::vector<std::unique_ptr<Connection>> strangers;
  PeerHello hello;
  hello.set_job_id("unknown");
  for (int i = 0; i < 1100; ++i) {
    strangers.push_back(*TcpNetwork().Dial(world.worker(1).data_plane->address(), kLongMs));
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
  const std::unique_ptr<Connection> dialed = *TcpNetwork().Dial(listener->Address(), kLongMs);
  PeerHello hello;
  hello.set_job_id("job");
  data_plane->Deliver(*listener->Accept(), hello);  // The connection is kept until the task of the hello is added.
  AbortSignal abort;
  TcpOptions options;
  options.job_id = "job";
  options.attempt = 2;
  TcpFabric fabric(options, {}, {}, &TcpNetwork(), &abort);
  data_plane->AddTask(&fabric);
  PeerWelcome welcome;
  const absl::StatusOr<std::string> answer = ReadBlock(dialed.get());
  ASSERT_TRUE(answer.ok() && welcome.ParseFromString(*answer)) << answer.status();
  EXPECT_THAT(welcome.refused(), HasSubstr("a later attempt or generation of the job runs here"));
  data_plane->RemoveTask(&fabric);
}

// A TCP listener whose first `failures` calls of Accept fail, as they do while the process has no free descriptor.
class FailingListener final : public Listener {
 public:
  FailingListener(std::unique_ptr<Listener> listener, int failures)
      : listener_(std::move(listener)), failures_(failures) {}
  absl::StatusOr<std::unique_ptr<Connection>> Accept() override {
    if (shut_down_) return absl::CancelledError("shut down");
    if (failures_-- > 0) return absl::UnavailableError("accept: Too many open files");
    return listener_->Accept();
  }
  void Shutdown() override {
    shut_down_ = true;
    listener_->Shutdown();
  }
  std::string Address() const override { return listener_->Address(); }

 private:
  const std::unique_ptr<Listener> listener_;
  int failures_;
  std::atomic<bool> shut_down_ = false;
};

class FailingNetwork final : public Network {
 public:
  explicit FailingNetwork(int failures) : failures_(failures) {}
  absl::StatusOr<std::unique_ptr<Listener>> Listen(const std::string& address) override {
    XLAD_ASSIGN_OR_RETURN(std::unique_ptr<Listener> listener, TcpNetwork().Listen(address));
    return std::make_unique<FailingListener>(std::move(listener), failures_);
  }
  absl::StatusOr<std::unique_ptr<Connection>> Dial(const std::string& address, int64_t timeout_ms) override {
    return TcpNetwork().Dial(address, timeout_ms);
  }

 private:
  const int failures_;
};

TEST(DataPlane, AcceptsAgainAfterErrors) {
  FailingNetwork network(3);
  const std::unique_ptr<DataPlane> data_plane = *DataPlane::Listen(&network, "127.0.0.1:0");
  AbortSignal abort;
  TcpOptions options;
  options.job_id = "job";
  options.attempt = 2;
  TcpFabric fabric(options, {}, {}, &network, &abort);
  data_plane->AddTask(&fabric);
  const std::unique_ptr<Connection> dialed = *network.Dial(data_plane->address(), kLongMs);
  PeerHello hello;
  hello.set_job_id("job");
  ASSERT_TRUE(WriteBlock(dialed.get(), hello.SerializeAsString()).ok());
  PeerWelcome welcome;
  const absl::StatusOr<std::string> answer = ReadBlock(dialed.get());
  ASSERT_TRUE(answer.ok() && welcome.ParseFromString(*answer)) << answer.status();
  EXPECT_NE(welcome.refused(), "");
  data_plane->RemoveTask(&fabric);
}

TEST(DataPlane, EndsWhileItCannotAccept) {
  FailingNetwork network(INT_MAX);
  for (int i = 0; i < 20; ++i) DataPlane::Listen(&network, "127.0.0.1:0")->reset();
}

TEST(Frame, ALargeBlockIsRefusedBeforeItIsSent) {
  const std::unique_ptr<Listener> listener = *TcpNetwork().Listen("127.0.0.1:0");
  const std::unique_ptr<Connection> dialed = *TcpNetwork().Dial(listener->Address(), kLongMs);
  const std::unique_ptr<Connection> accepted = *listener->Accept();
  for (const size_t size : {size_t{0}, size_t{1}, size_t{64} << 10}) {
    const std::string block(size, 'x');
    ASSERT_TRUE(WriteBlock(dialed.get(), block).ok()) << size;
    EXPECT_EQ(*ReadBlock(accepted.get()), block);
    const absl::Status status = WriteBlock(dialed.get(), std::string((size_t{64} << 10) + 1, 'y'));
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("found a message of 65537 bytes, expected at most 65536"));
  }
}

// A connection whose peer has sent these bytes and nothing else.
class SentBytes final : public Connection {
 public:
  explicit SentBytes(std::string bytes) : bytes_(std::move(bytes)) {}
  absl::StatusOr<size_t> Read(absl::Span<std::byte> bytes) override {
    if (at_ == bytes_.size()) return absl::UnavailableError("the peer has closed the connection");
    const size_t n = bytes_.copy(reinterpret_cast<char*>(bytes.data()), bytes.size(), at_);
    at_ += n;
    return n;
  }
  absl::Status Write(absl::Span<const std::byte>) override { return absl::OkStatus(); }
  void Shutdown() override {}
  std::string Peer() const override { return "peer"; }

 private:
  const std::string bytes_;
  size_t at_ = 0;
};

// Reasons become text of protocol buffers, which must be UTF-8.
TEST(Frame, AReasonThatIsCutWithinACharacterIsUtf8) {
  std::string reason;
  while (reason.size() <= kMaxReasonBytes) reason += "\xc3\xa9";
  // The frame begins with the worker and a newline, so it ends after the first byte of a character.
  const std::string sent = AbortFrame({absl::InternalError(reason), "w1"});
  ASSERT_EQ(sent.back(), '\xc3');
  Waiter waiter;
  AbortSignal abort;
  TcpConnection connection({}, std::make_unique<SentBytes>(sent), nullptr, &waiter, &abort);
  connection.WaitForEnd();
  const std::string received(abort.status().message());
  EXPECT_EQ(received, absl::StrCat(" reports: ", reason.substr(0, kMaxReasonBytes - 4), "\xef\xbf\xbd"));
}

TEST(DataPlane, ListensOnLoopbackOnly) {
  const absl::Status status = DataPlane::Listen(&TcpNetwork(), "0.0.0.0:0").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("0.0.0.0:0"), HasSubstr("loopback")));
}

// On a busy machine, each further test of the condition would be delayed by the time slices of all other threads.
TEST(Waiter, APollingWaiterReturnsAfterTheFirstTestIfTheTaskWasAborted) {
  AbortSignal abort;
  abort.Raise({absl::UnavailableError("lost"), ""});
  Waiter waiter;
  waiter.SetPump([] {}, /*polls=*/true);
  int tests = 0;
  EXPECT_FALSE(waiter.Wait(abort, [&] {
    ++tests;
    return false;
  }));
  EXPECT_EQ(tests, 1);
  EXPECT_TRUE(waiter.Wait(abort, [] { return true; }));
}

// A sleep while data arrives would let the buffers between the peers run full.
TEST(Waiter, APollingWaiterDoesNotSleepWhileMessagesArrive) {
  constexpr int kPumps = 20'000;
  for (const bool progresses : {true, false}) {
    AbortSignal abort;
    Waiter waiter;
    int pumps = 0;
    const auto pump = [&] {
      ++pumps;
      if (progresses) waiter.NoteProgress(Progress::kMade);
    };
    waiter.SetPump(pump, /*polls=*/true);
    EXPECT_TRUE(waiter.Wait(abort, [] { return true; }));
    EXPECT_TRUE(waiter.Wait(abort, [&] { return pumps >= (progresses ? kPumps : 1200); }));
    if (progresses) EXPECT_EQ(waiter.sleeps(), 0) << "in " << kPumps << " pumps";
    if (!progresses) EXPECT_GE(waiter.sleeps(), 100) << "a waiter without messages must free its core";
  }
}

// A library may always report progress, even if the peer is stopped.
TEST(Waiter, APollingWaiterSleepsAfterSomeTimeIfProgressIsOnlyReported) {
  AbortSignal abort;
  Waiter waiter;
  waiter.SetPump([&] { waiter.NoteProgress(Progress::kReported); }, /*polls=*/true);
  const int64_t begin_ns = RealClock().NowNs();
  EXPECT_TRUE(waiter.Wait(abort, [&] {
    return waiter.sleeps() >= 10 || RealClock().NowNs() - begin_ns > kLongMs * kNsPerMs;
  }));
  EXPECT_GE(waiter.sleeps(), 10);
}

TEST(Bootstrap, AKeyIsWrittenOnceAndAPeerIsReadBack) {
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
