// The coordinator keeps ended jobs for a while, and the blobs and events that are still needed.
#include "service/testing/cluster.h"

namespace xlad::service {
namespace {

using ::testing::Contains;
using ::testing::Not;

CoordinatorOptions Keeping(int64_t jobs, int64_t ms = int64_t{1} << 40) {
  CoordinatorOptions options;
  options.keep_ended_jobs = jobs;
  options.keep_ended_ms = ms;
  options.compact_interval_ms = 10'000;
  return options;
}

std::string EndedJob(Cluster* cluster, const std::string& key) {
  const std::string job = cluster->Submit(1, key);
  EXPECT_TRUE(cluster->Do([&](CoordinatorCore& c) { ASSERT_TRUE(c.Cancel(JobId(job)).ok()); }));
  cluster->Advance(100);
  return job;
}

TEST(Retention, TheOldestEndedJobsAreRemovedPermanently) {
  Cluster cluster(Keeping(2));
  const std::string open = cluster.Submit(1, "open");
  std::vector<std::string> ended;
  for (int i = 0; i < 5; ++i) ended.push_back(EndedJob(&cluster, absl::StrCat("key-", i)));
  cluster.Advance(10'000);
  EXPECT_EQ(cluster.CountJobs(), 3u);
  ASSERT_FALSE(cluster.clean_ups.empty());
  cluster.Restart();
  EXPECT_EQ(cluster.CountJobs(), 3u) << "removed jobs stay removed after a restart";
  cluster.Compact();
  cluster.Restart();
  EXPECT_EQ(cluster.CountJobs(), 3u);
  EXPECT_TRUE(cluster.coordinator().jobs().Status(JobId(open)).ok());
  EXPECT_TRUE(cluster.coordinator().jobs().Status(JobId(ended[4])).ok());
  EXPECT_TRUE(absl::IsNotFound(cluster.coordinator().jobs().Status(JobId(ended[2])).status()));
  for (const JobEvent& event : cluster.store.events) EXPECT_NE(event.job_id(), ended[0]);
  // The key of the removed job may be used again.
  EXPECT_NE(cluster.Submit(1, "key-0"), ended[0]);
}

TEST(Retention, JobsThatEndedLongAgoAreRemoved) {
  Cluster cluster(Keeping(100, 60'000));
  EndedJob(&cluster, "early");
  cluster.Advance(50'000);
  EndedJob(&cluster, "late");
  EXPECT_EQ(cluster.CountJobs(), 2u);
  cluster.Advance(20'000);
  EXPECT_EQ(cluster.CountJobs(), 1u);
}

// A clock whose Unix time can be set.
class SettableClock final : public Clock {
 public:
  int64_t NowNs() const override { return now_ns; }
  int64_t WallNs() const override { return now_ns + offset_ns; }
  int64_t now_ns = 0, offset_ns = 0;
};

class RetentionWithClock : public ::testing::Test {
 protected:
  static constexpr int64_t kYearNs = int64_t{365} * 24 * 3600 * kNsPerSecond;

  void Open(const CoordinatorOptions& options) {
    commit_.emplace(options,
                    GroupCommit::Environment{&clock_, random_.get(), [this] { return OpenMemoryJobLog(&store_); }});
    ASSERT_TRUE(commit_->TryOpen("test").ok());
  }
  void RunFor(int64_t ms) {
    for (int64_t t = 0; t < ms; t += 100) {
      clock_.now_ns += 100 * kNsPerMs;
      ASSERT_TRUE(commit_->Commit({}, /*tick=*/true).ok());
    }
  }
  absl::Status SubmitAndCancel(const std::string& key) {
    SubmitJobRequest request;
    request.set_client_key(key);
    const auto handle = [request](CoordinatorCore& c) {
      const absl::StatusOr<SubmitJobResponse> job = c.Submit(request);
      ASSERT_TRUE(job.ok()) << job.status();
      ASSERT_TRUE(c.Cancel(JobId(job->job_id())).ok());
    };
    return commit_->Commit({{handle, nullptr}}, /*tick=*/false).status();
  }
  const Jobs& jobs() { return commit_->coordinator()->context().jobs; }

  SettableClock clock_;
  const std::unique_ptr<Random> random_ = SeededRandom(1);
  MemoryJobStore store_;
  std::optional<GroupCommit> commit_;
};

TEST_F(RetentionWithClock, JobsAreKeptWhenTheClockIsSetForward) {
  Open(Keeping(100, 60'000));
  RunFor(100);
  ASSERT_TRUE(SubmitAndCancel("before").ok());
  clock_.offset_ns = kYearNs;
  RunFor(20'000);
  EXPECT_EQ(jobs().size(), 1u);
  ASSERT_TRUE(SubmitAndCancel("after").ok());
  store_.fail_next_appends = 1;
  EXPECT_FALSE(SubmitAndCancel("lost").ok());
  ASSERT_TRUE(commit_->TryOpen("the log is reopened").ok());
  RunFor(30'000);
  EXPECT_EQ(jobs().size(), 2u);
  RunFor(20'000);
  EXPECT_EQ(jobs().size(), 1u) << "the first job ended more than 60 s ago";
  RunFor(20'000);
  EXPECT_EQ(jobs().size(), 0u) << "the second job ended more than 60 s ago";
}

TEST_F(RetentionWithClock, TheJobsThatEndedFirstAreRemovedWhenTheClockIsSetBack) {
  Open(Keeping(2));
  clock_.offset_ns = kYearNs;
  for (const char* key : {"first", "second"}) ASSERT_TRUE(SubmitAndCancel(key).ok());
  clock_.offset_ns = 0;
  ASSERT_TRUE(SubmitAndCancel("third").ok());
  RunFor(11'000);
  EXPECT_EQ(jobs().FindByKey("first"), nullptr);
  ASSERT_NE(jobs().FindByKey("third"), nullptr) << "its client may not have seen its end yet";
  ASSERT_TRUE(commit_->TryOpen("the log is reopened").ok());
  ASSERT_TRUE(SubmitAndCancel("fourth").ok());
  RunFor(11'000);
  EXPECT_EQ(jobs().FindByKey("second"), nullptr);
  EXPECT_NE(jobs().FindByKey("third"), nullptr);
  EXPECT_NE(jobs().FindByKey("fourth"), nullptr);
}

TEST(Retention, GenerationsAreNeverUsedAgain) {
  Cluster cluster(Keeping(0));
  const std::string job = cluster.RunningJob();
  const int64_t generation = cluster.JobOf(job).placed.generation();
  cluster.Do([&](CoordinatorCore& c) { ASSERT_TRUE(c.Cancel(JobId(job)).ok()); });
  cluster.RunFor(11'000, {1, 2});
  ASSERT_EQ(cluster.CountJobs(), 0u);
  cluster.Compact();
  cluster.Restart();
  const std::string next = cluster.RunningJob();
  EXPECT_GT(cluster.JobOf(next).placed.generation(), generation);
}

TEST(Retention, WhatAnOpenJobNeedsIsKept) {
  Cluster cluster;
  JobSpec spec = cluster.Spec(4);
  spec.set_program_blob("program");
  spec.set_data_blob("data");
  const std::string job = cluster.RunningJob(spec);
  cluster.Shard(1, job, 10);
  StoredState state = cluster.coordinator().StateInUse();
  EXPECT_THAT(state.jobs, Contains(job));
  EXPECT_THAT(state.blobs, Contains("program"));
  EXPECT_THAT(state.blobs, Contains("digest")) << "the executable";
  EXPECT_THAT(state.states, Contains("xlad:initial"));
  EXPECT_THAT(state.states, Contains("xlad:data"));
  EXPECT_THAT(state.states, Contains("shard-1")) << "its checkpoint is not complete yet";
  cluster.Shard(2, job, 10);
  cluster.IndexStored();
  cluster.CommitCheckpoint(job, 20);
  cluster.CommitCheckpoint(job, 30);
  state = cluster.coordinator().StateInUse();
  EXPECT_THAT(state.states, Not(Contains("xlad:10"))) << "dropped";
  EXPECT_THAT(state.states, Contains("xlad:20"));
  EXPECT_THAT(state.states, Contains("xlad:30"));

  cluster.Do([&](CoordinatorCore& c) { ASSERT_TRUE(c.Cancel(JobId(job)).ok()); });
  state = cluster.coordinator().StateInUse();
  EXPECT_THAT(state.states, Contains("xlad:30")) << "another job may resume it";
  EXPECT_THAT(state.states, Not(Contains("xlad:data")));
  EXPECT_THAT(state.blobs, Not(Contains("digest")));
}

TEST(Retention, AJobThatResumesKeepsTheCheckpointOfARemovedJob) {
  Cluster cluster(Keeping(0));
  const std::string job = cluster.RunningJob();
  cluster.CommitCheckpoint(job, 10);
  SubmitJobRequest request;
  request.set_client_key("next");
  *request.mutable_spec() = cluster.Spec(4);
  cluster.Do([&](CoordinatorCore& c) {
    const absl::StatusOr<ResolvedResume> resume = c.jobs().NewestCheckpoint(JobId(job));
    ASSERT_TRUE(resume.ok());
    ASSERT_TRUE(c.Submit(request, *resume).ok());
    ASSERT_TRUE(c.Cancel(JobId(job)).ok());
  });
  cluster.RunFor(11'000, {1, 2});
  ASSERT_EQ(cluster.CountJobs(), 1u);
  EXPECT_THAT(cluster.coordinator().StateInUse().states, Contains("xlad:10"));
}

TEST(Retention, TheLogOfALongRunStaysShort) {
  Cluster cluster(Keeping(10));
  const std::string job = cluster.RunningJob();
  for (int64_t step = 10; step < 4000; step += 10) cluster.CommitCheckpoint(job, step);
  cluster.RunFor(11'000, {1, 2});
  cluster.Compact();
  EXPECT_LT(cluster.store.events.size(), 20u);
  cluster.Restart();
  EXPECT_EQ(cluster.Status(job).checkpoint_step(), 3990);
  EXPECT_EQ(cluster.Status(job).checkpoints_size(), 2);
}

}  // namespace
}  // namespace xlad::service
