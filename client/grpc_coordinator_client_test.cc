// A client whose token is replaced while it runs.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/file_system.h"
#include "base/hash.h"
#include "base/testing/test_folder.h"
#include "client/coordinator_client.h"
#include "proto/worker.grpc.pb.h"

namespace xlad::client {
namespace {

using ::testing::ElementsAre;

const std::string kContents = "contents";

// Refuses a call in the middle if its token is "first". Replaces this token in the client's file just before it refuses
// the call, so the client cannot have read the second token before the call. Refuses calls with other tokens except
// "second", too.
class ReplacingCoordinator final : public Coordinator::Service {
 public:
  explicit ReplacingCoordinator(std::string token_file) : token_file_(std::move(token_file)) {}

  grpc::Status GetStatus(grpc::ServerContext* context, const GetStatusRequest*, CoordinatorStatus*) override {
    return Check(context);
  }
  grpc::Status GetBlob(grpc::ServerContext* context, const GetBlobRequest*,
                       grpc::ServerWriter<Chunk>* writer) override {
    return Send(context, kContents, writer);
  }
  grpc::Status GetTrace(grpc::ServerContext* context, const GetTraceRequest*,
                        grpc::ServerWriter<Chunk>* writer) override {
    return Send(context, kContents, writer);
  }
  // The range of 0 bytes, by which a client asks for the size, is sent to every caller.
  grpc::Status GetBlobRange(grpc::ServerContext* context, const GetBlobRangeRequest* request,
                            grpc::ServerWriter<Chunk>* writer) override {
    if (request->size() > 0) return Send(context, kContents.substr(request->offset(), request->size()), writer);
    Chunk chunk;
    chunk.set_total_bytes(std::ssize(kContents));
    writer->Write(chunk);
    return grpc::Status::OK;
  }
  grpc::Status HasBlobs(grpc::ServerContext*, const HasBlobsRequest* request, HasBlobsResponse* response) override {
    *response->mutable_missing() = request->digests();
    return grpc::Status::OK;
  }
  grpc::Status PutBlob(grpc::ServerContext* context, grpc::ServerReader<PutBlobRequest>* reader,
                       PutBlobResponse*) override {
    PutBlobRequest request;
    reader->Read(&request);
    const grpc::Status status = Check(context);
    if (!status.ok()) return status;
    uploaded_ = request.chunk();
    while (reader->Read(&request)) uploaded_ += request.chunk();
    return grpc::Status::OK;
  }
  grpc::Status SubmitJob(grpc::ServerContext*, const SubmitJobRequest*, SubmitJobResponse* response) override {
    response->set_job_id("job-1");
    return grpc::Status::OK;
  }
  // Sends one step over each connection. The second step is the last one.
  grpc::Status WatchJob(grpc::ServerContext* context, const WatchJobRequest* request,
                        grpc::ServerWriter<WatchJobResponse>* writer) override {
    WatchJobResponse update;
    update.add_metrics()->set_step(request->from_step());
    if (request->from_step() > 0) update.mutable_status()->set_state(SUCCEEDED);
    writer->Write(update);
    return Check(context);
  }

  const std::string& uploaded() const { return uploaded_; }
  int refused() const { return refused_; }

 private:
  grpc::Status Check(grpc::ServerContext* context) {
    const auto found = context->client_metadata().find("authorization");
    const std::string token(found->second.data(), found->second.size());
    if (token == "Bearer second") return grpc::Status::OK;
    ++refused_;
    if (token == "Bearer first") EXPECT_TRUE(RealFileSystem().WriteAtomically(token_file_, "second\n").ok());
    return grpc::Status(grpc::StatusCode::UNAUTHENTICATED, "found a token, which was revoked");
  }
  // Sends the text in two parts, the second one only if the token is accepted.
  grpc::Status Send(grpc::ServerContext* context, const std::string& text, grpc::ServerWriter<Chunk>* writer) {
    Chunk chunk;
    chunk.set_data(text.substr(0, text.size() / 2));
    writer->Write(chunk);
    const grpc::Status status = Check(context);
    if (!status.ok()) return status;
    chunk.set_data(text.substr(text.size() / 2));
    writer->Write(chunk);
    return grpc::Status::OK;
  }

  const std::string token_file_;
  std::string uploaded_;
  int refused_ = 0;
};

class ReplacedToken : public testing::Test {
 protected:
  void SetUp() override {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&coordinator_);
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    ASSERT_TRUE(RealFileSystem().WriteAtomically(file_, "first\n").ok());
    address_ = absl::StrCat("127.0.0.1:", port);
    client_ = NewClient();
    ASSERT_NE(client_, nullptr);
  }
  void TearDown() override {
    client_.reset();
    server_->Shutdown();
    EXPECT_EQ(coordinator_.refused(), 1);
  }

  std::unique_ptr<CoordinatorClient> NewClient() const {
    auto client = CoordinatorClient::Connect({address_, "", file_});
    return client.ok() ? *std::move(client) : nullptr;
  }

  const TestFolder folder_;
  const std::string file_ = JoinPath(folder_.path(), "join");
  ReplacingCoordinator coordinator_{file_};
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
  std::unique_ptr<CoordinatorClient> client_;
};

TEST_F(ReplacedToken, ACallIsMadeAgain) {
  const absl::Status status = client_->Status().status();
  EXPECT_TRUE(status.ok()) << status;
}

TEST_F(ReplacedToken, ADownloadBeginsAgain) {
  EXPECT_EQ(client_->GetBlob(Sha256Hex(kContents)).value_or(""), kContents);
}

TEST_F(ReplacedToken, ATraceBeginsAgain) { EXPECT_EQ(client_->Trace("job-1").value_or(""), kContents); }

TEST_F(ReplacedToken, ARangeIsReadAgain) {
  const auto reader = client_->OpenBlob(Sha256Hex(kContents));
  ASSERT_TRUE(reader.ok()) << reader.status();
  std::string bytes(6, ' ');
  const absl::Status status = (*reader)->Read(1, absl::MakeSpan(reinterpret_cast<std::byte*>(bytes.data()), 6));
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(bytes, "ontent");
}

TEST_F(ReplacedToken, AnUploadBeginsAgain) {
  Job job;
  job.program = std::string(3 << 20, 'p');
  job.spec.set_program_blob(Sha256Hex(job.program));
  EXPECT_EQ(client_->Submit(job, "key").value_or(""), "job-1");
  EXPECT_TRUE(coordinator_.uploaded() == job.program);
}

TEST_F(ReplacedToken, AWatchContinuesAfterTheLastStep) {
  std::vector<int64_t> steps;
  const absl::Status status = client_->Watch("job-1", /*patience_ms=*/0, [&](const WatchJobResponse& update) {
    for (const StepMetrics& metrics : update.metrics()) steps.push_back(metrics.step());
    return true;
  });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(steps, ElementsAre(0, 1));
}

TEST_F(ReplacedToken, ATokenThatWasNotReplacedIsRefusedOnce) {
  ASSERT_TRUE(RealFileSystem().WriteAtomically(file_, "other\n").ok());
  const auto other = NewClient();
  ASSERT_NE(other, nullptr);
  EXPECT_TRUE(absl::IsUnauthenticated(other->Status().status()));
}

}  // namespace
}  // namespace xlad::client
