// A worker whose token is replaced while it runs.
#include "worker/grpc_attachment.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/file_system.h"
#include "base/testing/test_folder.h"
#include "proto/worker.grpc.pb.h"
#include "worker/grpc_caller.h"

namespace xlad::worker {
namespace {

using ::testing::HasSubstr;

// Accepts one token. Streams with another token end.
class StrictCoordinator final : public Coordinator::Service {
 public:
  void Accept(const std::string& token) {
    const std::lock_guard lock(mutex_);
    accepted_ = absl::StrCat("Bearer ", token);
    changed_.notify_all();
  }

  grpc::Status Attach(grpc::ServerContext* context,
                      grpc::ServerReaderWriter<CoordinatorMessage, WorkerMessage>* stream) override {
    const auto found = context->client_metadata().find("authorization");
    const std::string token(found->second.data(), found->second.size());
    std::unique_lock lock(mutex_);
    if (accepted_ == token) {
      CoordinatorMessage message;
      message.mutable_registered();
      stream->Write(message);
    }
    const auto is_over = [&] { return accepted_ != token || context->IsCancelled(); };
    while (!is_over()) changed_.wait_for(lock, std::chrono::milliseconds(20));
    return grpc::Status(grpc::StatusCode::UNAUTHENTICATED, "found a token, which was revoked");
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string accepted_;
};

// What the attachment has reported.
class Reports {
 public:
  void Add(const Event& event) {
    const std::lock_guard lock(mutex_);
    const auto* const message = std::get_if<CoordinatorMessage>(&event);
    registered_ += message != nullptr && message->has_registered();
    changed_.notify_all();
  }
  void Refuse(const absl::Status& status) {
    const std::lock_guard lock(mutex_);
    refused_ = status;
    changed_.notify_all();
  }
  // Waits until the worker has registered this many times or is refused. Returns the refusal.
  absl::Status WaitFor(int registered) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return registered_ >= registered || !refused_.ok(); });
    return refused_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int registered_ = 0;
  absl::Status refused_;
};

TEST(Attachment, TheTokenIsReadAgainForEachStream) {
  const TestFolder folder;
  const std::string file = JoinPath(folder.path(), "join");
  const auto replace = [&](const std::string& token) {
    ASSERT_TRUE(RealFileSystem().WriteAtomically(file, token + "\naddress\n").ok());
  };
  StrictCoordinator coordinator;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&coordinator);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  ASSERT_NE(server, nullptr);
  replace("first");
  coordinator.Accept("first");
  Reports reports;
  auto attachment = Attachment::Start({absl::StrCat("127.0.0.1:", port), "", file}, &RealClock(),
                                      [&](const Event& event) { reports.Add(event); },
                                      [&](const absl::Status& status) { reports.Refuse(status); });
  ASSERT_TRUE(attachment.ok()) << attachment.status();
  EXPECT_TRUE(reports.WaitFor(1).ok());
  replace("second");
  coordinator.Accept("second");
  EXPECT_TRUE(reports.WaitFor(2).ok());
  coordinator.Accept("third");  // The file keeps the second token.
  const absl::Status refused = reports.WaitFor(3);
  EXPECT_TRUE(absl::IsUnauthenticated(refused));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("which was revoked"));
  attachment->reset();
  server->Shutdown();
}

TEST(GrpcCaller, ACallIsRepeatedIfItsRefusedTokenHasBeenReplaced) {
  const TestFolder folder;
  const std::string file = JoinPath(folder.path(), "join");
  ASSERT_TRUE(RealFileSystem().WriteAtomically(file, "first\n").ok());
  const std::shared_ptr<TokenFile> token = *TokenFile::Open(file);
  GrpcCaller caller(token);
  collectives::AbortSignal abort;
  int calls = 0;
  const auto refuse = [&](grpc::ClientContext*) {
    ++calls;
    return grpc::Status(grpc::StatusCode::UNAUTHENTICATED, "no");
  };
  EXPECT_TRUE(absl::IsUnauthenticated(caller.Retry(&abort, refuse)));
  EXPECT_EQ(calls, 1);
  const absl::Status repeated = caller.Retry(&abort, [&](grpc::ClientContext* context) {
    if (++calls > 2) return grpc::Status::OK;
    EXPECT_TRUE(RealFileSystem().WriteAtomically(file, "second\n").ok());
    return refuse(context);
  });
  EXPECT_TRUE(repeated.ok()) << repeated;
  EXPECT_TRUE(token->HasOther("first"));
  ASSERT_TRUE(RealFileSystem().Remove(file).ok());
  EXPECT_FALSE(token->HasOther("second")) << "the last token remains while the file cannot be read";
  EXPECT_EQ(token->Token(), "second");
}

// The error of a server's disk might never end. A server that cannot be reached will be started again.
TEST(GrpcCaller, AServerThatAnswersThatItCannotServeIsNotAskedForever) {
  ManualClock clock;
  GrpcCaller caller(*TokenFile::Open(""), GrpcCaller::kMaxAnsweredMs, clock);
  collectives::AbortSignal abort;
  int calls = 0;
  const absl::Status status = caller.Retry(&abort, [&](grpc::ClientContext*) {
    clock.Advance((GrpcCaller::kMaxAnsweredMs + 1) * kNsPerMs);  // The call itself takes long.
    const char* const details = ++calls == 2 ? "" : "details";
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "Input/output error", details);
  });
  EXPECT_EQ(status, absl::UnavailableError("Input/output error"));
  EXPECT_EQ(calls, 4) << "the time before the loss of the connection does not count, and that of calls does";
}

}  // namespace
}  // namespace xlad::worker
