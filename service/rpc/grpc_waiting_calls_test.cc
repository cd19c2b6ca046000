// Calls that wait for their clients, or for a session that does not run yet, do not keep other calls waiting.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/file_system.h"
#include "base/hash.h"
#include "base/net/grpc_channel.h"
#include "base/status.h"
#include "base/testing/test_folder.h"
#include "proto/worker.grpc.pb.h"
#include "proto/xlad_v1.h"
#include "service/rpc/coordinator_daemon.h"
#include "service/rpc/grpc_calls.h"

namespace xlad::service {
namespace {

constexpr int64_t kWaitMs = 600'000;  // Longer than any test takes, however busy the machine is.
constexpr int64_t kPromptMs = 60'000;  // Much longer than a call takes that does not wait for others.

// An upload of a blob in two parts.
class SlowUpload {
 public:
  SlowUpload(Coordinator::Stub* stub, const std::string& name) : name_(name) {
    PrepareCall(&context_, "", kWaitMs);
    writer_ = stub->PutBlob(&context_, &response_);
    PutBlobRequest request;
    request.set_digest(Sha256Hex(name_ + kEnd));
    request.set_chunk(name_);
    EXPECT_TRUE(writer_->Write(request));
  }
  grpc::Status Finish() {
    PutBlobRequest request;
    request.set_chunk(kEnd);
    writer_->Write(request);
    writer_->WritesDone();
    return writer_->Finish();
  }

 private:
  static constexpr char kEnd[] = ", and its end";
  const std::string name_;
  grpc::ClientContext context_;
  PutBlobResponse response_;
  std::unique_ptr<grpc::ClientWriter<PutBlobRequest>> writer_;
};

// Calls that wait for their session. Those that have not ended are canceled by the destructor.
class Locating {
 public:
  ~Locating() {
    for (const auto& call : calls_) call->context.TryCancel();
    queue_.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) {
    }
  }
  void Begin(Coordinator::Stub* stub, const std::string& session_id) {
    Call& call = *calls_.emplace_back(std::make_unique<Call>());
    PrepareCall(&call.context, "", kWaitMs);
    LocateSessionRequest request;
    request.set_session_id(session_id);
    call.reader = stub->AsyncLocateSession(&call.context, request, &queue_);
    call.reader->Finish(&call.response, &call.status, &call);
  }
  // Waits until the next call ends.
  grpc::StatusCode AwaitOne() {
    void* tag = nullptr;
    bool ok = false;
    XLAD_CHECK(queue_.Next(&tag, &ok));
    return static_cast<Call*>(tag)->status.error_code();
  }

 private:
  struct Call {
    grpc::ClientContext context;
    LocateSessionResponse response;
    grpc::Status status;
    std::unique_ptr<grpc::ClientAsyncResponseReader<LocateSessionResponse>> reader;
  };
  grpc::CompletionQueue queue_;
  std::vector<std::unique_ptr<Call>> calls_;
};

class WaitingCalls : public testing::Test {
 protected:
  void SetUp() override {
    DaemonOptions options;
    options.listen = "127.0.0.1:0";
    options.data_folder = JoinPath(folder_.path(), "data");
    options.program_path = "/bin/false";
    auto daemon = CoordinatorDaemon::Start(options);
    ASSERT_TRUE(daemon.ok()) << daemon.status();
    daemon_ = *std::move(daemon);
    stub_ = Coordinator::NewStub(*MakeChannel({daemon_->Address(), "", ""}));
  }

  const TestFolder folder_;
  std::unique_ptr<CoordinatorDaemon> daemon_;
  std::unique_ptr<Coordinator::Stub> stub_;
};

// A client that has sent nothing for 30 s loses its call. If the last upload had to wait for the others, some of them
// would end in this way.
TEST_F(WaitingCalls, AnUploadDoesNotWaitForSlowOnes) {
  std::vector<std::unique_ptr<SlowUpload>> slow;
  for (int i = 0; i < 100; ++i) slow.push_back(std::make_unique<SlowUpload>(stub_.get(), absl::StrCat("slow ", i)));
  const grpc::Status quick = SlowUpload(stub_.get(), "quick").Finish();
  EXPECT_TRUE(quick.ok()) << quick.error_message();
  for (const auto& upload : slow) {
    const grpc::Status status = upload->Finish();
    EXPECT_TRUE(status.ok()) << status.error_message();
  }
}

TEST(HandlerPoolShare, AUserOccupiesAtMostHalfOfTheThreadsAndWaitingPlaces) {
  std::promise<void> release, other_ran;  // Destroyed after the threads of the pool have ended.
  const std::shared_future<void> released = release.get_future().share();
  std::atomic<int> began = 0;
  HandlerPool pool(4, 8);
  const auto block = [&] {
    ++began;
    released.wait();
  };
  const auto block_of_mallory = [&] { return pool.Run(block, "mallory"); };
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(block_of_mallory());
  while (began < 2) std::this_thread::yield();
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(block_of_mallory());
  EXPECT_FALSE(block_of_mallory()) << "the other waiting places are for other users";
  ASSERT_TRUE(pool.Run([&] { other_ran.set_value(); }, "alice"));
  EXPECT_EQ(other_ran.get_future().wait_for(std::chrono::milliseconds(kPromptMs)), std::future_status::ready);
  EXPECT_EQ(began, 2);
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(pool.Run(block));
  while (began < 4) std::this_thread::yield();
  release.set_value();
  while (began < 8) std::this_thread::yield();  // The waiting handlers of mallory run, too.
}

TEST_F(WaitingCalls, ASessionDoesNotWaitForSessionsWithoutDevices) {
  OpenSessionRequest open;
  open.set_client_key("waits");
  OpenSessionResponse session;
  grpc::ClientContext opening;
  PrepareCall(&opening, "", kWaitMs);
  ASSERT_TRUE(stub_->OpenSession(&opening, open, &session).ok());
  grpc::ClientContext holding;
  PrepareCall(&holding, "", kWaitMs);
  HoldSessionRequest hold;
  hold.set_session_id(session.session_id());
  const auto held = stub_->HoldSession(&holding, hold);
  JobStatus waits;
  ASSERT_TRUE(held->Read(&waits));

  constexpr int kMany = 300;  // More than the threads for calls of sessions.
  Locating locating;
  for (int i = 0; i < kMany; ++i) locating.Begin(stub_.get(), session.session_id());
  grpc::ClientContext loading;
  PrepareCall(&loading, "", kPromptMs);
  LoadProgramRequest load;
  load.set_session_id("job-none");
  load.set_program_blob(std::string(64, '0'));
  LoadProgramResponse loaded;
  EXPECT_EQ(stub_->LoadProgram(&loading, load, &loaded).error_code(), grpc::StatusCode::NOT_FOUND);

  CloseSessionRequest close;
  close.set_session_id(session.session_id());
  CloseSessionResponse closed;
  grpc::ClientContext closing;
  PrepareCall(&closing, "", kWaitMs);
  EXPECT_TRUE(stub_->CloseSession(&closing, close, &closed).ok());
  for (int ended = 0; ended < kMany; ++ended) EXPECT_EQ(locating.AwaitOne(), grpc::StatusCode::ABORTED);
}

}  // namespace
}  // namespace xlad::service
