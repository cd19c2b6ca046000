// Blobs from worker to worker over real connections: what peers serve, and how failures of peers are handled.
#include "worker/peer_blobs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <fstream>
#include <limits>
#include <tuple>
#include <vector>

#include "storage/block_sums.h"
#include "worker/testing/two_workers_fixture.h"

namespace xlad::worker {
namespace {

using storage::kBlockBytes;

absl::Span<std::byte> AsSpan(std::string* bytes) {
  return {reinterpret_cast<std::byte*>(bytes->data()), bytes->size()};
}

// The blob of these tests has four blocks, the last of which is short. Worker "a" has it after Store.
class PeerBlobsTest : public TwoWorkersTest {
 protected:
  PeerBlobsTest() : blob_(BlobOfSize(3 * kBlockBytes + 100)) {
    storage::ObjectHasher hasher;
    hasher.Add(blob_);
    info_ = hasher.Finish();
  }
  // The thread that accepts connections and the server use members of this class.
  ~PeerBlobsTest() override {
    StopA();
    server_of_a_.reset();
  }

  void Store() { StoreAtA(info_.sha256, blob_); }
  void Serve(int64_t max_wait_ms = 60'000, size_t max_connections = 64) {
    PeerBlobServer::Options options;
    options.max_connections = max_connections;
    options.max_wait_ms = max_wait_ms;
    options.clock = &clock_;
    MakeServer(options);
    Accept([this](std::unique_ptr<Connection> connection, const PeerHello& hello) {
      server_of_a_->Take(std::move(connection), hello);
      ++taken_;
    });
  }
  absl::Status Read(PeerBlobs* peers, int64_t offset, int64_t bytes, std::string* out) {
    PeerBlobRequest request;
    request.set_digest(info_.sha256);
    request.set_offset(offset);
    request.set_bytes(bytes);
    const auto first = info_.sums.sums.begin() + offset / kBlockBytes;
    const std::vector<uint64_t> sums(first, first + (bytes + kBlockBytes - 1) / kBlockBytes);
    out->assign(bytes, '\0');
    return peers->Read("a", request, sums, AsSpan(out), &abort_);
  }

  const std::string blob_;
  storage::ObjectInfo info_;
  ManualClock clock_{1};
  std::atomic<int> taken_ = 0;  // The number of connections that were passed to the server.
};

TEST_F(PeerBlobsTest, APeerPassesOnWhatItHas) {
  Store();
  Serve();
  PeerBlobs peers(&TcpNetwork(), AttemptPeers(launch_, "b"));
  std::string read;
  ASSERT_TRUE(Read(&peers, 0, std::ssize(blob_), &read).ok());
  EXPECT_TRUE(read == blob_);
  ASSERT_TRUE(Read(&peers, kBlockBytes, kBlockBytes, &read).ok());
  EXPECT_TRUE(read == blob_.substr(kBlockBytes, kBlockBytes));
  EXPECT_EQ(peers.received_bytes(), std::ssize(blob_) + kBlockBytes);
  EXPECT_EQ(server_of_a_->sent_bytes(), peers.received_bytes());
}

TEST_F(PeerBlobsTest, APeerWaitsForWhatItIsAboutToRead) {
  Serve();
  PeerBlobs peers(&TcpNetwork(), AttemptPeers(launch_, "b"));
  std::string read;
  absl::Status status;
  std::thread reader([&] { status = Read(&peers, 0, std::ssize(blob_), &read); });
  Store();
  reader.join();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_TRUE(read == blob_);
}

TEST_F(PeerBlobsTest, WhatIsMissingOrDamagedIsNotSent) {
  Serve(/*max_wait_ms=*/1);
  PeerBlobs peers(&TcpNetwork(), AttemptPeers(launch_, "b"));
  std::string read;
  EXPECT_TRUE(absl::IsNotFound(Read(&peers, 0, kBlockBytes, &read)));
  Store();
  EXPECT_TRUE(Read(&peers, 0, kBlockBytes, &read).ok()) << "the connection is still open";
  std::fstream file(folder_ + "/a/blobs/" + info_.sha256, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(-1, std::ios::end);
  const char last = static_cast<char>(file.get());
  file.seekp(-1, std::ios::end);
  file.put(static_cast<char>(last ^ 1));
  file.close();
  EXPECT_TRUE(absl::IsNotFound(Read(&peers, 3 * kBlockBytes, 100, &read)));
  EXPECT_TRUE(Read(&peers, 2 * kBlockBytes, kBlockBytes, &read).ok());
}

TEST_F(PeerBlobsTest, AnInvalidRequestIsRefusedWithTheReason) {
  Store();
  Serve();
  PeerBlobs peers(&TcpNetwork(), AttemptPeers(launch_, "b"));
  for (const auto& [digest, offset, bytes] : std::vector<std::tuple<std::string, int64_t, int64_t>>{
           {"../secret", 0, 100},
           {info_.sha256, 1, 100},
           {info_.sha256, -kBlockBytes, 100},
           {info_.sha256, 0, 0},
           {info_.sha256, 0, PeerBlobServer::kMaxRangeBytes + 1},
           {info_.sha256, std::numeric_limits<int64_t>::max() / kBlockBytes * kBlockBytes, kBlockBytes}}) {
    PeerBlobRequest request;
    request.set_digest(digest);
    request.set_offset(offset);
    request.set_bytes(bytes);
    std::string read(100, '\0');
    const absl::Status status = peers.Read("a", request, {0}, AsSpan(&read), &abort_);
    EXPECT_TRUE(absl::IsNotFound(status)) << status;
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr("expected 1 to 67108864 bytes from the beginning"));
  }
  std::string read;
  EXPECT_TRUE(Read(&peers, 0, kBlockBytes, &read).ok());
}

// The peer says that it has the bytes, but sends other bytes or only a part of them.
TEST_F(PeerBlobsTest, BytesOfAPeerAreCompared) {
  for (const bool is_cut_off : {false, true}) {
    SCOPED_TRACE(is_cut_off);
    std::vector<std::unique_ptr<Connection>> open;
    Accept([&](std::unique_ptr<Connection> connection, const PeerHello&) {
      (void)collectives::ReadBlock(connection.get());
      (void)collectives::WriteBlock(connection.get(), PeerBlobAnswer().SerializeAsString());
      std::string wrong = blob_.substr(0, is_cut_off ? 1000 : kBlockBytes);
      wrong[500] ^= 1;
      (void)connection->Write(AsSpan(&wrong));
      if (!is_cut_off) open.push_back(std::move(connection));
    });
    PeerBlobs peers(&TcpNetwork(), AttemptPeers(launch_, "b"));
    std::string read;
    const absl::Status status = Read(&peers, 0, kBlockBytes, &read);
    EXPECT_EQ(status.code(), is_cut_off ? absl::StatusCode::kUnavailable : absl::StatusCode::kDataLoss) << status;
    EXPECT_EQ(peers.received_bytes(), 0);
    StopA();
    Listen();
  }
}

TEST_F(PeerBlobsTest, AFullPeerSaysSoAndHasNotFailed) {
  Serve(/*max_wait_ms=*/60'000, /*max_connections=*/1);
  PeerBlobs first(&TcpNetwork(), AttemptPeers(launch_, "b")), second(&TcpNetwork(), AttemptPeers(launch_, "b"));
  std::string read, other;
  absl::Status status;
  std::thread reader([&] { status = Read(&first, 0, kBlockBytes, &read); });
  while (taken_ < 1) std::this_thread::yield();
  for (int i = 0; i < 20; ++i) {
    const absl::Status full = Read(&second, 0, kBlockBytes, &other);
    EXPECT_TRUE(absl::IsResourceExhausted(full)) << full;
  }
  Store();
  reader.join();
  EXPECT_TRUE(status.ok()) << status;
}

TEST_F(PeerBlobsTest, AnIdleReaderMakesRoomForAnother) {
  Store();
  Serve(/*max_wait_ms=*/60'000, /*max_connections=*/2);
  std::vector<std::unique_ptr<PeerBlobs>> readers;
  for (int i = 0; i < 5; ++i) {
    readers.push_back(std::make_unique<PeerBlobs>(&TcpNetwork(), AttemptPeers(launch_, "b")));
  }
  for (int round = 0; round < 4; ++round) {
    for (const auto& reader : readers) {
      std::string read;
      absl::Status status;
      do {  // Both other connections may be in use for a moment after the last byte has arrived.
        status = Read(reader.get(), 0, kBlockBytes, &read);
      } while (absl::IsResourceExhausted(status));
      ASSERT_TRUE(status.ok()) << status;
      ASSERT_TRUE(read == blob_.substr(0, kBlockBytes));
    }
  }
}

// The silent reader sends no request, or waits for a block that never arrives.
TEST_F(PeerBlobsTest, ASilentReaderMakesRoomForAnother) {
  Store();
  for (const bool has_asked : {false, true}) {
    SCOPED_TRACE(has_asked);
    PeerBlobs first(&TcpNetwork(), AttemptPeers(launch_, "b")), second(&TcpNetwork(), AttemptPeers(launch_, "b"));
    taken_ = 0;
    Serve(/*max_wait_ms=*/600'000, /*max_connections=*/1);
    std::unique_ptr<Connection> silent;
    std::thread waiting;
    std::string read, other(kBlockBytes, '\0');
    if (has_asked) {
      waiting = std::thread([&] {
        PeerBlobRequest missing;
        missing.set_digest(std::string(64, 'a'));
        missing.set_bytes(kBlockBytes);
        // A reader that was replaced connects again, and the only place may then belong to the second reader.
        const absl::Status replaced = first.Read("a", missing, {1}, AsSpan(&other), &abort_);
        EXPECT_TRUE(absl::IsUnavailable(replaced) || absl::IsResourceExhausted(replaced)) << replaced;
      });
    } else {
      silent = *TcpNetwork().Dial(listener_->Address(), 60'000);
      ASSERT_TRUE(collectives::WriteBlock(silent.get(), first.hello().SerializeAsString()).ok());
    }
    while (taken_ < 1) std::this_thread::yield();
    clock_.Advance(PeerBlobServer::Options().silent_ms * kNsPerMs - 1);
    EXPECT_TRUE(absl::IsResourceExhausted(Read(&second, 0, kBlockBytes, &read)));
    clock_.Advance(1);
    absl::Status status;
    do {  // The request of the first reader may have arrived only now.
      status = Read(&second, 0, kBlockBytes, &read);
      clock_.Advance(kNsPerSecond);
    } while (absl::IsResourceExhausted(status));
    EXPECT_TRUE(status.ok()) << status;
    StopA();
    server_of_a_.reset();
    if (waiting.joinable()) waiting.join();
    Listen();
  }
}

TEST_F(PeerBlobsTest, AReaderThatWasReplacedConnectsAgain) {
  Serve(/*max_wait_ms=*/600'000, /*max_connections=*/1);
  PeerBlobs first(&TcpNetwork(), AttemptPeers(launch_, "b"));
  std::string read;
  absl::Status status;
  std::thread waiting([&] { status = Read(&first, 0, kBlockBytes, &read); });
  while (taken_ < 1) std::this_thread::yield();
  const std::unique_ptr<Connection> second = *TcpNetwork().Dial(listener_->Address(), 60'000);
  clock_.Advance(PeerBlobServer::Options().silent_ms * kNsPerMs);
  ASSERT_TRUE(collectives::WriteBlock(second.get(), first.hello().SerializeAsString()).ok());
  while (taken_ < 2) std::this_thread::yield();
  Store();  // If the first reader's request arrived so late that it was not replaced, it reads this blob.
  waiting.join();
  EXPECT_TRUE(status.ok() || absl::IsResourceExhausted(status)) << status << ": the peer has not failed";
}

TEST_F(PeerBlobsTest, APeerThatIsGoneIsUnavailable) {
  launch_.mutable_peers(0)->set_data_address("127.0.0.1:1");  // A reserved port, on which nothing listens.
  PeerBlobs peers(&TcpNetwork(), AttemptPeers(launch_, "b"));
  std::string read;
  EXPECT_TRUE(absl::IsUnavailable(Read(&peers, 0, kBlockBytes, &read)));
}

// A peer whose process is stopped does not answer. The coordinator ends the attempt when it counts the peer as lost.
TEST_F(PeerBlobsTest, AReaderThatWaitsForAPeerEndsWithItsAttempt) {
  std::vector<std::unique_ptr<Connection>> silent;
  Accept([&](std::unique_ptr<Connection> connection, const PeerHello&) {
    (void)collectives::ReadBlock(connection.get());
    silent.push_back(std::move(connection));
    abort_.Raise({absl::CancelledError("the attempt has ended"), ""});
  });
  PeerBlobs peers(&TcpNetwork(), AttemptPeers(launch_, "b"));
  std::string read;
  EXPECT_EQ(Read(&peers, 0, kBlockBytes, &read), absl::CancelledError("the attempt has ended"));
}

// A network in which no machine answers: Dial waits until the test calls EndDial.
class SilentNetwork final : public Network {
 public:
  absl::StatusOr<std::unique_ptr<Listener>> Listen(const std::string&) override {
    return absl::UnimplementedError("it only dials");
  }
  absl::StatusOr<std::unique_ptr<Connection>> Dial(const std::string& address, int64_t) override {
    std::unique_lock lock(mutex_);
    is_dialing_ = true;
    changed_.notify_all();
    changed_.wait(lock, [&] { return is_over_; });
    return absl::UnavailableError(absl::StrCat("cannot connect to ", address));
  }
  void WaitForDial() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return is_dialing_; });
  }
  void EndDial() {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_dialing_ = false, is_over_ = false;
};

TEST_F(PeerBlobsTest, AReaderThatDialsAPeerEndsWithItsAttempt) {
  static SilentNetwork& network = *new SilentNetwork;  // The dialing thread may use it after the test.
  PeerBlobs peers(&network, AttemptPeers(launch_, "b"));
  std::string read;
  std::thread aborting([&] {
    network.WaitForDial();
    abort_.Raise({absl::CancelledError("the attempt has ended"), ""});
  });
  EXPECT_EQ(Read(&peers, 0, kBlockBytes, &read), absl::CancelledError("the attempt has ended"));
  aborting.join();
  network.EndDial();
}

// A peer whose process is stopped does not take part in the handshake, although its kernel accepts the connection.
TEST_F(PeerBlobsTest, AReaderThatSecuresAConnectionEndsWithItsAttempt) {
  const absl::StatusOr<HostPort> at = ParseHostPort(listener_->Address());
  launch_.mutable_peers(0)->set_data_address(absl::StrCat("0.0.0.0:", at->port));
  std::vector<std::unique_ptr<Connection>> silent;
  Accept([&](std::unique_ptr<Connection> connection, const PeerHello&) {
    silent.push_back(std::move(connection));
    abort_.Raise({absl::CancelledError("the attempt has ended"), ""});
  });
  PeerBlobs peers(&TcpNetwork(), AttemptPeers(launch_, "b"));
  std::string read;
  EXPECT_EQ(Read(&peers, 0, kBlockBytes, &read), absl::CancelledError("the attempt has ended"));
}

TEST_F(PeerBlobsTest, OnlyWorkersOfTheAttemptAreServed) {
  Store();
  Serve();
  std::string read;
  LaunchTask other = launch_;
  other.set_attempt(4);
  PeerBlobs later(&TcpNetwork(), AttemptPeers(other, "b"));
  EXPECT_TRUE(absl::IsUnavailable(Read(&later, 0, kBlockBytes, &read)));
  PeerBlobs unknown(&TcpNetwork(), AttemptPeers(launch_, "c"));
  EXPECT_TRUE(absl::IsUnavailable(Read(&unknown, 0, kBlockBytes, &read)));
  PeerBlobs peers(&TcpNetwork(), AttemptPeers(launch_, "b"));
  EXPECT_EQ(peers.Read("c", {}, {1}, AsSpan(&read), &abort_).code(), absl::StatusCode::kInvalidArgument);
  PeerBlobRequest unaligned;
  unaligned.set_digest(info_.sha256);
  unaligned.set_offset(1);
  unaligned.set_bytes(kBlockBytes);
  read.resize(kBlockBytes);
  EXPECT_TRUE(absl::IsNotFound(peers.Read("a", unaligned, {1}, AsSpan(&read), &abort_))) << "it is refused";
  PeerBlobRequest beyond = unaligned;
  beyond.set_offset(INT64_MAX - kBlockBytes + 1);
  EXPECT_TRUE(absl::IsNotFound(peers.Read("a", beyond, {1}, AsSpan(&read), &abort_)))
      << "the end of the range overflows";
}

// On addresses other than loopback, connections are encrypted with the key of the attempt.
TEST_F(PeerBlobsTest, OnAddressesOtherThanLoopbackTheKeyOfTheAttemptIsNeeded) {
  Store();
  const absl::StatusOr<HostPort> at = ParseHostPort(listener_->Address());
  // Connections to 0.0.0.0 reach this machine, but the address does not count as loopback.
  const std::string any = absl::StrCat("0.0.0.0:", at->port);
  launch_.mutable_peers(0)->set_data_address(any);
  Serve();
  std::string read;
  PeerBlobs peers(&TcpNetwork(), AttemptPeers(launch_, "b"));
  ASSERT_TRUE(Read(&peers, 0, std::ssize(blob_), &read).ok());
  EXPECT_TRUE(read == blob_);
  launch_.set_session_key("another key of 16");
  PeerBlobs wrong_key(&TcpNetwork(), AttemptPeers(launch_, "b"));
  EXPECT_FALSE(Read(&wrong_key, 0, kBlockBytes, &read).ok());
}

}  // namespace
}  // namespace xlad::worker
