// Sessions in the coordinator, with a virtual clock and scripted workers.
#include "base/log.h"
#include "proto/protocol.h"
#include "security/session_keys.h"
#include "service/testing/cluster.h"

namespace xlad::service {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

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
  void ReadyAt(int64_t connection, const std::string& id, const std::string& address) {
    WorkerMessage message;
    Name(id, message.mutable_ready());
    message.mutable_ready()->set_session_address(address);
    Handle(connection, message);
  }
  std::string Running() {
    Register(1, "a");
    Register(2, "b");
    const std::string id = Open();
    EXPECT_TRUE(absl::IsUnavailable(Check(id))) << "not all workers are ready";
    ReadyAt(1, id, "127.0.0.1:1");
    Ready(2, id);
    EXPECT_TRUE(Check(id).ok());
    return id;
  }
  absl::StatusOr<LocateSessionResponse> Locate(const std::string& id) {
    return coordinator().sessions().Locate(JobId(id));
  }
  std::string Why(const std::string& id) { return std::string(Check(id).message()); }
  std::string WhyJob(const std::string& id) { return coordinator().Why(JobId(id))->text(); }
};

TEST_F(SessionsTest, ClientsAndWorkersAreToldWhereTheFirstWorkerServes) {
  const std::string id = Running();
  EXPECT_EQ(Open(), id) << "the same key names the same session";
  const auto place = Locate(id);
  ASSERT_TRUE(place.ok()) << place.status();
  EXPECT_EQ(place->address(), "127.0.0.1:1");
  EXPECT_EQ(place->key().size(), 32u);
  std::vector<LaunchTask> launched;
  std::vector<std::string> started;
  for (const SendMessage& message : sent) {
    if (message.message.has_launch()) launched.push_back(message.message.launch());
    if (message.message.has_start()) started.push_back(message.message.start().places(0).address());
  }
  ASSERT_EQ(launched.size(), 2u);
  EXPECT_EQ(launched[0].session_key(), place->key());
  const std::string secret = launched[0].session_secret();
  EXPECT_EQ(secret.size(), 64u);
  EXPECT_EQ(launched[1].session_key(), security::FollowerKey(secret, "b")) << "each other worker has a key of its own";
  EXPECT_EQ(launched[1].session_secret(), "");
  EXPECT_EQ(*coordinator().sessions().SealOf(JobId(id), "digest", {}), security::ProgramSeal(secret, "digest", {}));
  EXPECT_THAT(started, ::testing::ElementsAre("127.0.0.1:1", "127.0.0.1:1"));
  Beat(1, id, 17);
  EXPECT_EQ(Status(id).step(), 17);
  EXPECT_TRUE(Status(id).session());
}

TEST_F(SessionsTest, HasOneKeyForAllCallsIfAWorkerHasAnOlderVersion) {
  Register(1, "a");
  protocol = kSessionSecretProtocol - 1;
  Register(2, "b");
  const std::string id = Open();
  ReadyAt(1, id, "127.0.0.1:1");
  Ready(2, id);
  const auto place = Locate(id);
  ASSERT_TRUE(place.ok()) << place.status();
  for (const SendMessage& message : sent) {
    if (!message.message.has_launch()) continue;
    EXPECT_EQ(message.message.launch().session_key(), place->key());
    EXPECT_EQ(message.message.launch().session_secret(), "");
  }
  EXPECT_EQ(*coordinator().sessions().SealOf(JobId(id), "digest", {}), "");
}

TEST_F(SessionsTest, SendsPartialsInF32UnlessAWorkerHasAnOlderVersion) {
  EXPECT_EQ(*coordinator().sessions().SendsPartialsInF32(JobId(Running())), true);
  Register(3, "c");
  sends_partials_in_f32 = false;
  Register(4, "d");
  const std::string id = Open("other");
  EXPECT_FALSE(coordinator().sessions().SendsPartialsInF32(JobId(id)).ok()) << "it is not running yet";
  ReadyAt(3, id, "127.0.0.1:3");
  ReadyAt(4, id, "127.0.0.1:4");
  EXPECT_EQ(*coordinator().sessions().SendsPartialsInF32(JobId(id)), false);
}

TEST_F(SessionsTest, ProgramsHaveOnlyTheOpsOfAllWorkersOfTheSession) {
  has_dots = true;
  Register(1, "a", 1, {}, {"cuda/sm_90"});
  const std::string small = Open("small", 2);
  ReadyAt(1, small, "127.0.0.1:1");
  EXPECT_TRUE(coordinator().sessions().TargetOf(JobId(small))->has_dots_of_f64_and_s8());
  Register(2, "b", 1, {}, {"cuda/sm_90"});
  has_dots = false;
  Register(3, "c", 1, {}, {"cuda/sm_90"});
  const std::string id = Open();
  ReadyAt(2, id, "127.0.0.1:2");
  Ready(3, id);
  const auto target = coordinator().sessions().TargetOf(JobId(id));
  ASSERT_TRUE(target.ok()) << target.status();
  EXPECT_FALSE(target->has_dots_of_f64_and_s8());
}

TEST_F(SessionsTest, NeedsAWorkerThatServes) {
  Register(1, "a");
  const std::string id = Open("key", 2);
  Ready(1, id);
  EXPECT_THAT(Why(id), HasSubstr("older version"));
}

TEST_F(SessionsTest, NeedsAWorkerThatServesEvenIfItFinishesBeforeItIsReady) {
  Register(1, "a");
  const std::string id = Open("key", 2);
  WorkerMessage message;
  Name(id, message.mutable_finished());
  Handle(1, message);
  EXPECT_THAT(Why(id), HasSubstr("older version"));
}

TEST_F(SessionsTest, ExpiresOnlyWhenNotHeld) {
  const std::string id = Running();
  ASSERT_TRUE(Hold(id).ok());
  ASSERT_TRUE(Hold(id).ok());
  RunFor(60'000, {1, 2});
  Release(id);
  RunFor(60'000, {1, 2});
  EXPECT_TRUE(Check(id).ok());
  EXPECT_THAT(WhyJob(id), Not(HasSubstr("its client")));
  Release(id);
  RunFor(9'000, {1, 2});
  EXPECT_TRUE(Check(id).ok());
  EXPECT_THAT(WhyJob(id), HasSubstr("its client has been disconnected for 9 s; the session ends after 10 s unless"));
  ASSERT_TRUE(Hold(id).ok());  // A client holds the session again before the grace period ends.
  RunFor(20'000, {1, 2});
  EXPECT_TRUE(Check(id).ok());
  Release(id);
  RunFor(11'000, {1, 2});
  EXPECT_EQ(Check(id).code(), absl::StatusCode::kAborted);
  EXPECT_THAT(WhyJob(id), HasSubstr("ended as CANCELLED. Evidence: its client has been disconnected for 10 s"));
  EXPECT_TRUE(Open("next").starts_with("job-"));
  EXPECT_EQ(Status(Open("next")).state(), STARTING) << "its devices are free";
}

TEST_F(SessionsTest, ExpiresIfNeverHeld) {
  const std::string id = Open();  // The session stays pending because there are no workers.
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
  EXPECT_THAT(Why(id), HasSubstr("worker b (ranks 2, 3; host host, pid 102) was lost"));
  EXPECT_EQ(Locate(id).status().code(), absl::StatusCode::kAborted);
  Release(id);
  Register(3, "b");
  const std::string next = Open("next");
  ReadyAt(1, next, "127.0.0.1:1");
  Ready(3, next);
  EXPECT_TRUE(Check(next).ok());
}

TEST_F(SessionsTest, OutlivesARestartOfTheCoordinatorIfItsClientAndItsWorkersReturn) {
  const std::string id = Running();
  ASSERT_TRUE(Hold(id).ok());
  const std::string key = Locate(id)->key();
  const std::string seal = *coordinator().sessions().SealOf(JobId(id), "digest", {});
  Restart();
  Register(1, "a", 1, {Task(id, 3)});
  Register(2, "b", 1, {Task(id, 3)});
  Advance(200);
  ASSERT_TRUE(Locate(id).ok()) << Why(id);
  EXPECT_EQ(Locate(id)->address(), "127.0.0.1:1");
  EXPECT_EQ(Locate(id)->key(), key);
  EXPECT_EQ(*coordinator().sessions().SealOf(JobId(id), "digest", {}), seal);
  ASSERT_TRUE(Hold(id).ok());
  RunFor(30'000, {1, 2});
  EXPECT_TRUE(Check(id).ok()) << Why(id);
  Release(id);
  RunFor(11'000, {1, 2});
  EXPECT_THAT(Why(id), HasSubstr("its client has been disconnected"));
}

TEST_F(SessionsTest, EndsAfterARestartOfTheCoordinatorIfItsClientOrAWorkerDoesNotReturn) {
  const std::string id = Running();
  Restart();
  Register(1, "a", 1, {Task(id, 0)});
  Register(2, "b", 1, {Task(id, 0)});
  RunFor(11'000, {1, 2});
  EXPECT_THAT(Why(id), HasSubstr("its client has been disconnected"));
  const std::string next = Open("next");
  ReadyAt(1, next, "127.0.0.1:1");
  Ready(2, next);
  ASSERT_TRUE(Hold(next).ok());
  Restart();
  Register(1, "a", 1, {Task(next, 0)});
  ASSERT_TRUE(Hold(next).ok());
  RunFor(60'000, {1});
  EXPECT_THAT(Why(next), HasSubstr("worker b (ranks 2, 3; host host, pid 102) was lost"));
}

TEST_F(SessionsTest, EndsWhenAWorkerDrains) {
  const std::string id = Running();
  WorkerMessage draining;
  draining.mutable_draining();
  Handle(1, draining);
  EXPECT_THAT(Why(id), HasSubstr("drains"));
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

TEST_F(SessionsTest, RefusesAMeshOfSizeZero) {
  EXPECT_THAT(Open("key", 0), HasSubstr("expected axis sizes of 1 or more"));
}

}  // namespace
}  // namespace xlad::service
