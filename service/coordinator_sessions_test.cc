// Sessions in the coordinator's state machine: virtual clock, scripted workers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/log.h"
#include "service/coordinator.h"

namespace xlad::service {
namespace {

using ::testing::HasSubstr;

class SessionsTest : public ::testing::Test {
 protected:
  SessionsTest() {
    SetLogLevel(LogLevel::kError);
    Restart();
  }
  ~SessionsTest() override { SetLogLevel(LogLevel::kInfo); }

  void Restart() {
    random_ = SeededRandom(++seed_);
    log_ = OpenMemoryJobLog(&store_);
    core_ = std::make_unique<CoordinatorCore>(
        CoordinatorOptions(), CoordinatorCore::Environment{&clock_, random_.get(), log_.get(),
                                                           [](const std::string&) { return Executable(); }});
    Actions actions;
    ASSERT_TRUE(core_->Recover(&actions).ok());
    Perform(actions);
  }
  void Perform(const Actions& actions) {
    for (const Action& action : actions) {
      if (const auto* send = std::get_if<SendMessage>(&action)) sent_.push_back(*send);
      EXPECT_FALSE(std::holds_alternative<StartBuild>(action)) << "a session has nothing to build";
    }
  }
  void Handle(ConnectionId connection, const WorkerMessage& message) {
    Actions actions;
    core_->OnWorkerMessage(connection, message, &actions);
    Perform(actions);
  }
  void Register(ConnectionId connection, const std::string& id, const std::string& running = "") {
    WorkerMessage message;
    message.mutable_register_()->set_worker_id(id);
    message.mutable_register_()->set_incarnation(1);
    message.mutable_register_()->set_host("host");
    message.mutable_register_()->set_pid(connection);
    message.mutable_register_()->set_devices(2);
    if (!running.empty()) {
      message.mutable_register_()->add_running()->set_job_id(running);
      message.mutable_register_()->mutable_running(0)->set_attempt(1);
    }
    Handle(connection, message);
  }
  void Advance(int64_t ms) {
    for (int64_t t = 0; t < ms; t += 100) {
      clock_.Advance(100 * kNsPerMs);
      for (const ConnectionId connection : beating_) {
        WorkerMessage message;
        message.mutable_heartbeat();
        Handle(connection, message);
      }
      Actions actions;
      core_->OnTick(&actions);
      Perform(actions);
    }
  }
  std::string Open(const std::string& key = "key", int64_t devices = 4) {
    OpenSessionRequest request;
    request.set_client_key(key);
    request.set_name("session");
    request.add_mesh()->set_size(devices);
    Actions actions;
    const auto id = core_->OpenSession(request, &actions);
    Perform(actions);
    return id.ok() ? *id : std::string(id.status().message());
  }
  void Ready(ConnectionId connection, const std::string& id) {
    WorkerMessage message;
    message.mutable_ready()->set_job_id(id);
    message.mutable_ready()->set_attempt(1);
    Handle(connection, message);
  }
  std::string Running() {
    Register(1, "a");
    Register(2, "b");
    beating_ = {1, 2};
    const std::string id = Open();
    EXPECT_TRUE(absl::IsUnavailable(core_->CheckSession(id))) << "not all workers are ready";
    Ready(1, id);
    Ready(2, id);
    EXPECT_TRUE(core_->CheckSession(id).ok());
    return id;
  }
  absl::Status Load(const std::string& id) {
    Actions actions;
    const absl::Status status = core_->LoadProgram(id, "digest", &actions).status();
    Perform(actions);
    return status;
  }
  void Answer(ConnectionId connection, const std::string& id, int64_t sequence) {
    WorkerMessage message;
    message.mutable_session_answer()->set_job_id(id);
    message.mutable_session_answer()->set_attempt(1);
    message.mutable_session_answer()->set_sequence(sequence);
    Handle(connection, message);
  }
  int Commands(ConnectionId connection) const {
    int count = 0;
    for (const SendMessage& message : sent_) count += message.connection == connection && message.message.has_session();
    return count;
  }
  std::string Why(const std::string& id) { return std::string(core_->CheckSession(id).message()); }

  ManualClock clock_;
  MemoryJobStore store_;
  uint64_t seed_ = 0;
  std::unique_ptr<Random> random_;
  std::unique_ptr<JobLog> log_;
  std::unique_ptr<CoordinatorCore> core_;
  std::vector<SendMessage> sent_;
  std::vector<ConnectionId> beating_;
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
  EXPECT_EQ(core_->GetJob(id)->step(), 1);
  EXPECT_TRUE(core_->GetJob(id)->session());
}

TEST_F(SessionsTest, ExpiresOnlyWhenNotHeld) {
  const std::string id = Running();
  ASSERT_TRUE(core_->HoldSession(id).ok());
  ASSERT_TRUE(core_->HoldSession(id).ok());
  Advance(60'000);
  core_->ReleaseSession(id);
  Advance(60'000);
  EXPECT_TRUE(core_->CheckSession(id).ok());
  core_->ReleaseSession(id);
  Advance(9'000);
  EXPECT_TRUE(core_->CheckSession(id).ok());
  ASSERT_TRUE(core_->HoldSession(id).ok());  // Held again before the grace period ends.
  Advance(20'000);
  EXPECT_TRUE(core_->CheckSession(id).ok());
  core_->ReleaseSession(id);
  Advance(11'000);
  EXPECT_EQ(core_->CheckSession(id).code(), absl::StatusCode::kAborted);
  EXPECT_THAT(Why(id), HasSubstr("no client has held it for 10000 ms"));
  EXPECT_TRUE(Open("next").starts_with("job-"));
  EXPECT_EQ(core_->ListWorkers().workers(0).job_id(), core_->ListJobs().back().id()) << "its devices are free";
}

TEST_F(SessionsTest, ExpiresIfNeverHeld) {
  const std::string id = Open();  // There are no workers: the session stays pending.
  EXPECT_EQ(core_->GetJob(id)->state(), PENDING);
  Advance(11'000);
  EXPECT_EQ(core_->GetJob(id)->state(), CANCELLED);
}

TEST_F(SessionsTest, EndsWithTheNameOfALostWorkerAndCanBeReopened) {
  const std::string id = Running();
  ASSERT_TRUE(core_->HoldSession(id).ok());
  Actions actions;
  core_->OnWorkerGone(2, &actions);
  Perform(actions);
  beating_ = {1};
  Advance(2'000);
  EXPECT_EQ(core_->CheckSession(id).code(), absl::StatusCode::kAborted);
  EXPECT_THAT(Why(id), HasSubstr("worker b (host host, pid 2) was lost"));
  EXPECT_EQ(Load(id).code(), absl::StatusCode::kAborted);
  core_->ReleaseSession(id);
  Register(3, "b");
  beating_ = {1, 3};
  const std::string next = Open("next");
  Ready(1, next);
  Ready(3, next);
  EXPECT_TRUE(core_->CheckSession(next).ok());
}

TEST_F(SessionsTest, ReconnectedWorkerGetsUnansweredCommands) {
  const std::string id = Running();
  ASSERT_TRUE(core_->HoldSession(id).ok());
  ASSERT_TRUE(Load(id).ok());
  Answer(1, id, 1);
  Answer(2, id, 1);
  Actions actions;
  core_->OnWorkerGone(2, &actions);
  Perform(actions);
  ASSERT_TRUE(Load(id).ok());
  EXPECT_EQ(Commands(2), 1) << "nothing reaches it now";
  Register(3, "b", id);
  EXPECT_EQ(Commands(3), 1);
  Answer(1, id, 2);
  Answer(3, id, 2);
  EXPECT_EQ(core_->GetJob(id)->step(), 2);
}

TEST_F(SessionsTest, EndsWhenTheCoordinatorRestartsOrAWorkerDrains) {
  const std::string id = Running();
  Restart();
  Register(1, "a", id);
  Register(2, "b", id);
  Advance(200);
  EXPECT_THAT(Why(id), HasSubstr("the coordinator restarted"));
  const std::string next = Open("next");
  Ready(1, next);
  Ready(2, next);
  ASSERT_TRUE(core_->CheckSession(next).ok());
  WorkerMessage draining;
  draining.mutable_draining();
  Handle(1, draining);
  EXPECT_THAT(Why(next), HasSubstr("drains"));
}

TEST_F(SessionsTest, ClosingFreesTheDevices) {
  const std::string id = Running();
  Actions actions;
  ASSERT_TRUE(core_->CloseSession(id, &actions).ok());
  EXPECT_THAT(Why(id), HasSubstr("closed by its client"));
  EXPECT_TRUE(core_->CloseSession(id, &actions).ok());
  EXPECT_EQ(core_->CloseSession("job-none", &actions).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(core_->HoldSession("job-none").code(), absl::StatusCode::kNotFound);
  int forgets = 0;
  for (const Action& action : actions) {
    const auto* send = std::get_if<SendMessage>(&action);
    forgets += send != nullptr && send->message.has_forget();
  }
  EXPECT_EQ(forgets, 2);
}

TEST_F(SessionsTest, RefusesAMeshOfSizeZero) { EXPECT_THAT(Open("key", 0), HasSubstr("of size 0, expected 1")); }

}  // namespace
}  // namespace xlad::service
