// Checkpoints in a shared folder: which files are removed, and when.

#include "service/testing/cluster.h"
#include "storage/checkpoint_index.h"
#include "storage/checkpoint_shard.h"
#include "storage/uri.h"

namespace xlad::service {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr char kRoot[] = "/shared/run7";

class SharedFolderTest : public ::testing::Test, protected Cluster {
 protected:
  std::string Running() {
    JobSpec spec = Spec(4);
    spec.mutable_checkpoint()->set_uri(storage::FileUri(kRoot));
    spec.mutable_checkpoint()->set_keep(2);
    return RunningJob(spec);
  }
  std::string FolderOf(const std::string& job, int64_t step, int64_t attempt = 1) {
    return storage::CheckpointFolder(kRoot, {job, attempt, step});
  }
  static std::string NameOf(const std::string& folder) { return folder.substr(folder.rfind('/') + 1); }
  // Commits a checkpoint: the workers on connections 1 and 2 have written their shards, and the index is in the folder.
  void Commit(const std::string& job, int64_t step) {
    Shard(1, job, step);
    Shard(2, job, step);
    ASSERT_FALSE(indexes.empty());
    const StoreIndex request = indexes.back();
    const Checkpoint stored{step, storage::FileUri(FolderOf(job, step, request.attempt.number)), "digest", 0};
    Do([&](CoordinatorCore& c) { c.OnIndexStored(request, stored); });
  }
  void Cancel(const std::string& job) {
    Do([&](CoordinatorCore& c) { ASSERT_TRUE(c.Cancel(JobId(job)).ok()); });
  }
  std::string Resume(const std::string& job, const std::string& key) {
    SubmitJobRequest request;
    request.set_client_key(key);
    *request.mutable_spec() = Spec(64);  // The job waits, because the cluster does not have 64 devices.
    std::string next;
    Do([&](CoordinatorCore& c) {
      const auto resume = c.jobs().NewestCheckpoint(JobId(job));
      ASSERT_TRUE(resume.ok()) << resume.status();
      next = c.Submit(request, *resume)->job_id();
    });
    return next;
  }
};

TEST_F(SharedFolderTest, UncommittedCheckpointsAreRemovedWithTheNextCheckpointAndAtTheEnd) {
  const std::string job = Running();
  Commit(job, 10);
  ASSERT_EQ(removals.size(), 1u);
  EXPECT_EQ(removals[0].folder, absl::StrCat(kRoot, "/", job));
  EXPECT_EQ(removals[0].obsolete.step, 10) << "shards of later steps may be written by now";
  EXPECT_EQ(removals[0].obsolete.attempt, 1);
  EXPECT_THAT(removals[0].obsolete.keep, ElementsAre(NameOf(FolderOf(job, 10))));
  Commit(job, 20);
  Commit(job, 30);
  EXPECT_THAT(removals.back().obsolete.keep, ElementsAre(NameOf(FolderOf(job, 20)), NameOf(FolderOf(job, 30))));
  EXPECT_THAT(dropped, ElementsAre(storage::FileUri(FolderOf(job, 10))));
  Cancel(job);
  EXPECT_EQ(removals.size(), 4u);
  EXPECT_EQ(removals.back().obsolete.step, INT64_MAX);
  EXPECT_EQ(removals.back().obsolete.attempt, INT64_MAX);
  EXPECT_THAT(removals.back().obsolete.keep, ElementsAre(NameOf(FolderOf(job, 20)), NameOf(FolderOf(job, 30))))
      << "the checkpoints of a job that has ended stay";
}

TEST_F(SharedFolderTest, WhatAnAbortedProcessHasWrittenIsRemovedWhenTheProcessHasEnded) {
  const std::string job = Running();
  Commit(job, 10);
  WorkerMessage message;
  Name(job, message.mutable_exited());
  message.mutable_exited()->set_signal(9);
  Cancel(job);
  removals.clear();
  Handle(1, message);
  ASSERT_EQ(removals.size(), 1u);
  EXPECT_EQ(removals[0].obsolete.step, INT64_MAX);
  EXPECT_THAT(removals[0].obsolete.keep, ElementsAre(NameOf(FolderOf(job, 10))));
}

TEST_F(SharedFolderTest, ACheckpointThatAnotherJobContinuesFromStaysUntilThatJobEnds) {
  const std::string job = Running();
  Commit(job, 10);
  const std::string uri = storage::FileUri(FolderOf(job, 10));
  const std::string first = Resume(job, "first"), second = Resume(job, "second");
  for (const int64_t step : {20, 30, 40}) Commit(job, step);
  EXPECT_THAT(dropped, ElementsAre(storage::FileUri(FolderOf(job, 20)))) << "the checkpoint of step 10 is kept";
  EXPECT_THAT(removals.back().obsolete.keep,
              UnorderedElementsAre(NameOf(FolderOf(job, 10)), NameOf(FolderOf(job, 30)), NameOf(FolderOf(job, 40))));
  dropped.clear();
  Restart();  // This state must survive a restart.
  Cancel(first);
  EXPECT_THAT(dropped, IsEmpty()) << "the second job still needs it";
  Cancel(job);
  EXPECT_THAT(removals.back().obsolete.keep, ::testing::Contains(NameOf(FolderOf(job, 10))));
  EXPECT_THAT(dropped, IsEmpty());
  Cancel(second);
  EXPECT_THAT(dropped, ElementsAre(uri));
}

// The submission was read from a slow disk, for example.
TEST_F(SharedFolderTest, ASubmissionFromACheckpointThatIsDroppedMeanwhileIsRepeated) {
  const std::string job = Running();
  Commit(job, 10);
  SubmitJobRequest request;
  request.set_client_key("next");
  *request.mutable_spec() = Spec(64);
  request.mutable_spec()->set_resume(job);
  const ResolvedResume old = *coordinator().jobs().NewestCheckpoint(JobId(job));
  for (const int64_t step : {20, 30}) Commit(job, step);
  ASSERT_THAT(dropped, ElementsAre(old.uri));
  Do([&](CoordinatorCore& c) { EXPECT_TRUE(absl::IsUnavailable(c.Submit(request, old).status())); });
  Do([&](CoordinatorCore& c) {
    EXPECT_TRUE(c.Submit(request, *c.jobs().NewestCheckpoint(JobId(job))).ok());
    EXPECT_TRUE(c.Submit(request, old).ok()) << "a repeated submission of the accepted job";
    request.set_client_key("other");
    request.mutable_spec()->set_resume("job-that-was-removed");
    EXPECT_TRUE(absl::IsNotFound(c.Submit(request, old).status()));
  });
}

TEST_F(SharedFolderTest, AnIndexThatIsWrittenAfterTheJobHasEndedIsRemoved) {
  const std::string job = Running();
  Shard(1, job, 10);
  Shard(2, job, 10);
  const StoreIndex request = indexes.back();
  Cancel(job);
  removals.clear();
  const Checkpoint stored{10, storage::FileUri(FolderOf(job, 10)), "digest", 0};
  Do([&](CoordinatorCore& c) { c.OnIndexStored(request, stored); });
  ASSERT_EQ(removals.size(), 1u);
  EXPECT_EQ(removals[0].obsolete.step, INT64_MAX);
  EXPECT_THAT(removals[0].obsolete.keep, IsEmpty());
}

TEST_F(SharedFolderTest, AnIndexThatIsWrittenAfterTheJobWasRemovedIsRemoved) {
  const std::string job = Running();
  Shard(1, job, 10);
  Shard(2, job, 10);
  StoreIndex request = indexes.back();
  request.attempt.job = JobId("job-that-was-removed");
  const Checkpoint stored{10, storage::FileUri(FolderOf(request.attempt.job.str(), 10)), "digest", 0};
  Do([&](CoordinatorCore& c) { c.OnIndexStored(request, absl::UnavailableError("the folder does not answer")); });
  EXPECT_THAT(dropped, IsEmpty());
  Do([&](CoordinatorCore& c) { c.OnIndexStored(request, stored); });
  EXPECT_THAT(dropped, ElementsAre(stored.uri));
}

TEST_F(SharedFolderTest, ACheckpointWhoseIndexAnotherJobNamesStaysUntilThatJobEnds) {
  const std::string job = Running();
  Shard(1, job, 10);
  Shard(2, job, 10);
  StoreIndex late = indexes.back();
  late.attempt.job = JobId("job-that-was-removed");
  const Checkpoint stored{10, storage::FileUri(FolderOf(late.attempt.job.str(), 10)), "digest", 0};
  Commit(job, 10);
  const std::string uri = storage::FileUri(FolderOf(job, 10));
  std::string resumed;
  for (const std::string& folder : {stored.uri, uri}) {
    SubmitJobRequest request;
    request.set_client_key(folder);
    *request.mutable_spec() = Spec(64);
    Do([&](CoordinatorCore& c) {
      resumed = c.Submit(request, {absl::StrCat(folder, "/", storage::kIndexFileName), "digest", 10})->job_id();
    });
  }
  Do([&](CoordinatorCore& c) { c.OnIndexStored(late, stored); });
  for (const int64_t step : {20, 30}) Commit(job, step);
  EXPECT_THAT(dropped, IsEmpty());
  Cancel(resumed);
  EXPECT_THAT(dropped, ElementsAre(uri));
}

TEST_F(SharedFolderTest, ACheckpointOfAnotherAttemptDoesNotKeepOneWithTheBeginningOfItsName) {
  const std::string job = Running();
  Commit(job, 10);
  const std::string uri = storage::FileUri(FolderOf(job, 10, 1));
  const std::string resumed = Resume(job, "first");
  SubmitJobRequest request;
  request.set_client_key("tenth");
  *request.mutable_spec() = Spec(64);
  Do([&](CoordinatorCore& c) {
    ASSERT_TRUE(c.Submit(request, {storage::FileUri(FolderOf(job, 10, 10)), "digest", 10}).ok());
  });
  for (const int64_t step : {20, 30, 40}) Commit(job, step);
  dropped.clear();
  Cancel(resumed);
  EXPECT_THAT(dropped, ElementsAre(uri));
}

TEST_F(SharedFolderTest, ACheckpointThatItsJobKeepsOrTheUserNamedIsNotRemoved) {
  const std::string job = Running();
  Commit(job, 10);
  Cancel(Resume(job, "again"));
  EXPECT_THAT(dropped, IsEmpty()) << "the job that wrote it still keeps it";
  SubmitJobRequest request;
  request.set_client_key("mine");
  *request.mutable_spec() = Spec(64);
  std::string mine;
  Do([&](CoordinatorCore& c) {
    mine = c.Submit(request, {"file:/data/checkpoints/step-000000000005-attempt-1", "digest", 5})->job_id();
  });
  Cancel(mine);
  EXPECT_THAT(dropped, IsEmpty());
}

TEST_F(SharedFolderTest, NoFolderIsCleanedUpIfCheckpointsAreInTheBlobStore) {
  const std::string job = RunningJob();
  CommitCheckpoint(job, 10);
  Cancel(job);
  EXPECT_THAT(removals, IsEmpty());
}

}  // namespace
}  // namespace xlad::service
