// Blobs from worker to worker, over real connections: what peers pass on, and what becomes of peers that fail.
#include "worker/peer_blobs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "base/hash.h"
#include "base/log.h"
#include "collectives/exec/transports/frame.h"
#include "storage/block_sums.h"

namespace xlad::worker {
namespace {

using storage::HostCache;
using storage::kBlockBytes;

std::string BytesOfSize(int64_t size) {
  std::string bytes(size, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 2654435761u >> 13);
  return bytes;
}

absl::Span<std::byte> AsSpan(std::string* bytes) {
  return {reinterpret_cast<std::byte*>(bytes->data()), bytes->size()};
}

// The workers "a", which has the blob and serves it, and "b", which reads it.
class PeerBlobsTest : public testing::Test {
 protected:
  PeerBlobsTest() : folder_(testing::TempDir() + "/peer-blobs-XXXXXX"), blob_(BytesOfSize(3 * kBlockBytes + 100)) {
    SetLogLevel(LogLevel::kError);
    XLAD_CHECK(mkdtemp(folder_.data()) != nullptr);
    cache_ = *HostCache::Open(folder_, {.min_free_bytes = 0});
    storage::ObjectHasher hasher;
    hasher.Add(blob_);
    info_ = hasher.Finish();
    listener_ = *TcpNetwork().Listen("127.0.0.1:0");
    launch_.set_job_id("job");
    launch_.set_attempt(3);
    launch_.set_generation(7);
    launch_.set_session_key("0123456789abcdef");
    AddPeer("a", listener_->Address());
    AddPeer("b", "127.0.0.1:1");
  }
  ~PeerBlobsTest() override {
    listener_->Shutdown();
    if (acceptor_.joinable()) acceptor_.join();
    server_.reset();
    std::filesystem::remove_all(folder_);
    SetLogLevel(LogLevel::kInfo);
  }

  void AddPeer(const std::string& id, const std::string& address) {
    Peer* peer = launch_.add_peers();
    peer->set_worker_id(id);
    peer->set_data_address(address);
  }
  // Stores the blob in the cache of a, as its own reading does.
  void Store() {
    const auto stored = cache_->ReadBlob(info_.sha256, [this](bool) { return storage::MakeMemoryReader(blob_); });
    ASSERT_TRUE(stored.ok());
  }
  // Every connection to a is passed to `take` after its hello.
  void Accept(std::function<void(std::unique_ptr<Connection>, const PeerHello&)> take) {
    acceptor_ = std::thread([this, take = std::move(take)] {
      while (true) {
        auto connection = listener_->Accept();
        if (!connection.ok()) return;
        const auto block = collectives::ReadBlock(connection->get());
        PeerHello hello;
        if (block.ok() && hello.ParseFromString(*block)) take(*std::move(connection), hello);
      }
    });
  }
  void Serve(int64_t max_wait_ms = 60'000) {
    server_ = std::make_unique<PeerBlobServer>(cache_, AttemptPeers(launch_, "a"),
                                               PeerBlobServer::Options{.max_wait_ms = max_wait_ms});
    Accept([this](std::unique_ptr<Connection> connection, const PeerHello& hello) {
      server_->Take(std::move(connection), hello);
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

  std::string folder_;
  const std::string blob_;
  std::shared_ptr<HostCache> cache_;
  storage::ObjectInfo info_;
  std::unique_ptr<Listener> listener_;
  LaunchTask launch_;
  collectives::AbortSignal abort_;
  std::unique_ptr<PeerBlobServer> server_;
  std::thread acceptor_;
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
  EXPECT_EQ(server_->sent_bytes(), peers.received_bytes());
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
  EXPECT_TRUE(Read(&peers, 0, kBlockBytes, &read).ok()) << "the connection is still there";
  std::fstream file(folder_ + "/blobs/" + info_.sha256, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(-1, std::ios::end);
  const char last = static_cast<char>(file.get());
  file.seekp(-1, std::ios::end);
  file.put(static_cast<char>(last ^ 1));
  file.close();
  EXPECT_TRUE(absl::IsNotFound(Read(&peers, 3 * kBlockBytes, 100, &read)));
  EXPECT_TRUE(Read(&peers, 2 * kBlockBytes, kBlockBytes, &read).ok());
}

// A peer that says that it has the bytes, and sends others, or a part of them.
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
    listener_->Shutdown();
    acceptor_.join();
    listener_ = *TcpNetwork().Listen("127.0.0.1:0");
    launch_.mutable_peers(0)->set_data_address(listener_->Address());
  }
}

TEST_F(PeerBlobsTest, APeerThatIsGoneIsUnavailable) {
  listener_->Shutdown();
  listener_ = nullptr;
  listener_ = *TcpNetwork().Listen("127.0.0.1:0");
  PeerBlobs peers(&TcpNetwork(), AttemptPeers(launch_, "b"));
  std::string read;
  EXPECT_TRUE(absl::IsUnavailable(Read(&peers, 0, kBlockBytes, &read)));
}

// Its process is stopped, for example. When the coordinator counts it as lost, it ends the attempt.
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

TEST_F(PeerBlobsTest, OnlyWorkersOfTheAttemptAreServed) {
  Store();
  Serve();
  std::string read;
  LaunchTask other = launch_;
  other.set_attempt(4);
  PeerBlobs later(&TcpNetwork(), AttemptPeers(other, "b"));
  EXPECT_TRUE(absl::IsUnavailable(Read(&later, 0, kBlockBytes, &read)));
  PeerBlobs stranger(&TcpNetwork(), AttemptPeers(launch_, "c"));
  EXPECT_TRUE(absl::IsUnavailable(Read(&stranger, 0, kBlockBytes, &read)));
  PeerBlobs peers(&TcpNetwork(), AttemptPeers(launch_, "b"));
  EXPECT_EQ(peers.Read("c", {}, {1}, AsSpan(&read), &abort_).code(), absl::StatusCode::kInvalidArgument);
  PeerBlobRequest unaligned;
  unaligned.set_digest(info_.sha256);
  unaligned.set_offset(1);
  unaligned.set_bytes(kBlockBytes);
  read.resize(kBlockBytes);
  EXPECT_TRUE(absl::IsUnavailable(peers.Read("a", unaligned, {1}, AsSpan(&read), &abort_))) << "it is closed";
  PeerBlobRequest beyond = unaligned;
  beyond.set_offset(INT64_MAX - kBlockBytes + 1);
  EXPECT_TRUE(absl::IsUnavailable(peers.Read("a", beyond, {1}, AsSpan(&read), &abort_))) << "its end is not a number";
}

// Off loopback, connections are encrypted with the key of the attempt.
TEST_F(PeerBlobsTest, OffLoopbackTheKeyOfTheAttemptIsNeeded) {
  Store();
  const absl::StatusOr<HostPort> at = ParseHostPort(listener_->Address());
  const std::string any = absl::StrCat("0.0.0.0:", at->port);  // Not loopback, and reaches this machine.
  launch_.mutable_peers(0)->set_data_address(any);
  Serve();
  std::string read;
  PeerBlobs peers(&TcpNetwork(), AttemptPeers(launch_, "b"));
  ASSERT_TRUE(Read(&peers, 0, std::ssize(blob_), &read).ok());
  EXPECT_TRUE(read == blob_);
  launch_.set_session_key("another key of 16");
  PeerBlobs stranger(&TcpNetwork(), AttemptPeers(launch_, "b"));
  EXPECT_FALSE(Read(&stranger, 0, kBlockBytes, &read).ok());
}

}  // namespace
}  // namespace xlad::worker
