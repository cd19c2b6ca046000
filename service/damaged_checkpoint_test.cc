// Jobs whose newest checkpoint cannot be read because it is damaged.
#include "service/attempts/damaged_checkpoint.h"

#include <algorithm>

#include "service/testing/cluster.h"

namespace xlad::service {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

class DamagedCheckpoint : public ::testing::Test {
 protected:
  DamagedCheckpoint() { cluster_.hosts = {{"a", "host1"}, {"b", "host2"}}; }
  // A worker reports that it cannot read the state from which the attempt starts. Waits for the next attempt.
  void FailToRead(const std::string& job, const std::string& uri, int64_t connection = 1,
                  absl::StatusCode code = absl::StatusCode::kDataLoss) {
    const absl::Status error(code, absl::StrCat("state ", uri, ": bytes [0, 65536) have another checksum"));
    cluster_.Fail(connection, job, cluster_.JobOf(job).placed.first_step(), error, "");
    cluster_.RunFor(kMaxPauseMs, {1, 2});
    if (cluster_.loads.empty()) return;
    const std::string digest = cluster_.loads.back();  // A coordinator that has restarted reads the plan again.
    cluster_.loads.clear();
    cluster_.Do([&](CoordinatorCore& c) { c.OnPlanLoaded(digest, PlannedProgram()); });
  }
  void BothFailToRead(const std::string& job, const std::string& uri,
                      absl::StatusCode code = absl::StatusCode::kDataLoss) {
    for (const int64_t connection : {1, 2}) FailToRead(job, uri, connection, code);
  }
  // The attempt of the job starts on both workers, and fails.
  void Interrupt(const std::string& job) {
    cluster_.Fail(1, job, cluster_.JobOf(job).step, absl::UnavailableError("the network broke"), "");
  }
  // The longest pause between attempts that find damage.
  static constexpr int64_t kMaxPauseMs = 8100;
  std::string StartUri(const std::string& job) { return cluster_.JobOf(job).placed.checkpoint_uri(); }
  std::string Why(const std::string& job) { return cluster_.coordinator().Why(JobId(job))->text(); }
  // The coordinator restarts and recovers its state from the log, and both workers register again.
  void Recover(const std::string& job) {
    const RunningTask task = cluster_.Task(job, cluster_.JobOf(job).step);
    cluster_.Restart();
    for (const auto& [connection, worker] : {std::pair(1, "a"), std::pair(2, "b")}) {
      cluster_.Register(connection, worker, 1, {task});
    }
  }
  std::string Resume(const std::string& job) {
    const auto newest = cluster_.coordinator().jobs().NewestCheckpoint(JobId(job));
    SubmitJobRequest request;
    request.set_client_key("resumed");
    *request.mutable_spec() = cluster_.Spec(4);
    std::string next;
    cluster_.Do([&](CoordinatorCore& c) { next = c.Submit(request, *newest)->job_id(); });
    cluster_.Built();
    return next;
  }

  Cluster cluster_;
};

TEST_F(DamagedCheckpoint, TheOneBeforeItIsUsedAndTheLastOneIsKept) {
  const std::string job = cluster_.RunningJob(/*attempts=*/2);
  for (const int64_t step : {10, 20}) cluster_.CommitCheckpoint(job, step);
  Interrupt(job);
  ASSERT_EQ(StartUri(job), "xlad:20");
  FailToRead(job, "xlad:20");
  EXPECT_EQ(StartUri(job), "xlad:20") << "the damage may have been in a copy";
  Recover(job);
  FailToRead(job, "xlad:20", /*connection=*/2);
  EXPECT_EQ(StartUri(job), "xlad:10");
  EXPECT_EQ(cluster_.JobOf(job).placed.first_step(), 10);
  EXPECT_THAT(Why(job), HasSubstr("bytes [0, 65536) have another checksum"));
  EXPECT_THAT(cluster_.coordinator().StateInUse().states, Contains("xlad:20")) << "its files are kept";
  EXPECT_EQ(cluster_.JobOf(job).failures, 1) << "only the interruption counts";
  Recover(job);
  EXPECT_EQ(StartUri(job), "xlad:10");
  BothFailToRead(job, "xlad:10");
  EXPECT_EQ(cluster_.Status(job).state(), FAILED);
  EXPECT_EQ(cluster_.Status(job).checkpoint_step(), 10);
  for (const char* word : {"another checksum", "last checkpoint", "xlad ckpt verify xlad:10", "--resume"}) {
    EXPECT_THAT(cluster_.Status(job).reason(), HasSubstr(word));
  }
}

TEST_F(DamagedCheckpoint, ItsStepCanBeSavedAgain) {
  const std::string job = cluster_.RunningJob();
  for (const int64_t step : {10, 20}) cluster_.CommitCheckpoint(job, step);
  Interrupt(job);
  BothFailToRead(job, "xlad:20");
  ASSERT_EQ(StartUri(job), "xlad:10");
  cluster_.Start(job, {1, 2});
  cluster_.CommitCheckpoint(job, 15);
  EXPECT_EQ(cluster_.Status(job).checkpoint_step(), 15) << "an older step than that of the damaged checkpoint";
}

TEST_F(DamagedCheckpoint, AResumedJobStartsFromTheOneBeforeIt) {
  const std::string first = cluster_.RunningJob();
  for (const int64_t step : {10, 20}) cluster_.CommitCheckpoint(first, step);
  cluster_.Do([&](CoordinatorCore& c) { ASSERT_TRUE(c.Cancel(JobId(first)).ok()); });
  const std::string job = Resume(first);
  ASSERT_EQ(StartUri(job), "xlad:20");
  BothFailToRead(job, "xlad:20");
  EXPECT_EQ(StartUri(job), "xlad:10");
  EXPECT_EQ(cluster_.JobOf(job).placed.first_step(), 10);
  Recover(job);
  EXPECT_EQ(StartUri(job), "xlad:10");
  EXPECT_TRUE(cluster_.coordinator().context().jobs.IsResumed("xlad:10"));
  EXPECT_FALSE(cluster_.coordinator().context().jobs.IsResumed("xlad:20"));
  // There is no older checkpoint, and the first state of the spec is not what the user asked for.
  BothFailToRead(job, "xlad:10", absl::StatusCode::kNotFound);
  EXPECT_EQ(cluster_.Status(job).state(), FAILED);
  for (const char* word : {"another checksum", "found no older checkpoint", "xlad ckpt verify xlad:10", "--resume"}) {
    EXPECT_THAT(cluster_.Status(job).reason(), HasSubstr(word));
  }
  EXPECT_FALSE(cluster_.coordinator().context().jobs.IsResumed("xlad:10"));
}

TEST_F(DamagedCheckpoint, OtherErrorsDoNotDropIt) {
  const std::string job = cluster_.RunningJob();
  for (const int64_t step : {10, 20}) cluster_.CommitCheckpoint(job, step);
  Interrupt(job);
  const auto expect_kept = [&](const absl::Status& error, const std::string& suspect) {
    for (int i = 0; i < 3; ++i) {
      cluster_.Fail(1, job, 20, error, suspect);
      cluster_.RunFor(61'000, {1, 2});
    }
    EXPECT_EQ(StartUri(job), "xlad:20") << error;
  };
  expect_kept(absl::UnavailableError("state xlad:20: the coordinator cannot be reached"), "");
  expect_kept(absl::DataLossError("data xlad:9: blob 9 is damaged"), "");
  expect_kept(absl::DataLossError("state xlad:2: blob 2 is damaged"), "");
  // Findings with another failure between them are not in a row.
  for (int i = 0; i < 6; ++i) {
    FailToRead(job, "xlad:20", 1 + i % 2);
    cluster_.RunFor(61'000, {1, 2});
    Interrupt(job);
    cluster_.RunFor(61'000, {1, 2});
  }
  EXPECT_EQ(StartUri(job), "xlad:20");
  cluster_.Start(job, {1, 2});
  FailToRead(job, "xlad:20");
  Interrupt(job);
  EXPECT_EQ(cluster_.Status(job).checkpoint_step(), 20);
}

TEST_F(DamagedCheckpoint, OneWorkerReadsItFiveTimesWithPausesBetween) {
  const std::string job = cluster_.RunningJob();
  for (const int64_t step : {10, 20}) cluster_.CommitCheckpoint(job, step);
  Interrupt(job);
  cluster_.RunFor(100, {1, 2});
  const int64_t start_ns = cluster_.clock.NowNs();
  for (int64_t i = 1; i <= kFindingsOfOneHost; ++i) {
    ASSERT_EQ(StartUri(job), "xlad:20") << "finding " << i;
    const int64_t attempt = cluster_.JobOf(job).attempt;
    cluster_.Fail(1, job, 20, absl::DataLossError("state xlad:20: the first block"), "");
    if (i == kFindingsOfOneHost) break;
    ASSERT_EQ(cluster_.JobOf(job).attempt, attempt) << "found no pause after finding " << i;
    for (const char* word : {"found checkpoint xlad:20 damaged", "it is read again"}) {
      EXPECT_THAT(Why(job), HasSubstr(word));
    }
    const int64_t pause_ms = 1000 << (i - 1);
    cluster_.RunFor(pause_ms - 200, {1, 2});
    ASSERT_EQ(cluster_.JobOf(job).attempt, attempt) << "a shorter pause after finding " << i;
    cluster_.RunFor(400, {1, 2});
    ASSERT_EQ(cluster_.JobOf(job).attempt, attempt + 1) << "a longer pause after finding " << i;
  }
  cluster_.RunFor(200, {1, 2});
  EXPECT_EQ(StartUri(job), "xlad:10") << "the last finding needs no pause";
  EXPECT_GE(cluster_.clock.NowNs() - start_ns, 15 * kNsPerSecond);
}

// Both workers of a host may read a good checkpoint wrongly, because they have the same disk and memory.
TEST_F(DamagedCheckpoint, TwoWorkersOfOneHostCountAsOne) {
  cluster_.hosts.clear();
  const std::string job = cluster_.RunningJob();
  for (const int64_t step : {10, 20}) cluster_.CommitCheckpoint(job, step);
  Interrupt(job);
  for (int64_t i = 0; i < kFindingsOfOneHost; ++i) {
    ASSERT_EQ(StartUri(job), "xlad:20") << "finding " << i;
    FailToRead(job, "xlad:20", 1 + i % 2);
  }
  EXPECT_EQ(StartUri(job), "xlad:10");
}

// The findings of an old log have no worker and no host.
TEST_F(DamagedCheckpoint, AFindingOfAnOldLogIsNotThatOfAnotherHost) {
  const std::string job = cluster_.RunningJob();
  for (const int64_t step : {10, 20}) cluster_.CommitCheckpoint(job, step);
  Interrupt(job);
  FailToRead(job, "xlad:20");
  for (JobEvent& event : cluster_.store.events) {
    if (event.has_attempt_ended()) event.mutable_attempt_ended()->clear_findings();
  }
  Recover(job);
  FailToRead(job, "xlad:20");
  EXPECT_EQ(StartUri(job), "xlad:20");
  FailToRead(job, "xlad:20", /*connection=*/2);
  EXPECT_EQ(StartUri(job), "xlad:10");
}

TEST_F(DamagedCheckpoint, AWorkerThatReadsItAfterATransientErrorKeepsIt) {
  const std::string job = cluster_.RunningJob();
  for (const int64_t step : {10, 20}) cluster_.CommitCheckpoint(job, step);
  for (int round = 0; round < 2; ++round) {
    Interrupt(job);
    cluster_.RunFor(1200, {1, 2});
    for (int64_t i = 1; i < kFindingsOfOneHost; ++i) FailToRead(job, "xlad:20");
    cluster_.Start(job, {1, 2});  // Both workers have read the checkpoint.
    EXPECT_EQ(cluster_.JobOf(job).placed.checkpoint_uri(), "xlad:20");
  }
}

TEST_F(DamagedCheckpoint, ARestartBeginsThePauseAgain) {
  const std::string job = cluster_.RunningJob();
  for (const int64_t step : {10, 20}) cluster_.CommitCheckpoint(job, step);
  Interrupt(job);
  cluster_.RunFor(100, {1, 2});
  cluster_.Fail(1, job, 20, absl::DataLossError("state xlad:20: the first block"), "");
  const int64_t attempt = cluster_.JobOf(job).attempt;
  cluster_.Restart();
  for (const auto& [connection, worker] : {std::pair(1, "a"), std::pair(2, "b")}) cluster_.Register(connection, worker);
  cluster_.Do([&](CoordinatorCore& c) { c.OnPlanLoaded("digest", PlannedProgram()); });
  cluster_.RunFor(800, {1, 2});
  EXPECT_EQ(cluster_.JobOf(job).attempt, attempt);
  cluster_.RunFor(400, {1, 2});
  cluster_.Do([&](CoordinatorCore& c) { c.OnPlanLoaded("digest", PlannedProgram()); });
  EXPECT_EQ(cluster_.JobOf(job).attempt, attempt + 1);
}

// The first failure of each attempt is unrelated to the damage. Only the findings are the evidence.
TEST_F(DamagedCheckpoint, TheEvidenceIsThatOfTheWorkersThatFoundIt) {
  const std::string job = cluster_.RunningJob();
  for (const int64_t step : {10, 20}) cluster_.CommitCheckpoint(job, step);
  Interrupt(job);
  cluster_.RunFor(100, {1, 2});
  for (const int64_t connection : {1, 2}) {
    cluster_.Fail(3 - connection, job, 20, absl::UnavailableError("its peer went away"), connection == 1 ? "a" : "b");
    cluster_.Fail(connection, job, 20, absl::DataLossError(absl::StrCat("state xlad:20: block ", connection)), "");
    cluster_.RunFor(2500, {1, 2});  // The time to wait for better evidence, and the pause.
  }
  ASSERT_EQ(StartUri(job), "xlad:10");
  const std::string& damage = cluster_.JobOf(job).damage;
  for (const char* word : {"found in 2 attempts in a row", "worker a (rank", "pid 101): state xlad:20: block 1",
                           "worker b (rank", "pid 102): state xlad:20: block 2"}) {
    EXPECT_THAT(damage, HasSubstr(word));
    EXPECT_THAT(Why(job), HasSubstr(word));
  }
  EXPECT_THAT(damage, Not(HasSubstr("went away")));
  const JobEvent& event = *std::find_if(cluster_.store.events.rbegin(), cluster_.store.events.rend(),
                                        [](const JobEvent& e) { return e.has_dropped(); });
  EXPECT_EQ(event.dropped().damage(), damage);
  int64_t findings = 0;
  for (const JobEvent& e : cluster_.store.events) findings += e.attempt_ended().findings_size();
  EXPECT_EQ(findings, 2);
}

TEST_F(DamagedCheckpoint, CompactionRemembersIt) {
  const std::string job = cluster_.RunningJob();
  for (const int64_t step : {10, 20}) cluster_.CommitCheckpoint(job, step);
  Interrupt(job);
  BothFailToRead(job, "xlad:20");
  cluster_.Start(job, {1, 2});
  for (int64_t step = 30; step < 2000; step += 10) cluster_.CommitCheckpoint(job, step);
  cluster_.RunFor(62'000, {1, 2});
  const auto drops = [&] {
    int count = 0;
    for (const JobEvent& event : cluster_.store.events) count += event.has_dropped();
    return count;
  };
  const int before = drops();
  cluster_.Compact();
  EXPECT_LT(drops(), before / 2) << "the log has been compacted";
  Recover(job);
  EXPECT_EQ(cluster_.JobOf(job).damaged, std::vector<std::string>{"xlad:20"});
  EXPECT_EQ(cluster_.Status(job).checkpoint_step(), 1990);
}

}  // namespace
}  // namespace xlad::service
