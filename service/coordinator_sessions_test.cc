// Sessions in the coordinator: virtual clock, scripted workers.
#include "base/log.h"
#include "service/testing/cluster.h"

namespace xlad::service {
namespace {

using ::testing::HasSubstr;

class SessionsTest : public ::testing::Test, protected Cluster {
 protected:
  SessionsTest() { SetLogLevel(LogLevel::kError); }
  ~SessionsTest() override { SetLogLevel(LogLevel::kInfo); }

  std::string Open(const std::string& key = "key", int64_t devices = 4) {
    OpenSessionRequest request;
    request.set_client_key(key);
    request.set_name("session");
    request.add_mesh()->set_size(devices);
    absl::StatusOr<SubmitJobResponse> opened;
    Do([&](CoordinatorCore& c) { opened = c.OpenSession(request); });
    return opened.ok() ? opened->job_id() : std::string(opened.status().message());
  }
  absl::Status Check(const std::string& id) { return coordinator().sessions().Check(JobId(id)); }
  absl::Status Hold(const std::string& id) { return coordinator().sessions().Hold(JobId(id)); }
  void Release(const std::string& id) { coordinator().sessions().Release(JobId(id)); }
  std::string Running() {
    Register(1, "a");
    Register(2, "b");
    const std::string id = Open();
    EXPECT_TRUE(absl::IsUnavailable(Check(id))) << "not all workers are ready";
    Ready(1, id);
    Ready(2, id);
    EXPECT_TRUE(Check(id).ok());
    return id;
  }
  absl::Status Load(const std::string& id) {
    absl::Status status;
    Do([&](CoordinatorCore& c) {
      status = c.WithSession(JobId(id), [](Session* session) {
        session->LoadProgram(Executable(), "digest", {});
        return absl::OkStatus();
      });
    });
    return status;
  }
  void Answer(int64_t connection, const std::string& id, int64_t sequence) {
    WorkerMessage message;
    Name(id, message.mutable_session_answer());
    message.mutable_session_answer()->set_sequence(sequence);
    Handle(connection, message);
  }
  int Commands(int64_t connection) const {
    int count = 0;
    for (const SendMessage& message : sent) {
      count += message.connection == ConnectionId(connection) && message.message.has_session();
    }
    return count;
  }
  std::string Why(const std::string& id) { return std::string(Check(id).message()); }
};

TEST_F(SessionsTest, CommandsGoToAllWorkersAndAreCounted) {
  const std::string id = Running();
  EXPECT_EQ(Open(), id) << "the same key is the same session";
  ASSERT_TRUE(Load(id).ok());
  ASSERT_TRUE(Load(id).ok());
  EXPECT_EQ(Commands(1), 2);
  EXPECT_EQ(Commands(2), 2);
  Answer(1, id, 2);
  Answer(2, id, 1);
  EXPECT_EQ(Status(id).step(), 1);
  EXPECT_TRUE(Status(id).session());
}

TEST_F(SessionsTest, ExpiresOnlyWhenNotHeld) {
  const std::string id = Running();
  ASSERT_TRUE(Hold(id).ok());
  ASSERT_TRUE(Hold(id).ok());
  RunFor(60'000, {1, 2});
  Release(id);
  RunFor(60'000, {1, 2});
  EXPECT_TRUE(Check(id).ok());
  Release(id);
  RunFor(9'000, {1, 2});
  EXPECT_TRUE(Check(id).ok());
  ASSERT_TRUE(Hold(id).ok());  // Held again before the grace period ends.
  RunFor(20'000, {1, 2});
  EXPECT_TRUE(Check(id).ok());
  Release(id);
  RunFor(11'000, {1, 2});
  EXPECT_EQ(Check(id).code(), absl::StatusCode::kAborted);
  EXPECT_THAT(Why(id), HasSubstr("no client has held it for 10000 ms"));
  EXPECT_TRUE(Open("next").starts_with("job-"));
  EXPECT_EQ(Status(Open("next")).state(), STARTING) << "its devices are free";
}

TEST_F(SessionsTest, ExpiresIfNeverHeld) {
  const std::string id = Open();  // There are no workers: the session stays pending.
  EXPECT_EQ(Status(id).state(), PENDING);
  RunFor(11'000, {1, 2});
  EXPECT_EQ(Status(id).state(), CANCELLED);
}

TEST_F(SessionsTest, EndsWithTheNameOfALostWorkerAndCanBeReopened) {
  const std::string id = Running();
  ASSERT_TRUE(Hold(id).ok());
  Gone(2);
  RunFor(11'000, {1});
  EXPECT_EQ(Check(id).code(), absl::StatusCode::kAborted);
  EXPECT_THAT(Why(id), HasSubstr("worker b (host host, pid 102) was lost"));
  EXPECT_EQ(Load(id).code(), absl::StatusCode::kAborted);
  Release(id);
  Register(3, "b");
  const std::string next = Open("next");
  Ready(1, next);
  Ready(3, next);
  EXPECT_TRUE(Check(next).ok());
}

TEST_F(SessionsTest, ReconnectedWorkerGetsUnansweredCommands) {
  const std::string id = Running();
  ASSERT_TRUE(Hold(id).ok());
  ASSERT_TRUE(Load(id).ok());
  Answer(1, id, 1);
  Answer(2, id, 1);
  Gone(2);
  ASSERT_TRUE(Load(id).ok());
  EXPECT_EQ(Commands(2), 1) << "nothing reaches it now";
  Register(3, "b", 1, {Task(id, 0)});
  EXPECT_EQ(Commands(3), 1);
  Answer(1, id, 2);
  Answer(3, id, 2);
  EXPECT_EQ(Status(id).step(), 2);
}

TEST_F(SessionsTest, EndsWhenTheCoordinatorRestartsOrAWorkerDrains) {
  const std::string id = Running();
  Restart();
  Register(1, "a", 1, {Task(id, 0)});
  Register(2, "b", 1, {Task(id, 0)});
  Advance(200);
  EXPECT_THAT(Why(id), HasSubstr("the coordinator restarted"));
  const std::string next = Open("next");
  Ready(1, next);
  Ready(2, next);
  ASSERT_TRUE(Check(next).ok());
  WorkerMessage draining;
  draining.mutable_draining();
  Handle(1, draining);
  EXPECT_THAT(Why(next), HasSubstr("drains"));
}

TEST_F(SessionsTest, ClosingFreesTheDevices) {
  const std::string id = Running();
  const auto close = [&](const std::string& session) {
    absl::Status status;
    Do([&](CoordinatorCore& c) { status = c.CloseSession(JobId(session)); });
    return status;
  };
  ASSERT_TRUE(close(id).ok());
  EXPECT_THAT(Why(id), HasSubstr("closed by its client"));
  EXPECT_TRUE(close(id).ok());
  EXPECT_TRUE(absl::IsNotFound(close("job-none")));
  EXPECT_TRUE(absl::IsNotFound(Hold("job-none")));
  EXPECT_EQ(CountSent([](const auto& m) { return m.has_forget(); }), 2);
}

TEST_F(SessionsTest, RefusesAMeshOfSizeZero) { EXPECT_THAT(Open("key", 0), HasSubstr("expected axes of 1 or more")); }

}  // namespace
}  // namespace xlad::service
