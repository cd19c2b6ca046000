// The worker's state machine and the ends of its attempts' processes.
#include "worker/testing/worker_core_fixture.h"

namespace xlad::worker {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::ElementsAre;

class WorkerCoreProcessesTest : public WorkerCoreTest {};

TEST_F(WorkerCoreProcessesTest, AProcessThatEndsFailsItsTask) {
  Attach();
  Launch(1);
  Start(100);
  Step(4);
  ProcessEnd end{.pid = 77, .exit_code = -1, .signal = 9, .how = "signal 9 (Killed)"};
  Handle(TaskHasExited{{"job", 1}, end});
  ASSERT_EQ(sent_.size(), 2) << "the metrics before the end";
  EXPECT_THAT(SentSteps(), ElementsAre(4));
  EXPECT_EQ(sent_[1].failed().step(), 5);
  EXPECT_EQ(sent_[1].failed().error(), "the process of the attempt (pid 77) ended: signal 9 (Killed)");
  EXPECT_EQ(sent_[1].failed().error_code(), static_cast<int>(absl::StatusCode::kUnavailable));
  Handle(TaskHasExited{{"job", 1}, end});
  EXPECT_THAT(sent_, IsEmpty()) << "the failure is reported only once";
  ForgetJob();
  Handle(TaskHasExited{{"job", 1}, end});
  EXPECT_THAT(sent_, IsEmpty()) << "the end of a process that is not needed";
}

TEST_F(WorkerCoreProcessesTest, AnEndedProcessIsDescribed) {
  const std::vector<std::pair<ProcessEnd, absl::StatusCode>> ends = {
      {{.signal = 11, .how = "signal 11 (Segmentation fault)", .last_output = "at x.cc:1"},
       absl::StatusCode::kInternal},
      {{.exit_code = 71, .out_of_memory = true, .peak_bytes = 3 << 20, .how = "exit code 71"},
       absl::StatusCode::kResourceExhausted},
      {{.signal = 15, .how = "signal 15 (Terminated)"}, absl::StatusCode::kUnavailable}};
  for (const auto& [end, code] : ends) {
    Attach();
    Launch(1);
    Handle(TaskHasExited{{"job", 1}, end});
    ASSERT_EQ(Count(WorkerMessage::kFailed), 1);
    EXPECT_EQ(sent_.back().failed().error_code(), static_cast<int>(code));
    EXPECT_THAT(sent_.back().failed().error(), HasSubstr(end.how));
    EXPECT_THAT(sent_.back().failed().error(), HasSubstr(end.last_output));
    if (end.out_of_memory) EXPECT_THAT(sent_.back().failed().error(), HasSubstr("ran out of memory"));
    if (end.out_of_memory) EXPECT_THAT(sent_.back().failed().error(), HasSubstr("3 MiB"));
    ForgetJob();
  }
}

TEST_F(WorkerCoreProcessesTest, AFinishedTaskWhoseProcessEndsStaysFinished) {
  Attach();
  Launch(1);
  Handle(TaskHasFinished{{"job", 1}});
  Handle(TaskHasExited{{"job", 1}, {.signal = 9}});
  EXPECT_THAT(sent_, IsEmpty());
  Handle(Disconnected{});
  Attach();
  EXPECT_EQ(Count(WorkerMessage::kFinished), 1);
  EXPECT_EQ(Count(WorkerMessage::kFailed), 0);
}

TEST_F(WorkerCoreProcessesTest, ExitsAreReportedToACoordinatorThatSupportsThem) {
  Attach();
  CoordinatorMessage registered;
  registered.mutable_registered()->set_protocol(1);
  Handle(registered);
  Launch(1);
  Step(2);
  Handle(TaskHasExited{{"job", 1}, {.pid = 77, .exit_code = -1, .signal = 11, .how = "signal 11"}});
  ASSERT_EQ(Count(WorkerMessage::kExited), 1);
  EXPECT_EQ(Count(WorkerMessage::kFailed), 0);
  const AttemptExited& exited = sent_.back().exited();
  EXPECT_EQ(exited.pid(), 77);
  EXPECT_EQ(exited.signal(), 11);
  EXPECT_EQ(exited.step(), 3);
  EXPECT_EQ(exited.generation(), 41);
  EXPECT_THAT(exited.what(), HasSubstr("signal 11"));
  Handle(Disconnected{});
  Handle(Connected{});
  Handle(registered);
  EXPECT_EQ(Count(WorkerMessage::kExited), 1) << "repeated until the coordinator has answered";
  EXPECT_EQ(sent_.back().incarnation(), 99);
}

// The devices of a dropped task are busy until its process has ended.
class TasksWithProcesses : public WorkerCoreTest {
 protected:
  static WorkerCoreOptions WithProcesses() {
    WorkerCoreOptions options = Options();
    options.tasks_have_processes = true;
    return options;
  }
  TasksWithProcesses() : WorkerCoreTest(WithProcesses()) {}

  void LaunchOn(int devices, const std::string& job, int64_t attempt, int shards_per_device = 0) {
    LaunchFor(nullptr, devices, job, attempt, shards_per_device);
  }
  void LaunchGeneration(int64_t attempt, int64_t generation) {
    CoordinatorMessage message;
    message.mutable_launch()->set_job_id("job");
    message.mutable_launch()->set_attempt(attempt);
    message.mutable_launch()->set_generation(generation);
    Handle(message);
  }
  // If `owner` is null, the launch has none.
  void LaunchFor(const char* owner, int devices, const std::string& job, int64_t attempt, int shards_per_device = 0) {
    CoordinatorMessage message;
    if (owner != nullptr) message.mutable_launch()->set_owner(owner);
    message.mutable_launch()->set_job_id(job);
    message.mutable_launch()->set_attempt(attempt);
    message.mutable_launch()->set_shards_per_device(shards_per_device);
    for (int d = 0; d < devices * std::max(1, shards_per_device); ++d) {
      message.mutable_launch()->add_devices()->set_device(d);
    }
    Handle(message);
  }
};

TEST_F(TasksWithProcesses, DevicesAreFreeWhenTheProcessHasEnded) {
  Attach();
  LaunchOn(1, "job", 1);
  LaunchOn(1, "other", 1);
  Abort("canceled");
  EXPECT_EQ(alive_, 1);
  LaunchOn(2, "large", 1);
  EXPECT_EQ(alive_, 1) << "one device is in use, the other one is not free yet";
  LaunchOn(1, "small", 1);
  EXPECT_EQ(alive_, 1);
  Handle(TaskHasExited{{"job", 1}, {.signal = 9}});
  EXPECT_EQ(alive_, 3) << "nothing is about to end: all start";
  EXPECT_THAT(sent_, IsEmpty()) << "the end was expected";
}

// The coordinator removes what the process has written since the abort.
TEST_F(TasksWithProcesses, TheEndOfAnAbortedTaskThatWritesToASharedFolderIsReported) {
  Handle(Connected{});
  CoordinatorMessage message;
  message.mutable_registered()->set_protocol(1);
  Handle(message);
  for (const char* const uri : {"xlad:", "file:/shared"}) {
    for (const bool is_aborted : {false, true}) {
      message.mutable_launch()->set_job_id("job");
      message.mutable_launch()->set_attempt(1);
      message.mutable_launch()->set_generation(41);
      message.mutable_launch()->mutable_spec()->mutable_checkpoint()->set_uri(uri);
      Handle(message);
      is_aborted ? Abort("canceled") : ForgetJob();
      Handle(TaskHasExited{{"job", 1}, {.pid = 77, .exit_code = -1, .signal = 9}});
      const bool is_reported = is_aborted && std::string(uri) != "xlad:";
      ASSERT_EQ(Count(WorkerMessage::kExited), is_reported ? 1 : 0) << uri << ", " << is_aborted;
      if (!is_reported) continue;
      EXPECT_EQ(sent_.back().exited().job_id(), "job");
      EXPECT_EQ(sent_.back().exited().attempt(), 1);
      EXPECT_EQ(sent_.back().exited().generation(), 41);
      EXPECT_EQ(sent_.back().exited().signal(), 9);
    }
  }
}

TEST_F(TasksWithProcesses, TheEndOfAnAbortedTaskIsReportedAfterTheNextRegistration) {
  CoordinatorMessage message;
  message.mutable_registered()->set_protocol(1);
  Handle(Connected{});
  Handle(message);
  CoordinatorMessage launch;
  launch.mutable_launch()->set_job_id("job");
  launch.mutable_launch()->set_attempt(1);
  launch.mutable_launch()->mutable_spec()->mutable_checkpoint()->set_uri("file:/shared");
  Handle(launch);
  Abort("canceled");
  Handle(Disconnected{});
  Handle(TaskHasExited{{"job", 1}, {.pid = 77, .exit_code = -1, .signal = 9}});
  EXPECT_EQ(Count(WorkerMessage::kExited), 0);
  Handle(Connected{});
  EXPECT_EQ(Count(WorkerMessage::kExited), 0) << "it is not registered yet";
  Handle(message);
  ASSERT_EQ(Count(WorkerMessage::kExited), 1);
  EXPECT_EQ(sent_.back().exited().job_id(), "job");
  EXPECT_EQ(sent_.back().exited().signal(), 9);
  Handle(Disconnected{});
  Handle(Connected{});
  Handle(message);
  EXPECT_EQ(Count(WorkerMessage::kExited), 0) << "it is reported once";
}

TEST_F(TasksWithProcesses, ShardsOfOneDeviceNeedOneDevice) {
  Attach();
  LaunchOn(1, "job", 1);
  LaunchOn(1, "other", 1);
  Abort("canceled");
  LaunchOn(1, "shards", 1, /*shards_per_device=*/4);
  EXPECT_EQ(alive_, 1) << "no device is free yet";
  Handle(TaskHasExited{{"job", 1}, {.signal = 9}});
  EXPECT_EQ(alive_, 2);
}

TEST_F(TasksWithProcesses, TheNextAttemptWaitsForTheEndOfTheLastOne) {
  Attach();
  LaunchOn(2, "job", 1);
  LaunchOn(2, "job", 2);
  EXPECT_EQ(alive_, 0);
  Handle(TaskHasExited{{"job", 1}, {}});
  EXPECT_EQ(alive_, 1);
  Handle(TaskHasExited{{"job", 2}, {.signal = 9, .how = "signal 9"}});
  EXPECT_EQ(Count(WorkerMessage::kFailed), 1);
  ForgetJob();
  LaunchOn(2, "job", 3);
  EXPECT_EQ(alive_, 1) << "the process of attempt 2 has ended before it was dropped";
}

// The coordinator was restored from a backup, so it uses the number of an attempt again.
TEST_F(TasksWithProcesses, ALaterGenerationOfTheSameAttemptWaitsForTheEndOfTheEarlierOne) {
  for (const bool is_aborted : {true, false}) {
    Attach();
    LaunchGeneration(1, 41);
    EXPECT_EQ(alive_, 1);
    if (is_aborted) Abort("this attempt has ended");
    LaunchGeneration(1, 1'000'041);
    EXPECT_EQ(alive_, 0);
    LaunchGeneration(1, 41);
    Handle(TaskHasExited{{"job", 1}, {.signal = 9}});
    EXPECT_EQ(alive_, 1) << "it starts when the process of the earlier one has ended";
    LaunchGeneration(1, 1'000'041);
    EXPECT_EQ(alive_, 1) << "a repeated launch";
    Handle(Connected{});
    ASSERT_EQ(sent_.back().register_().running_size(), 1);
    EXPECT_EQ(sent_.back().register_().running(0).generation(), 1'000'041);
    ForgetJob();
    Handle(TaskHasExited{{"job", 1}, {}});
  }
}

TEST_F(TasksWithProcesses, ALaunchThatWaitsForAnEarlierGenerationIsATask) {
  Attach();
  LaunchGeneration(1, 41);
  LaunchGeneration(1, 1'000'041);
  LaunchGeneration(1, 1'000'040);  // It is stale.
  Handle(TaskIsReady{{"job", 1}});
  EXPECT_THAT(sent_, IsEmpty()) << "the earlier process has sent it";
  Handle(Connected{});
  ASSERT_EQ(sent_.back().register_().running_size(), 1);
  EXPECT_EQ(sent_.back().register_().running(0).generation(), 1'000'041);
  Abort("canceled");
  Handle(Connected{});
  EXPECT_EQ(sent_.back().register_().running_size(), 0);
  Handle(TaskHasExited{{"job", 1}, {.signal = 9}});
  EXPECT_EQ(alive_, 0);
}

// The registration of the worker was lost, so the restored coordinator has not aborted its task.
TEST_F(TasksWithProcesses, AnEarlierAttemptOfALaterGenerationReplacesALaterAttempt) {
  Attach();
  LaunchGeneration(5, 45);
  LaunchGeneration(3, 1'000'041);
  EXPECT_NE(dropped_, "-");
  Handle(TaskHasExited{{"job", 5}, {.signal = 9}});
  EXPECT_EQ(alive_, 1);
  LaunchGeneration(6, 46);  // It is stale.
  Handle(Connected{});
  ASSERT_EQ(sent_.back().register_().running_size(), 1);
  EXPECT_EQ(sent_.back().register_().running(0).attempt(), 3);
}

TEST_F(TasksWithProcesses, TheNextOwnersTaskWaitsForTheLastOwnersProcess) {
  Attach();
  LaunchFor("alice", 1, "job", 1);
  LaunchFor("alice", 1, "more", 1);
  EXPECT_EQ(alive_, 2) << "tasks of one owner";
  LaunchFor("bob", 1, "next", 1);
  EXPECT_EQ(alive_, 2) << "the coordinator has ended the tasks, but the message was lost with a connection";
  Abort("canceled");
  Handle(TaskHasExited{{"job", 1}, {}});
  EXPECT_EQ(alive_, 1);
  Handle(TaskHasFinished{{"more", 1}});
  Handle(TaskHasExited{{"more", 1}, {}});
  EXPECT_EQ(alive_, 2) << "the process has ended, although its task is not forgotten";
  LaunchFor("alice", 1, "job", 2);
  EXPECT_EQ(alive_, 2);
  CoordinatorMessage forget;
  forget.mutable_forget()->set_job_id("next");
  forget.mutable_forget()->set_attempt(1);
  Handle(forget);
  EXPECT_EQ(alive_, 1) << "its process has not ended";
  Handle(TaskHasExited{{"next", 1}, {}});
  EXPECT_EQ(alive_, 2);
}

// With --share-workers, or after an update of the coordinator.
TEST_F(TasksWithProcesses, ALaunchOrATaskWithoutOwnerDoesNotWait) {
  Attach();
  LaunchFor("alice", 1, "job", 1);
  LaunchOn(1, "shared", 1);
  EXPECT_EQ(alive_, 2);
  Abort("canceled");
  Handle(TaskHasExited{{"job", 1}, {}});
  LaunchFor("bob", 1, "bob", 1);
  EXPECT_EQ(alive_, 2);
}

TEST_F(TasksWithProcesses, ALaunchThatWaitsCanBeAborted) {
  Attach();
  LaunchOn(2, "first", 1);
  CoordinatorMessage forget;
  forget.mutable_forget()->set_job_id("first");
  forget.mutable_forget()->set_attempt(1);
  Handle(forget);
  LaunchOn(2, "job", 1);
  Abort("canceled");
  Handle(TaskHasExited{{"first", 1}, {}});
  EXPECT_EQ(alive_, 0);
}

}  // namespace
}  // namespace xlad::worker
