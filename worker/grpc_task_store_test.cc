// From where a worker reads a blob when the coordinator names another worker that has it.
#include "worker/grpc_task_store.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <mutex>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/grpc_channel.h"
#include "base/log.h"
#include "base/network.h"
#include "collectives/exec/transports/frame.h"
#include "proto/worker.grpc.pb.h"
#include "storage/block_sums.h"

namespace xlad::worker {
namespace {

using storage::HostCache;
using storage::kBlockBytes;

// Has one blob, and names the worker "a" to each reader that has not failed to read from it.
class NamingCoordinator final : public Coordinator::Service {
 public:
  explicit NamingCoordinator(std::string blob) : blob_(std::move(blob)) {
    storage::ObjectHasher hasher;
    hasher.Add(blob_);
    info_ = hasher.Finish();
  }

  grpc::Status GetBlobRange(grpc::ServerContext*, const GetBlobRangeRequest* request,
                            grpc::ServerWriter<Chunk>* out) override {
    const std::lock_guard lock(mutex_);
    if (request->size() > 0) requests_.push_back(*request);
    Chunk chunk;
    chunk.set_total_bytes(std::ssize(blob_));
    const int64_t begin = request->offset(), end = begin + request->size();
    const bool is_cut_off = request->has_reader() && cut_off_ > 0;
    if (is_cut_off) --cut_off_;
    if (is_cut_off || (request->has_reader() && request->reader().failed().empty() && !sends_)) {
      chunk.set_peer("a");
      for (int64_t at = begin; at < end; at += kBlockBytes) chunk.add_sums(info_.sums.sums[at / kBlockBytes]);
      out->Write(chunk);
      return is_cut_off ? grpc::Status(grpc::StatusCode::UNAVAILABLE, "cut off") : grpc::Status::OK;
    }
    if (begin == end) out->Write(chunk);
    for (int64_t at = begin; at < end; at += kBlockBytes) {
      chunk.set_data(blob_.substr(at, std::min(kBlockBytes, end - at)));
      out->Write(chunk);
    }
    return grpc::Status::OK;
  }

  // The next request of a reader names a peer and then breaks; all others are answered with bytes.
  void CutOffOnce() {
    cut_off_ = 1;
    sends_ = true;
  }
  const std::string& blob() const { return blob_; }
  const std::string& digest() const { return info_.sha256; }
  // The requests for bytes so far.
  std::vector<GetBlobRangeRequest> requests() const {
    const std::lock_guard lock(mutex_);
    return requests_;
  }

 private:
  const std::string blob_;
  storage::ObjectInfo info_;
  int cut_off_ = 0;
  bool sends_ = false;
  mutable std::mutex mutex_;
  std::vector<GetBlobRangeRequest> requests_;
};

// The worker "b" reads the blob; "a" serves what its cache has.
class GrpcTaskStoreTest : public testing::Test {
 protected:
  GrpcTaskStoreTest() : folder_(testing::TempDir() + "/grpc-task-store-XXXXXX") {
    SetLogLevel(LogLevel::kError);
    XLAD_CHECK(mkdtemp(folder_.data()) != nullptr);
    listener_ = *TcpNetwork().Listen("127.0.0.1:0");
    launch_.set_job_id("job");
    launch_.set_attempt(1);
    launch_.set_session_key("0123456789abcdef");
    AddPeer("a", listener_->Address());
    AddPeer("b", "127.0.0.1:1");
    cache_of_a_ = *HostCache::Open(folder_ + "/a", {.min_free_bytes = 0});
    server_of_a_ = std::make_unique<PeerBlobServer>(cache_of_a_, AttemptPeers(launch_, "a"),
                                                    PeerBlobServer::Options{.max_wait_ms = 1});
    acceptor_ = std::thread([this] {
      while (true) {
        auto connection = listener_->Accept();
        if (!connection.ok()) return;
        const auto block = collectives::ReadBlock(connection->get());
        PeerHello hello;
        if (block.ok() && hello.ParseFromString(*block)) server_of_a_->Take(*std::move(connection), hello);
      }
    });
  }
  ~GrpcTaskStoreTest() override {
    StopA();
    if (server_ != nullptr) server_->Shutdown();
    server_of_a_.reset();
    std::filesystem::remove_all(folder_);
    SetLogLevel(LogLevel::kInfo);
  }

  void AddPeer(const std::string& id, const std::string& address) {
    Peer* peer = launch_.add_peers();
    peer->set_worker_id(id);
    peer->set_data_address(address);
  }
  void StopA() {
    if (!acceptor_.joinable()) return;
    listener_->Shutdown();
    acceptor_.join();
    listener_ = nullptr;
  }
  void StartCoordinator(int64_t blob_bytes) {
    std::string blob(blob_bytes, '\0');
    for (size_t i = 0; i < blob.size(); ++i) blob[i] = static_cast<char>(i * 2654435761u >> 13);
    coordinator_ = std::make_unique<NamingCoordinator>(std::move(blob));
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(coordinator_.get());
    server_ = builder.BuildAndStart();
    XLAD_CHECK(server_ != nullptr);
    channel_ = *MakeChannel({absl::StrCat("127.0.0.1:", port), "", ""});
  }
  // Reads the blob as b, and compares it.
  void ReadAsB(int64_t min_free_bytes = 0) {
    BlobSource source;
    source.channel = channel_;
    source.cache = *HostCache::Open(folder_ + "/b", {.min_free_bytes = min_free_bytes});
    source.peers = std::make_shared<PeerBlobs>(&TcpNetwork(), AttemptPeers(launch_, "b"));
    const absl::StatusOr<std::string> read = ReadBlob(source, coordinator_->digest(), &abort_);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_TRUE(*read == coordinator_->blob());
  }

  std::string folder_;
  std::unique_ptr<Listener> listener_;
  LaunchTask launch_;
  std::shared_ptr<HostCache> cache_of_a_;
  std::unique_ptr<PeerBlobServer> server_of_a_;
  std::thread acceptor_;
  std::unique_ptr<NamingCoordinator> coordinator_;
  std::unique_ptr<grpc::Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
  collectives::AbortSignal abort_;
};

TEST_F(GrpcTaskStoreTest, APeerThatHasTheBlobGivesIt) {
  StartCoordinator(2 * kBlockBytes + 100);
  ASSERT_TRUE(
      cache_of_a_
          ->ReadBlob(coordinator_->digest(), [this](bool) { return storage::MakeMemoryReader(coordinator_->blob()); })
          .ok());
  ReadAsB();
  EXPECT_EQ(coordinator_->requests().size(), 1u);
  EXPECT_EQ(server_of_a_->sent_bytes(), std::ssize(coordinator_->blob()));
}

TEST_F(GrpcTaskStoreTest, APeerThatIsLateHasNotFailed) {
  StartCoordinator(2 * kBlockBytes + 100);
  ReadAsB();
  const std::vector<GetBlobRangeRequest> requests = coordinator_->requests();
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_TRUE(requests[0].has_reader());
  EXPECT_FALSE(requests[1].has_reader());
}

TEST_F(GrpcTaskStoreTest, PeersThatAreLateAgainAndAgainAreNotWaitedFor) {
  StartCoordinator(6 * 8 * kBlockBytes);  // Six ranges.
  ReadAsB();
  const std::vector<GetBlobRangeRequest> requests = coordinator_->requests();
  EXPECT_EQ(std::count_if(requests.begin(), requests.end(), [](const auto& request) { return request.has_reader(); }),
            3);
}

TEST_F(GrpcTaskStoreTest, APeerThatIsGoneHasFailed) {
  StartCoordinator(2 * kBlockBytes + 100);
  StopA();
  ReadAsB();
  const std::vector<GetBlobRangeRequest> requests = coordinator_->requests();
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_THAT(requests[1].reader().failed(), testing::ElementsAre("a"));
}

// It could not pass on what it reads.
TEST_F(GrpcTaskStoreTest, AWorkerThatStoresNothingDoesNotAskForPeers) {
  StartCoordinator(2 * kBlockBytes + 100);
  ReadAsB(/*min_free_bytes=*/std::numeric_limits<int64_t>::max());
  const std::vector<GetBlobRangeRequest> requests = coordinator_->requests();
  ASSERT_EQ(requests.size(), 1u);
  EXPECT_FALSE(requests[0].has_reader());
}

// Its answer to the first try names a peer, and that to the second one has the bytes.
TEST_F(GrpcTaskStoreTest, WhatABrokenCallNamedIsForgotten) {
  StartCoordinator(2 * kBlockBytes + 100);
  coordinator_->CutOffOnce();
  ReadAsB();
  const std::vector<GetBlobRangeRequest> requests = coordinator_->requests();
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_TRUE(requests[1].has_reader()) << "the first request is repeated, and no peer is asked";
}

}  // namespace
}  // namespace xlad::worker
