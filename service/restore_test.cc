// Backups that are restored by processes that are killed, or whose disk is full.
#include "service/restore.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/file_system.h"
#include "base/testing/case_count.h"
#include "base/testing/limited_child.h"
#include "base/testing/test_folder.h"
#include "service/log/jobs.h"

namespace xlad::service {
namespace {

using ::testing::HasSubstr;

class RestoreTest : public testing::Test {
 protected:
  static constexpr int kEvents = 40, kGeneration = 3;

  // A backup of two blobs and a log with an event for each of them.
  RestoreTest() {
    FileSystem& files = RealFileSystem();
    EXPECT_TRUE(files.MakeDirectories(JoinPath(backup_, "blobs")).ok());
    for (const char* name : {"one", "two"}) {
      EXPECT_TRUE(files.WriteAtomically(BlobPath(backup_, name), std::string(20'000, *name)).ok());
    }
    const auto log = OpenSqliteJobLog(JoinPath(backup_, "jobs.sqlite"));
    LogBatch batch;
    for (int i = 0; i < kEvents; ++i) {
      JobEvent& event = batch.events.emplace_back();
      event.set_job_id("job");
      event.mutable_submitted()->mutable_spec()->set_name(std::string(2000, 'n'));
    }
    JobEvent& placed = batch.events.emplace_back();
    placed.set_job_id("job");
    placed.mutable_placed()->set_generation(kGeneration);
    batch.events.emplace_back().mutable_term_started()->set_term(7);
    EXPECT_TRUE((*log)->Append(&batch).ok());
  }
  static std::string BlobPath(const std::string& folder, const std::string& name) {
    return JoinPath(JoinPath(folder, "blobs"), name);
  }

  // Returns the result of RunWithFileLimit.
  int RestoreWithLimit(rlim_t limit, bool is_killed) {
    const int status = RunWithFileLimit(limit, is_killed, [this] { return RestoreBackup(backup_, data_, 0).ok(); });
    EXPECT_NE(status, -1);
    return status;
  }

  // Expects that the data folder has the blobs, the events of the backup and the new term.
  void ExpectRestored() {
    for (const char* name : {"one", "two"}) {
      EXPECT_EQ(RealFileSystem().Read(BlobPath(data_, name)).value_or(""), std::string(20'000, *name)) << name;
    }
    ASSERT_TRUE(CheckComplete(data_).ok());
    const auto log = OpenSqliteJobLog(JoinPath(data_, "jobs.sqlite"));
    ASSERT_TRUE(log.ok()) << log.status();
    int events = 0;
    int64_t term = 0;
    ASSERT_TRUE((*log)->ReadEvents([&](const JobEvent& event) {
                         events += event.has_submitted();
                         term = std::max(term, event.term_started().term());
                         return absl::OkStatus();
                       }).ok());
    EXPECT_EQ(events, kEvents);
    EXPECT_EQ(term, 7 + kRestoredTermStep);
  }

  const TestFolder folder_;
  const std::string backup_ = JoinPath(folder_.path(), "backup"), data_ = JoinPath(folder_.path(), "data");
};

TEST_F(RestoreTest, AProcessThatIsKilledOrFailsAnywhereLeavesARefusedFolderOrAWholeOne) {
  const rlim_t step = AllCases() ? 4096 : 3 * 4096;
  int refused = 0, restored = 0;
  for (const bool is_killed : {true, false}) {
    for (rlim_t limit = 0; limit < (192 << 10); limit += step) {
      SCOPED_TRACE(absl::StrCat(is_killed ? "killed" : "failed", " at ", limit));
      const int status = RestoreWithLimit(limit, is_killed);
      if (status == 0) {
        ++restored;
        ExpectRestored();
      } else {
        EXPECT_EQ(WIFSIGNALED(status), is_killed);
        const absl::Status complete = CheckComplete(data_);
        const bool has_nothing = RealFileSystem().List(data_)->empty();
        EXPECT_EQ(complete.ok(), has_nothing) << complete;
        if (!has_nothing) EXPECT_THAT(std::string(complete.message()), HasSubstr("xlad restore again"));
        ++refused;
        const auto term = RestoreBackup(backup_, data_, 0);
        ASSERT_TRUE(term.ok()) << term.status();
        ExpectRestored();
      }
      std::filesystem::remove_all(data_);
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(refused, 8);
  EXPECT_GT(restored, 2);
}

// A link to itself can be neither opened nor listed. Unlike a folder that may not be read, it stops root, too.
TEST_F(RestoreTest, ALogOrBlobsThatCannotBeReadDoNotCountAsMissing) {
  const std::string log = JoinPath(data_, "jobs.sqlite"), blobs = JoinPath(data_, "blobs");
  for (const std::string& path : {log, blobs}) {
    for (const bool has_other : {true, false}) {
      SCOPED_TRACE(absl::StrCat(path, " ", has_other));
      std::filesystem::remove_all(data_);
      ASSERT_TRUE(RealFileSystem().MakeDirectories(data_).ok());
      EXPECT_TRUE(CheckLogExists(data_).ok()) << "a new folder";
      if (has_other && path == log) {
        ASSERT_TRUE(RealFileSystem().MakeDirectories(blobs).ok());
        ASSERT_TRUE(RealFileSystem().WriteAtomically(BlobPath(data_, "one"), "blob").ok());
        EXPECT_TRUE(absl::IsDataLoss(CheckLogExists(data_))) << "the log is missing";
      }
      if (has_other && path == blobs) ASSERT_TRUE(RealFileSystem().WriteAtomically(log, "").ok());
      std::filesystem::create_symlink(path, path);
      const absl::Status refused = CheckLogExists(data_);
      EXPECT_THAT(std::string(refused.message()), HasSubstr("symbolic links")) << refused;
      EXPECT_FALSE(absl::IsDataLoss(refused)) << refused;
    }
  }
}

// Workers may know a coordinator that was restored from the same backup before, and ignore lower terms.
TEST_F(RestoreTest, ASecondRestoreExceedsTheTermsAndGenerationsOfTheFirst) {
  constexpr int64_t kTermsOfFirst = 50;
  const int64_t now_ns = int64_t{1'800'000'000} * kNsPerSecond;
  std::vector<int64_t> terms, generations;
  for (const int64_t ns : {now_ns, now_ns + kNsPerSecond}) {
    std::filesystem::remove_all(data_);
    const auto term = RestoreBackup(backup_, data_, ns);
    ASSERT_TRUE(term.ok()) << term.status();
    Jobs jobs;
    const auto log = OpenSqliteJobLog(JoinPath(data_, "jobs.sqlite"));
    ASSERT_TRUE((*log)->ReadEvents([&](const JobEvent& event) {
                         jobs.Apply(event);
                         return absl::OkStatus();
                       }).ok());
    EXPECT_EQ(jobs.term().value(), *term);
    terms.push_back(*term);
    generations.push_back(jobs.generation().value());
  }
  EXPECT_GT(generations[0], kGeneration + kRestoredTermStep);
  EXPECT_GT(generations[1], generations[0] + kTermsOfFirst);
  EXPECT_GT(terms[1], terms[0] + kTermsOfFirst);
}

TEST_F(RestoreTest, ABackupThatWasNotCompletedIsRefused) {
  FileSystem& files = RealFileSystem();
  const std::string log = JoinPath(backup_, "jobs.sqlite"), partial = JoinPath(backup_, kPartialLog);
  ASSERT_TRUE(files.Rename(log, partial).ok());
  const absl::Status refused = RestoreBackup(backup_, data_, 0).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr(backup_));
  EXPECT_FALSE(files.Exists(data_)) << "nothing was copied";
  ASSERT_TRUE(CompleteFolder(backup_).ok());
  EXPECT_TRUE(RestoreBackup(backup_, data_, 0).ok());
  ExpectRestored();
  EXPECT_TRUE(absl::IsAlreadyExists(RestoreBackup(backup_, data_, 0).status())) << "it is in use now";
}

}  // namespace
}  // namespace xlad::service
