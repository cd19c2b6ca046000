// Reads of a blob when the coordinator names another worker that has it.
#include "worker/grpc_task_store.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "base/net/grpc_channel.h"
#include "proto/worker.grpc.pb.h"
#include "storage/block_sums.h"
#include "worker/testing/two_workers_fixture.h"

namespace xlad::worker {
namespace {

using storage::HostCache;
using storage::kBlockBytes;

// Has one blob, and names worker "a" to each reader that has not failed to read from "a".
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

  // The answer to the next request of a reader names a peer, and then its call breaks. All other answers are bytes.
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

// Worker "b" reads the blob of a coordinator that names worker "a", which serves what its cache has.
class GrpcTaskStoreTest : public TwoWorkersTest {
 protected:
  GrpcTaskStoreTest() {
    MakeServer({.max_wait_ms = 1});
    Accept([this](std::unique_ptr<Connection> connection, const PeerHello& hello) {
      server_of_a_->Take(std::move(connection), hello);
    });
  }
  ~GrpcTaskStoreTest() override {
    if (server_ != nullptr) server_->Shutdown();
  }

  void StartCoordinator(int64_t blob_bytes) {
    coordinator_ = std::make_unique<NamingCoordinator>(BlobOfSize(blob_bytes));
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(coordinator_.get());
    server_ = builder.BuildAndStart();
    XLAD_CHECK(server_ != nullptr);
    channel_ = *MakeChannel({absl::StrCat("127.0.0.1:", port), "", ""});
  }
  // Reads the blob as worker "b", and compares it.
  void ReadAsB(int64_t min_free_bytes = 0) {
    BlobSource source;
    source.channel = channel_;
    source.cache = *HostCache::Open(folder_ + "/b", {.min_free_bytes = min_free_bytes});
    source.peers = std::make_shared<PeerBlobs>(&TcpNetwork(), AttemptPeers(launch_, "b"));
    const absl::StatusOr<std::string> read = ReadBlob(source, coordinator_->digest(), &abort_);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_TRUE(*read == coordinator_->blob());
  }

  std::unique_ptr<NamingCoordinator> coordinator_;
  std::unique_ptr<grpc::Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
};

TEST_F(GrpcTaskStoreTest, APeerThatHasTheBlobSendsIt) {
  StartCoordinator(2 * kBlockBytes + 100);
  StoreAtA(coordinator_->digest(), coordinator_->blob());
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
  StartCoordinator(6 * 8 * kBlockBytes);  // The blob is read in six ranges.
  ReadAsB();
  const std::vector<GetBlobRangeRequest> requests = coordinator_->requests();
  EXPECT_EQ(std::count_if(requests.begin(), requests.end(), [](const auto& request) { return request.has_reader(); }),
            3);
}

TEST_F(GrpcTaskStoreTest, APeerThatIsFullHasNotFailed) {
  MakeServer({.max_connections = 0});
  StartCoordinator(6 * 8 * kBlockBytes);  // Six ranges.
  ReadAsB();
  const std::vector<GetBlobRangeRequest> requests = coordinator_->requests();
  EXPECT_EQ(std::count_if(requests.begin(), requests.end(), [](const auto& request) { return request.has_reader(); }),
            6);
  for (const GetBlobRangeRequest& request : requests) EXPECT_TRUE(request.reader().failed().empty());
}

TEST_F(GrpcTaskStoreTest, APeerThatIsGoneHasFailed) {
  StartCoordinator(2 * kBlockBytes + 100);
  StopA();
  ReadAsB();
  const std::vector<GetBlobRangeRequest> requests = coordinator_->requests();
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_THAT(requests[1].reader().failed(), testing::ElementsAre("a"));
}

// A worker whose cache has no space cannot serve what it reads.
TEST_F(GrpcTaskStoreTest, AWorkerThatStoresNothingDoesNotAskForPeers) {
  StartCoordinator(2 * kBlockBytes + 100);
  ReadAsB(/*min_free_bytes=*/std::numeric_limits<int64_t>::max());
  const std::vector<GetBlobRangeRequest> requests = coordinator_->requests();
  ASSERT_EQ(requests.size(), 1u);
  EXPECT_FALSE(requests[0].has_reader());
}

// The answer to the first try names a peer, and the answer to the second one has the bytes.
TEST_F(GrpcTaskStoreTest, APeerNamedByABrokenCallIsForgotten) {
  StartCoordinator(2 * kBlockBytes + 100);
  coordinator_->CutOffOnce();
  ReadAsB();
  const std::vector<GetBlobRangeRequest> requests = coordinator_->requests();
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_TRUE(requests[1].has_reader()) << "the first request is repeated, and no peer is asked";
}

}  // namespace
}  // namespace xlad::worker
