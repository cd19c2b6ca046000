#include "service/log/job_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iostream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/file_system.h"
#include "base/random.h"
#include "base/testing/case_count.h"
#include "base/testing/limited_child.h"
#include "base/testing/test_folder.h"
#include "service/log/sqlite_statement.h"

namespace xlad::service {
namespace {

JobEvent Event(const std::string& job, const std::string& key) {
  JobEvent event;
  event.set_job_id(job);
  event.mutable_submitted()->set_client_key(key);
  return event;
}

class SqliteJobLogTest : public testing::Test {
 protected:
  std::string TestPath() const { return JoinPath(folder_.path(), "jobs.sqlite"); }
  void RemoveLog() const {
    for (const char* suffix : {"", "-wal", "-shm"}) std::filesystem::remove(TestPath() + suffix);
  }
  // Calls `use` with the database of the log, which must not be open.
  void WithDatabase(const std::function<void(sqlite3*)>& use) const {
    sqlite3* db = nullptr;
    ASSERT_EQ(sqlite3_open(TestPath().c_str(), &db), SQLITE_OK);
    use(db);
    sqlite3_close(db);
  }
  void Execute(const char* sql) const {
    WithDatabase([&](sqlite3* db) {
      EXPECT_EQ(sqlite3_exec(db, sql, nullptr, nullptr, nullptr), SQLITE_OK) << sqlite3_errmsg(db);
    });
  }

  const TestFolder folder_;
};

std::vector<JobEvent> AllEvents(JobLog& log) {
  std::vector<JobEvent> events;
  EXPECT_TRUE(log.ReadEvents([&](const JobEvent& event) {
                   events.push_back(event);
                   return absl::OkStatus();
                 }).ok());
  return events;
}

TEST_F(SqliteJobLogTest, ReadsBackEventsAndMetrics) {
  const JobId a("a"), b("b");
  {
    auto log = OpenSqliteJobLog(TestPath());
    ASSERT_TRUE(log.ok()) << log.status();
    for (int i = 0; i < 50; ++i) {
      LogBatch batch{{Event("a", absl::StrCat(i)), Event("b", absl::StrCat(i))}, {}};
      ASSERT_TRUE((*log)->Append(&batch).ok());
      EXPECT_EQ(batch.events[1].sequence(), 2 * i + 2);
    }
    std::vector<StepMetrics> rows(20);
    for (int i = 0; i < 20; ++i) {
      rows[i].set_step(i);
      rows[i].set_attempt(1);
    }
    LogBatch batch{{}, {{a, rows}}};
    ASSERT_TRUE((*log)->Append(&batch).ok());
    rows[0].set_step_ms(99);
    batch.metrics = {{a, rows}};
    ASSERT_TRUE((*log)->Append(&batch).ok());  // The steps are already recorded, so their first values stay.
    rows.resize(8);
    for (StepMetrics& row : rows) row.set_attempt(2);
    rows.erase(rows.begin(), rows.begin() + 6);
    batch.metrics = {{a, rows}};
    ASSERT_TRUE((*log)->Append(&batch).ok());  // Attempt 2 has run steps 6 and 7 again.
  }
  auto log = OpenSqliteJobLog(TestPath());
  ASSERT_TRUE(log.ok()) << log.status();
  const std::vector<JobEvent> events = AllEvents(**log);
  ASSERT_EQ(events.size(), 100u);
  EXPECT_EQ(events[99].submitted().client_key(), "49");
  const auto page = *(*log)->ReadEventsOf(b, 10, 3);
  ASSERT_EQ(page.size(), 3u);
  EXPECT_EQ(page[0].sequence(), 12);
  EXPECT_EQ(page[2].sequence(), 16);
  const auto metrics = *(*log)->ReadMetrics(a, 5, 10);
  ASSERT_EQ(metrics.size(), 10u);
  EXPECT_EQ(metrics[0].step(), 5);
  EXPECT_EQ(metrics[1].attempt(), 2);
  EXPECT_EQ(metrics[3].attempt(), 1);
  EXPECT_EQ((*(*log)->ReadMetrics(a, 0, 1))[0].step_ms(), 0);
  EXPECT_EQ((*(*log)->LastMetrics(a, 0))->step(), 19);
  EXPECT_EQ((*(*log)->LastMetrics(a, 2))->step(), 7);
  EXPECT_FALSE((*(*log)->LastMetrics(b, 0)).has_value());
}

TEST_F(SqliteJobLogTest, CompactionRemovesJobsAndEvents) {
  auto log = OpenSqliteJobLog(TestPath());
  ASSERT_TRUE(log.ok()) << log.status();
  LogBatch batch{{Event("a", "1"), Event("b", "2"), Event("a", "3"), Event("b", "4")}, {{JobId("a"), {StepMetrics()}}}};
  ASSERT_TRUE((*log)->Append(&batch).ok());
  ASSERT_TRUE((*log)->Compact({{JobId("a")}, {2}}).ok());
  const std::vector<JobEvent> events = AllEvents(**log);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].submitted().client_key(), "4");
  EXPECT_FALSE((*(*log)->LastMetrics(JobId("a"), 0)).has_value());
  LogBatch next{{Event("c", "5")}, {}};
  ASSERT_TRUE((*log)->Append(&next).ok());
  EXPECT_EQ(next.events[0].sequence(), 5) << "numbers are never used again";
}

TEST_F(SqliteJobLogTest, ABackupIsACompleteLog) {
  const std::string copy = TestPath() + ".copy";
  {
    auto log = OpenSqliteJobLog(TestPath());
    ASSERT_TRUE(log.ok());
    LogBatch batch{{Event("a", "1")}, {}};
    ASSERT_TRUE((*log)->Append(&batch).ok());
    ASSERT_TRUE((*log)->BackUp(copy).ok());
    batch = {{Event("a", "2")}, {}};
    ASSERT_TRUE((*log)->Append(&batch).ok());
  }
  auto log = OpenSqliteJobLog(copy);
  ASSERT_TRUE(log.ok()) << log.status();
  EXPECT_EQ(AllEvents(**log).size(), 1u);
}

// A log in the format that xlad 0.1 wrote.
TEST_F(SqliteJobLogTest, AnOldLogIsCopiedAndMigrated) {
  JobEvent event = Event("a", "1");
  StepMetrics metrics;
  metrics.set_step(3);
  {
    sqlite3* db = nullptr;
    ASSERT_EQ(sqlite3_open(TestPath().c_str(), &db), SQLITE_OK);
    ASSERT_EQ(sqlite3_exec(db,
                           "CREATE TABLE events (sequence INTEGER PRIMARY KEY AUTOINCREMENT, job_id TEXT NOT NULL, "
                           "unix_ns INTEGER NOT NULL, event BLOB NOT NULL);"
                           "CREATE TABLE metrics (job_id TEXT NOT NULL, step INTEGER NOT NULL, metrics BLOB NOT NULL, "
                           "PRIMARY KEY (job_id, step)) WITHOUT ROWID; PRAGMA user_version=1;",
                           nullptr, nullptr, nullptr),
              SQLITE_OK);
    {
      SqliteStatement insert(db, "INSERT INTO events (job_id, unix_ns, event) VALUES ('a', 0, ?)");
      insert.BindBlob(1, event.SerializeAsString());
      ASSERT_EQ(insert.Step(), SQLITE_DONE);
      SqliteStatement step(db, "INSERT INTO metrics VALUES ('a', 3, ?)");
      step.BindBlob(1, metrics.SerializeAsString());
      ASSERT_EQ(step.Step(), SQLITE_DONE);
    }
    sqlite3_close(db);
  }
  for (int opening = 0; opening < 2; ++opening) {
    auto log = OpenSqliteJobLog(TestPath());
    ASSERT_TRUE(log.ok()) << log.status();
    EXPECT_EQ(AllEvents(**log).size(), 1u);
    EXPECT_EQ((*(*log)->LastMetrics(JobId("a"), 7))->step(), 3);
  }
  EXPECT_TRUE(RealFileSystem().Exists(TestPath() + ".schema-1"));
}

// The index of the newest schema has the name of a table, so the migration fails after it has changed other tables.
TEST_F(SqliteJobLogTest, AnInterruptedMigrationChangesNothing) {
  const auto execute = [this](const char* sql) {
    sqlite3* db = nullptr;
    ASSERT_EQ(sqlite3_open(TestPath().c_str(), &db), SQLITE_OK);
    EXPECT_EQ(sqlite3_exec(db, sql, nullptr, nullptr, nullptr), SQLITE_OK) << sqlite3_errmsg(db);
    sqlite3_close(db);
  };
  execute("CREATE TABLE events (sequence INTEGER PRIMARY KEY AUTOINCREMENT, job_id TEXT NOT NULL, "
          "unix_ns INTEGER NOT NULL, event BLOB NOT NULL);"
          "CREATE TABLE metrics (job_id TEXT NOT NULL, step INTEGER NOT NULL, metrics BLOB NOT NULL, "
          "PRIMARY KEY (job_id, step)) WITHOUT ROWID; CREATE TABLE events_of_job (x); PRAGMA user_version=1;");
  EXPECT_THAT(std::string(OpenSqliteJobLog(TestPath()).status().message()), testing::HasSubstr("events_of_job"));
  execute("DROP TABLE events_of_job");
  const auto log = OpenSqliteJobLog(TestPath());
  EXPECT_TRUE(log.ok()) << log.status();
}

// Versions 2 to 4 have the same tables, without checksums. Versions 5 and 6 have checksums of events only. The older
// metrics get none, so that they are not rewritten.
TEST_F(SqliteJobLogTest, ALogOfAnyOlderVersionIsCopiedAndGetsChecksums) {
  StepMetrics metrics;
  metrics.set_step(3);
  metrics.set_attempt(2);
  for (int version = 2; version <= 6; ++version) {
    SCOPED_TRACE(version);
    RemoveLog();
    LogBatch batch{{Event("a", "1"), Event("b", "2")}, {{JobId("a"), {metrics}}}};
    {
      auto log = OpenSqliteJobLog(TestPath());
      ASSERT_TRUE(log.ok()) << log.status();
      ASSERT_TRUE((*log)->Append(&batch).ok());
    }
    if (version < 5) Execute("ALTER TABLE events DROP COLUMN checksum");
    Execute(absl::StrCat("ALTER TABLE metrics DROP COLUMN checksum; PRAGMA user_version=", version).c_str());
    const std::string kept = absl::StrCat(TestPath(), ".schema-", version);
    ASSERT_TRUE(RealFileSystem().WriteAtomically(kept, "a copy that was interrupted").ok());
    {
      auto log = OpenSqliteJobLog(TestPath());
      ASSERT_TRUE(log.ok()) << log.status();
      EXPECT_EQ(AllEvents(**log).size(), 2u);
      EXPECT_EQ((*(*log)->LastMetrics(JobId("a"), 2))->step(), 3);
      LogBatch next{{Event("a", "3")}, {{JobId("b"), {metrics}}}};
      ASSERT_TRUE((*log)->Append(&next).ok());
      EXPECT_EQ(next.events[0].sequence(), 3);
    }
    Execute("UPDATE metrics SET attempt = 3");
    {
      auto log = OpenSqliteJobLog(TestPath());
      ASSERT_TRUE(log.ok()) << log.status();
      EXPECT_TRUE((*log)->LastMetrics(JobId("a"), 0).ok()) << "an older row is not verified";
      EXPECT_TRUE(absl::IsDataLoss((*log)->LastMetrics(JobId("b"), 0).status())) << "a newer row is verified";
    }
    // The copy is a log of the old version, so it is migrated when it is opened.
    std::filesystem::rename(kept, TestPath());
    WithDatabase([&](sqlite3* db) {
      SqliteStatement read(db, "PRAGMA user_version");
      ASSERT_EQ(read.Step(), SQLITE_ROW);
      EXPECT_EQ(read.Int(0), version);
    });
    auto log = OpenSqliteJobLog(TestPath());
    ASSERT_TRUE(log.ok()) << log.status();
    EXPECT_EQ(AllEvents(**log).size(), 2u);
    std::filesystem::remove(kept);
  }
}

TEST_F(SqliteJobLogTest, ADamagedEventIsDataLoss) {
  LogBatch batch{{Event("a", "1"), Event("a", "2"), Event("a", "3")}, {}};
  const std::string bytes = batch.events[1].SerializeAsString();
  const auto write = [&] {
    RemoveLog();
    auto log = OpenSqliteJobLog(TestPath());
    ASSERT_TRUE(log.ok()) << log.status();
    LogBatch copy = batch;
    ASSERT_TRUE((*log)->Append(&copy).ok());
  };
  const auto expect_refused = [&](const std::string& what) {
    auto log = OpenSqliteJobLog(TestPath());
    ASSERT_TRUE(log.ok()) << log.status();
    const absl::Status read = (*log)->ReadEvents([](const JobEvent&) { return absl::OkStatus(); });
    EXPECT_TRUE(absl::IsDataLoss(read)) << what << ": " << read;
    EXPECT_THAT(std::string(read.message()), testing::HasSubstr("event 2 is damaged"));
    EXPECT_TRUE(absl::IsDataLoss((*log)->ReadEventsOf(JobId("a"), 0, 10).status())) << what;
  };
  write();
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    std::string flipped = bytes;
    flipped[bit / 8] ^= static_cast<char>(1 << bit % 8);
    WithDatabase([&](sqlite3* db) {
      SqliteStatement update(db, "UPDATE events SET event = ? WHERE sequence = 2");
      update.BindBlob(1, flipped);
      ASSERT_EQ(update.Step(), SQLITE_DONE);
    });
    expect_refused(absl::StrCat("bit ", bit));
    if (HasFailure()) return;
  }
  for (const char* sql : {"UPDATE events SET event = x'' WHERE sequence = 2",
                          "UPDATE events SET checksum = checksum + 1 WHERE sequence = 2",
                          "UPDATE events SET event = (SELECT event FROM events WHERE sequence = 3) "
                          "WHERE sequence = 2"}) {
    write();
    Execute(sql);
    expect_refused(sql);
  }
}

TEST_F(SqliteJobLogTest, DamagedMetricsAreDataLoss) {
  std::vector<StepMetrics> rows(3);
  for (int i = 0; i < 3; ++i) {
    rows[i].set_step(i);
    rows[i].set_attempt(1);
    rows[i].add_values(1.0F / static_cast<float>(i + 3));
  }
  const std::string bytes = rows[2].SerializeAsString();
  const auto write = [&] {
    RemoveLog();
    auto log = OpenSqliteJobLog(TestPath());
    ASSERT_TRUE(log.ok()) << log.status();
    LogBatch batch{{Event("a", "1")}, {{JobId("a"), rows}, {JobId("b"), rows}}};
    ASSERT_TRUE((*log)->Append(&batch).ok());
  };
  const auto expect_found = [&](const std::string& what) {
    auto log = OpenSqliteJobLog(TestPath());
    ASSERT_TRUE(log.ok()) << what << ": " << log.status();
    EXPECT_EQ(AllEvents(**log).size(), 1u) << what;
    for (const absl::Status& read :
         {(*log)->ReadMetrics(JobId("a"), 0, 10).status(), (*log)->LastMetrics(JobId("a"), 0).status()}) {
      EXPECT_TRUE(absl::IsDataLoss(read)) << what << ": " << read;
      EXPECT_THAT(std::string(read.message()), testing::HasSubstr("the metrics of step 2 of job a are damaged"));
    }
    EXPECT_EQ((*log)->ReadMetrics(JobId("a"), 0, 2)->size(), 2u) << what << ": the steps before it are not affected";
    EXPECT_EQ((*log)->ReadMetrics(JobId("b"), 0, 10)->size(), 3u) << what << ": other jobs are not affected";
  };
  write();
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    std::string flipped = bytes;
    flipped[bit / 8] ^= static_cast<char>(1 << bit % 8);
    WithDatabase([&](sqlite3* db) {
      SqliteStatement update(db, "UPDATE metrics SET metrics = ? WHERE job_id = 'a' AND step = 2");
      update.BindBlob(1, flipped);
      ASSERT_EQ(update.Step(), SQLITE_DONE);
    });
    expect_found(absl::StrCat("bit ", bit));
    if (HasFailure()) return;
  }
  for (const std::string set : {"attempt = 2", "checksum = checksum + 1",
                                "(metrics, checksum) = (SELECT metrics, checksum FROM metrics "
                                "WHERE job_id = 'a' AND step = 1)"}) {
    write();
    Execute(absl::StrCat("UPDATE metrics SET ", set, " WHERE job_id = 'a' AND step = 2").c_str());
    expect_found(set);
  }
}

// An event without contents that was written as it is, so that its checksum is right.
TEST_F(SqliteJobLogTest, AnEventOfNoKindIsDataLoss) {
  auto log = OpenSqliteJobLog(TestPath());
  ASSERT_TRUE(log.ok()) << log.status();
  LogBatch batch{{JobEvent()}, {}};
  ASSERT_TRUE((*log)->Append(&batch).ok());
  const absl::Status read = (*log)->ReadEvents([](const JobEvent&) { return absl::OkStatus(); });
  EXPECT_TRUE(absl::IsDataLoss(read)) << read;
}

// XLAD_LOG_MB sets the size of the log, for measurements of the longest append during the backup.
TEST_F(SqliteJobLogTest, AppendsContinueDuringABackup) {
  const char* const size = std::getenv("XLAD_LOG_MB");
  const int64_t megabytes = size == nullptr ? 16 : std::atoll(size);
  const std::string copy = TestPath() + ".copy";
  std::filesystem::remove(copy);
  int64_t before = 0, appended = 0, during = 0;
  {
    auto log = OpenSqliteJobLog(TestPath());
    ASSERT_TRUE(log.ok()) << log.status();
    for (; before < megabytes * 16; before += 16) {
      LogBatch batch;
      for (int i = 0; i < 16; ++i) batch.events.push_back(Event("a", std::string(65'536, 'x')));
      ASSERT_TRUE((*log)->Append(&batch).ok());
    }
    // Appends one event, and returns how long it took.
    const auto append = [&](const std::string& job) {
      LogBatch batch{{Event(job, "1")}, {}};
      const auto begin = std::chrono::steady_clock::now();
      EXPECT_TRUE((*log)->Append(&batch).ok());
      return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
    };
    double quiet_ms = 0, longest_ms = 0;
    for (const int64_t end = before + 20 * megabytes; before < end; ++before) {
      quiet_ms = std::max(quiet_ms, append("a"));
    }
    std::atomic<bool> ended = false;
    absl::Status status;
    std::thread backup([&] {
      status = (*log)->BackUp(copy);
      ended = true;
    });
    for (; !ended; ++appended) {
      longest_ms = std::max(longest_ms, append("b"));
      if (!ended) ++during;
    }
    backup.join();
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_TRUE(absl::IsAlreadyExists((*log)->BackUp(copy))) << "a backup is a new file";
    std::cout << "log of " << megabytes << " MB: the longest append took " << quiet_ms << " ms before the backup and "
              << longest_ms << " ms during it, in which there were " << during << "\n";
  }
  if (size != nullptr) EXPECT_GE(during, 1);  // The backup of a small log may end before the first append.
  auto log = OpenSqliteJobLog(copy);
  ASSERT_TRUE(log.ok()) << log.status();
  const std::vector<JobEvent> events = AllEvents(**log);
  EXPECT_GE(std::ssize(events), before);
  EXPECT_LE(std::ssize(events), before + appended);
  for (int64_t i = 0; i < std::ssize(events); ++i) ASSERT_EQ(events[i].sequence(), i + 1);
  for (const char* suffix : {"", "-wal", "-shm"}) std::filesystem::remove(copy + suffix);
}

// The database stays locked while a backup runs, so a backup must not outlive a log that has failed.
TEST_F(SqliteJobLogTest, ABackupOfALogThatHasFailedEnds) {
  { ASSERT_TRUE(OpenSqliteJobLog(TestPath()).ok()); }
  Execute("CREATE TRIGGER refuse BEFORE INSERT ON events WHEN NEW.job_id = 'refused' "
          "BEGIN SELECT RAISE(ABORT, 'the disk is gone'); END");
  const std::string copy = TestPath() + ".copy";
  auto log = OpenSqliteJobLog(TestPath());
  ASSERT_TRUE(log.ok()) << log.status();
  LogBatch batch{{Event("a", "1")}, {}}, refused{{Event("refused", "2")}, {}}, later{{Event("a", "3")}, {}};
  ASSERT_TRUE((*log)->Append(&batch).ok());
  const absl::Status failed = (*log)->Append(&refused);
  ASSERT_THAT(std::string(failed.message()), testing::HasSubstr("the disk is gone"));
  EXPECT_EQ((*log)->Append(&later), failed) << "the log must be opened again";
  EXPECT_THAT(std::string((*log)->BackUp(copy).message()), testing::HasSubstr("the disk is gone"));
  EXPECT_FALSE(RealFileSystem().Exists(copy));
  log->reset();
  log = OpenSqliteJobLog(TestPath());
  ASSERT_TRUE(log.ok()) << log.status();
  EXPECT_EQ(AllEvents(**log).size(), 1u);
  EXPECT_TRUE((*log)->BackUp(copy).ok());
}

TEST_F(SqliteJobLogTest, TheCauseOfAFileThatCannotBeOpenedIsNamed) {
  const absl::Status refused = OpenSqliteJobLog(JoinPath(folder_.path(), "missing/jobs.sqlite")).status();
  EXPECT_THAT(std::string(refused.message()), testing::HasSubstr("database file: No such file or directory; remove"));
}

// In the child processes, the size of files is limited. The first write beyond the limit kills the child, or fails as
// on a full disk.
TEST_F(SqliteJobLogTest, AMigrationThatIsKilledOrFailsAnywhereLosesNothing) {
  constexpr int kEvents = 60;
  {
    auto log = OpenSqliteJobLog(TestPath());
    ASSERT_TRUE(log.ok()) << log.status();
    LogBatch batch;
    for (int i = 0; i < kEvents; ++i) batch.events.push_back(Event("a", std::string(2000, 'x')));
    ASSERT_TRUE((*log)->Append(&batch).ok());
  }
  Execute("ALTER TABLE events DROP COLUMN checksum; ALTER TABLE metrics DROP COLUMN checksum; PRAGMA user_version=4");
  const std::string old = *RealFileSystem().Read(TestPath());
  const std::string kept = TestPath() + ".schema-4";
  const rlim_t step = AllCases() ? 4096 : 5 * 4096;
  int interrupted = 0;
  for (const bool is_killed : {true, false}) {
    for (rlim_t limit = 0; limit < 2 * old.size() + (64 << 10); limit += step) {
      SCOPED_TRACE(absl::StrCat(is_killed ? "killed" : "failed", " at ", limit));
      RemoveLog();
      std::filesystem::remove(kept);
      ASSERT_TRUE(RealFileSystem().WriteAtomically(TestPath(), old).ok());
      const int status = RunWithFileLimit(limit, is_killed, [&] { return OpenSqliteJobLog(TestPath()).ok(); });
      ASSERT_NE(status, -1);
      interrupted += status != 0;
      auto log = OpenSqliteJobLog(TestPath());
      ASSERT_TRUE(log.ok()) << log.status();
      EXPECT_EQ(AllEvents(**log).size(), static_cast<size_t>(kEvents));
      log->reset();
      std::filesystem::rename(kept, TestPath());  // The copy of the old log is complete.
      log = OpenSqliteJobLog(TestPath());
      ASSERT_TRUE(log.ok()) << log.status();
      EXPECT_EQ(AllEvents(**log).size(), static_cast<size_t>(kEvents));
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(interrupted, 8);
}

TEST_F(SqliteJobLogTest, ANewerLogIsRefused) {
  {
    sqlite3* db = nullptr;
    ASSERT_EQ(sqlite3_open(TestPath().c_str(), &db), SQLITE_OK);
    ASSERT_EQ(sqlite3_exec(db, "PRAGMA user_version=99", nullptr, nullptr, nullptr), SQLITE_OK);
    sqlite3_close(db);
  }
  EXPECT_TRUE(absl::IsFailedPrecondition(OpenSqliteJobLog(TestPath()).status()));
}

// An xlad that knows versions up to 5 would remove the batches in the data folder. It refuses a log of a later version.
TEST_F(SqliteJobLogTest, AnXladThatDoesNotKnowTheNamesOfBatchesRefusesTheLog) {
  constexpr int kOlder = 5;
  for (const bool is_new : {true, false}) {
    SCOPED_TRACE(is_new);
    RemoveLog();
    if (!is_new) {
      ASSERT_TRUE(OpenSqliteJobLog(TestPath()).ok());
      Execute(absl::StrCat("ALTER TABLE metrics DROP COLUMN checksum; PRAGMA user_version=", kOlder).c_str());
    }
    ASSERT_TRUE(OpenSqliteJobLog(TestPath()).ok());
    WithDatabase([&](sqlite3* db) {
      SqliteStatement read(db, "PRAGMA user_version");
      ASSERT_EQ(read.Step(), SQLITE_ROW);
      EXPECT_GT(read.Int(0), kOlder);
    });
  }
}

TEST_F(SqliteJobLogTest, SecondCoordinatorIsRefused) {
  auto log = OpenSqliteJobLog(TestPath());
  ASSERT_TRUE(log.ok());
  const auto second = OpenSqliteJobLog(TestPath());
  EXPECT_TRUE(absl::IsAlreadyExists(second.status())) << second.status();
}

TEST_F(SqliteJobLogTest, DamagedFileIsAnError) {
  ASSERT_TRUE(RealFileSystem().WriteAtomically(TestPath(), std::string(8192, 'x')).ok());
  EXPECT_TRUE(absl::IsDataLoss(OpenSqliteJobLog(TestPath()).status()));
}

std::vector<std::string> Texts(const auto& messages) {
  std::vector<std::string> texts;
  for (const auto& message : messages) texts.push_back(message.ShortDebugString());
  return texts;
}

// Expects that the reads of both logs return the same.
void ExpectSame(JobLog& one, JobLog& other, Random* random) {
  EXPECT_EQ(Texts(AllEvents(one)), Texts(AllEvents(other)));
  for (const char* name : {"a", "b", "c"}) {
    const JobId job(name);
    const int64_t after = random->Below(30), limit = random->Below(20), step = random->Below(12);
    EXPECT_EQ(Texts(*one.ReadEventsOf(job, after, limit)), Texts(*other.ReadEventsOf(job, after, limit)));
    EXPECT_EQ(Texts(*one.ReadMetrics(job, step, limit)), Texts(*other.ReadMetrics(job, step, limit)));
    for (const int64_t attempt : {0, 1, 2, 3, 4}) {
      const auto last = *one.LastMetrics(job, attempt), same = *other.LastMetrics(job, attempt);
      ASSERT_EQ(last.has_value(), same.has_value()) << name << ", attempt " << attempt;
      if (last.has_value()) EXPECT_EQ(last->ShortDebugString(), same->ShortDebugString()) << name << " " << attempt;
    }
  }
}

// Appends the same random events and metrics to both logs. Attempt 0 is that of metrics from before a migration.
void AppendToBoth(JobLog& one, JobLog& other, Random* random) {
  LogBatch batch;
  const auto job = [&] { return std::string(1, static_cast<char>('a' + random->Below(3))); };
  for (int64_t left = random->Below(3); left > 0; --left) {
    batch.events.push_back(Event(job(), absl::StrCat(random->Below(1000))));
  }
  for (int64_t left = random->Below(3); left > 0; --left) {
    LogBatch::Metrics& metrics = batch.metrics.emplace_back(LogBatch::Metrics{JobId(job()), {}});
    const int64_t first = random->Below(10), attempt = random->Below(4);
    for (int64_t step = first; step < first + 3; ++step) {
      StepMetrics& row = metrics.rows.emplace_back();
      row.set_step(step);
      row.set_attempt(attempt);
      row.set_step_ms(static_cast<double>(random->Below(1000)));
    }
  }
  LogBatch same = batch;
  ASSERT_TRUE(one.Append(&batch).ok());
  ASSERT_TRUE(other.Append(&same).ok());
  EXPECT_EQ(Texts(batch.events), Texts(same.events)) << "the numbers of the events";
}

// Tests of the coordinator run on a log in memory, so it must behave as the log on disk does.
TEST_F(SqliteJobLogTest, ALogInMemoryReturnsTheSame) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    const std::unique_ptr<Random> random = SeededRandom(seed);
    MemoryJobStore store;
    const std::unique_ptr<JobLog> memory = OpenMemoryJobLog(&store);
    auto disk = OpenSqliteJobLog(absl::StrCat(TestPath(), seed));
    ASSERT_TRUE(disk.ok()) << disk.status();
    for (int round = 0; round < 15; ++round) {
      AppendToBoth(**disk, *memory, random.get());
      if (random->Below(4) == 0) {
        LogCompaction compaction;
        if (random->Below(2) == 0) compaction.jobs.emplace_back("b");
        for (int64_t event = 1; event < 20; ++event) {
          if (random->Below(5) == 0) compaction.events.push_back(event);
        }
        ASSERT_TRUE((*disk)->Compact(compaction).ok());
        ASSERT_TRUE(memory->Compact(compaction).ok());
      }
      ExpectSame(**disk, *memory, random.get());
      if (HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace xlad::service
