// Calls that wait for their clients, or for a session that does not run yet, do not keep other calls waiting.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
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

// Handlers that wait until the test releases them. They are released when the test ends, so that a failed assertion
// does not keep the pool from ending.
class BlockedHandlers {
 public:
  BlockedHandlers(int max_threads, int max_waiting) : pool_(max_threads, max_waiting) {}
  ~BlockedHandlers() { Release(); }
  bool Block(const std::string& user) {
    return pool_.Run(
        [this] {
          ++began_;
          released_.wait();
        },
        user);
  }
  void Release() {
    if (!std::exchange(is_released_, true)) release_.set_value();
  }
  // Whether this many handlers begin, and no more than these have begun.
  bool HaveBegun(int count) const {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(kPromptMs);
    while (began_ < count && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    return began_ == count;
  }
  // Whether a handler of this user runs although the others are blocked.
  bool Runs(const std::string& user) {
    const auto ran = std::make_shared<std::promise<void>>();
    auto future = ran->get_future();
    return pool_.Run([ran] { ran->set_value(); }, user) &&
           future.wait_for(std::chrono::milliseconds(kPromptMs)) == std::future_status::ready;
  }

 private:
  std::promise<void> release_;
  const std::shared_future<void> released_ = release_.get_future().share();
  bool is_released_ = false;
  std::atomic<int> began_ = 0;
  HandlerPool pool_;
};

TEST(HandlerPoolShare, AUserOccupiesAtMostHalfOfTheThreadsAndWaitingPlaces) {
  BlockedHandlers handlers(4, 8);
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(handlers.Block("mallory"));
  ASSERT_TRUE(handlers.HaveBegun(2));
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(handlers.Block("mallory"));
  EXPECT_FALSE(handlers.Block("mallory")) << "the other waiting places are for other users";
  EXPECT_TRUE(handlers.Runs("alice"));
  EXPECT_TRUE(handlers.HaveBegun(2));
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(handlers.Block(""));
  ASSERT_TRUE(handlers.HaveBegun(4));
  handlers.Release();
  EXPECT_TRUE(handlers.HaveBegun(8)) << "the waiting handlers of mallory run, too";
}

TEST(HandlerPoolShare, AFewUsersTogetherLeaveThreadsForOthers) {
  BlockedHandlers handlers(8, 64);
  int running = 0;
  for (const auto& [user, threads] : std::vector<std::pair<std::string, int>>{{"a", 4}, {"b", 2}, {"c", 1}}) {
    for (int i = 0; i < 8; ++i) ASSERT_TRUE(handlers.Block(user));
    EXPECT_TRUE(handlers.HaveBegun(running += threads)) << user;
  }
  EXPECT_TRUE(handlers.Runs("d"));
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
