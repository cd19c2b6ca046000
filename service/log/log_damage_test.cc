// Flipped bits in the files of the job log: the events that are read are those that were written, or the log is
// refused. The metrics that are read were written, but some can be missing. XLAD_LOG_FLIPS is the number of flips
// in each file (default 60, or 300 with XLAD_ALL_CASES), and XLAD_LOG_SEED the seed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <algorithm>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/file_system.h"
#include "base/random.h"
#include "base/testing/case_count.h"
#include "base/testing/test_folder.h"
#include "service/log/job_log.h"

namespace xlad::service {
namespace {

constexpr int kBatches = 12;
constexpr size_t kWalHeaderBytes = 32;
constexpr size_t kPageBytes = 4096;
const std::vector<std::string> kLogJobs = {"job-1", "job-2", "job-3"};

// Returns the batch with this number: an event of each job, one of which fills several pages, and steps of one job.
LogBatch BatchOf(int number) {
  LogBatch batch;
  for (const std::string& job : kLogJobs) {
    JobEvent& event = batch.events.emplace_back();
    event.set_job_id(job);
    event.mutable_submitted()->set_client_key(absl::StrCat(number));
    if (job == kLogJobs[number % 3]) event.mutable_submitted()->mutable_spec()->set_name(std::string(6000, 'n'));
  }
  std::vector<StepMetrics> rows(20);
  for (int i = 0; i < 20; ++i) {
    rows[i].set_step(20 * (number / 3) + i);
    rows[i].set_attempt(1);
    rows[i].add_values(1.0F / static_cast<float>(i + number + 1));
  }
  batch.metrics = {{JobId(kLogJobs[number % 3]), std::move(rows)}};
  return batch;
}

std::vector<std::string> TextsOf(const auto& messages) {
  std::vector<std::string> texts;
  for (const auto& message : messages) texts.push_back(message.ShortDebugString());
  return texts;
}

// Everything that can be read from a log, as text.
struct Contents {
  std::vector<std::string> events;
  std::vector<std::string> events_of_jobs;  // As ReadEventsOf returns them, for each job of kLogJobs.
  std::vector<absl::StatusOr<std::vector<std::string>>> metrics;  // For each job of kLogJobs.
};

// Opens the log and reads it. Fails if an event cannot be read.
absl::StatusOr<Contents> ReadAll(const std::string& path) {
  XLAD_ASSIGN_OR_RETURN(const auto log, OpenSqliteJobLog(path));
  Contents all;
  XLAD_RETURN_IF_ERROR(log->ReadEvents([&](const JobEvent& event) {
    all.events.push_back(event.ShortDebugString());
    return absl::OkStatus();
  }));
  for (const std::string& job : kLogJobs) {
    XLAD_ASSIGN_OR_RETURN(const std::vector<JobEvent> of_job, log->ReadEventsOf(JobId(job), 0, 1000));
    for (const std::string& text : TextsOf(of_job)) all.events_of_jobs.push_back(text);
    const auto rows = log->ReadMetrics(JobId(job), 0, 1000);
    all.metrics.emplace_back();
    if (rows.ok()) all.metrics.back() = TextsOf(*rows);
    if (!rows.ok()) all.metrics.back() = rows.status();
  }
  return all;
}

// A log of kBatches transactions. The tests write its files with changes.
class LogDamage : public testing::Test {
 protected:
  LogDamage() {
    auto log = OpenSqliteJobLog(path_);
    XLAD_CHECK(log.ok()) << log.status();
    for (int number = 0; number < kBatches; ++number) {
      if (number == kBatches - 1) before_last_bytes_ = std::filesystem::file_size(wal_path_);
      LogBatch batch = BatchOf(number);
      XLAD_CHECK((*log)->Append(&batch).ok());
    }
    database_ = *RealFileSystem().Read(path_);
    wal_ = *RealFileSystem().Read(wal_path_);  // As a killed process leaves it.
    log->reset();
    whole_ = *ReadAll(path_);
    for (const auto& metrics : whole_.metrics) XLAD_CHECK(metrics->size() == 20 * kBatches / kLogJobs.size());
    merged_ = *RealFileSystem().Read(path_);
  }
  // Replaces the files of the log. An empty write-ahead log is removed.
  void Write(const std::string& database, const std::string& wal) const {
    for (const char* suffix : {"-shm", "-wal"}) std::filesystem::remove(path_ + suffix);
    XLAD_CHECK(RealFileSystem().WriteAtomically(path_, database).ok());
    XLAD_CHECK(wal.empty() || RealFileSystem().WriteAtomically(wal_path_, wal).ok());
  }
  // Expects the events that were written. For the metrics, expects DataLoss or a part of what was written. Returns
  // whether anything is missing.
  bool ExpectNothingElse(const Contents& read) const {
    EXPECT_EQ(read.events, whole_.events);
    EXPECT_EQ(read.events_of_jobs, whole_.events_of_jobs);
    bool is_missing = false;
    for (size_t job = 0; job < kLogJobs.size(); ++job) {
      const auto& metrics = read.metrics[job];
      if (metrics.ok()) EXPECT_THAT(*metrics, testing::IsSubsetOf(*whole_.metrics[job]));
      if (!metrics.ok()) EXPECT_TRUE(absl::IsDataLoss(metrics.status())) << metrics.status();
      is_missing = is_missing || !metrics.ok() || metrics->size() < whole_.metrics[job]->size();
    }
    return is_missing;
  }
  static std::string Flipped(std::string bytes, size_t bit) {
    bytes[bit / 8] ^= static_cast<char>(1 << bit % 8);
    return bytes;
  }

  const uint64_t flips_ = NumberFrom("XLAD_LOG_FLIPS", CaseCount(60, 300));
  const std::unique_ptr<Random> random_ = SeededRandom(NumberFrom("XLAD_LOG_SEED", 1));
  const TestFolder folder_;
  const std::string path_ = JoinPath(folder_.path(), "jobs.sqlite"), wal_path_ = path_ + "-wal";
  std::string database_, wal_;  // The files before the write-ahead log was copied into the database.
  std::string merged_;          // The database after that.
  Contents whole_;
  size_t before_last_bytes_ = 0;  // The size of the write-ahead log without the last transaction.
};

TEST_F(LogDamage, ABitOfTheWriteAheadLogIsFound) {
  for (uint64_t flip = 0; flip < flips_; ++flip) {
    const size_t bit = random_->Below(8 * wal_.size());
    Write(database_, Flipped(wal_, bit));
    const auto read = ReadAll(path_);
    EXPECT_TRUE(absl::IsDataLoss(read.status())) << "bit " << bit << ": " << read.status();
    EXPECT_THAT(std::string(read.status().message()), testing::HasSubstr("jobs.sqlite-wal is damaged"));
    if (HasFailure()) return;
  }
}

TEST_F(LogDamage, ABitOfAHeaderInTheWriteAheadLogIsFound) {
  constexpr size_t kFrameHeaderBytes = 24;
  for (size_t bit = 0; bit < 8 * (kWalHeaderBytes + kFrameHeaderBytes); bit += AllCases() ? 1 : 7) {
    Write(database_, Flipped(wal_, bit));
    const absl::Status refused = ReadAll(path_).status();
    EXPECT_TRUE(absl::IsDataLoss(refused)) << "bit " << bit;
    EXPECT_THAT(std::string(refused.message()), testing::HasSubstr("if the log is then refused, only a backup helps"));
  }
}

// A crash while the last transaction is written can leave any of its sectors as they were before.
TEST_F(LogDamage, SectorsThatAreMissingAreFoundExceptInTheLastTransaction) {
  constexpr size_t kSector = 512;
  ASSERT_LT(before_last_bytes_, wal_.size());
  int found = 0, read_without_last = 0;
  for (size_t at = kSector; at + kSector <= wal_.size(); at += AllCases() ? kSector : 13 * kSector) {
    std::string changed = wal_;
    changed.replace(at, kSector, kSector, '\0');
    if (changed == wal_) continue;
    Write(database_, changed);
    const auto read = ReadAll(path_);
    if (at >= before_last_bytes_) {
      ASSERT_TRUE(read.ok()) << at << ": " << read.status();
      EXPECT_EQ(read->events.size(), 3u * (kBatches - 1));
      ++read_without_last;
    } else if (at + kSector <= before_last_bytes_ / 2) {
      EXPECT_TRUE(absl::IsDataLoss(read.status())) << at << ": " << read.status();
      ++found;
    }
  }
  EXPECT_GT(found, 3);
  EXPECT_GT(read_without_last, 1);
}

TEST_F(LogDamage, AWriteAheadLogThatIsCutAsTheErrorSaysCanBeRead) {
  const size_t bit = 8 * (before_last_bytes_ / 2);
  Write(database_, Flipped(wal_, bit));
  const std::string message(ReadAll(path_).status().message());
  EXPECT_EQ(ReadAll(path_).status().message(), message) << "the write-ahead log is kept";
  const size_t at = message.find("truncate -s ");
  ASSERT_NE(at, std::string::npos) << message;
  std::filesystem::resize_file(wal_path_, std::stoll(message.substr(at + 12)));
  const auto read = ReadAll(path_);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_GT(read->events.size(), 0u);
  EXPECT_LT(read->events.size(), 3u * kBatches);
}

// If the transactions after the cut had already been copied into the database, the files no longer fit together.
TEST_F(LogDamage, AfterACutTheLogHasOnlyTheEarlierEventsOrIsRefused) {
  Write("", "");
  auto log = OpenSqliteJobLog(path_);
  ASSERT_TRUE(log.ok()) << log.status();
  const auto bytes = std::filesystem::file_size(path_);
  for (int number = 0; std::filesystem::file_size(path_) == bytes; ++number) {  // Until SQLite copies.
    LogBatch batch = BatchOf(number);
    ASSERT_TRUE((*log)->Append(&batch).ok());
  }
  const std::string database = *RealFileSystem().Read(path_), wal = *RealFileSystem().Read(wal_path_);
  log->reset();
  const std::vector<std::string> whole = ReadAll(path_)->events;
  for (uint64_t flip = 0; flip < flips_ / 4; ++flip) {
    const size_t bit = 8 * kWalHeaderBytes + random_->Below(8 * (wal.size() - kWalHeaderBytes));
    Write(database, Flipped(wal, bit));
    const std::string message(ReadAll(path_).status().message());
    const size_t at = message.find("truncate -s ");
    ASSERT_NE(at, std::string::npos) << message;
    std::filesystem::resize_file(wal_path_, std::stoll(message.substr(at + 12)));
    const auto read = ReadAll(path_);
    EXPECT_TRUE(read.ok() || absl::IsDataLoss(read.status())) << read.status();
    if (!read.ok()) continue;
    ASSERT_LE(read->events.size(), whole.size());
    EXPECT_TRUE(std::equal(read->events.begin(), read->events.end(), whole.begin())) << "bit " << bit;
  }
}

TEST_F(LogDamage, ABitOfTheDatabaseIsFoundOrDoesNotMatter) {
  uint64_t found = 0;
  for (uint64_t flip = 0; flip < 2 * flips_; ++flip) {
    const size_t bit = random_->Below(8 * merged_.size());
    Write(Flipped(merged_, bit), "");
    const auto read = ReadAll(path_);
    SCOPED_TRACE(absl::StrCat("bit ", bit % 8, " of byte ", bit / 8));
    found += !read.ok() || ExpectNothingElse(*read);
    if (HasFailure()) return;
  }
  EXPECT_GT(found, flips_ / 4);
}

// The bytes of a row are unique, but a page that was split can have an old copy of them.
TEST_F(LogDamage, ABitOfTheMetricsOfAStepHidesTheMetricsOfThisJobOnly) {
  for (int number = 0; number < kBatches; number += AllCases() ? 1 : 5) {
    const std::string row = BatchOf(number).metrics[0].rows[number].SerializeAsString();
    for (size_t bit = 0; bit < 8 * row.size(); ++bit) {
      SCOPED_TRACE(absl::StrCat("bit ", bit, " of batch ", number));
      Write(absl::StrReplaceAll(merged_, {{row, Flipped(row, bit)}}), "");
      const auto read = ReadAll(path_);
      ASSERT_TRUE(read.ok()) << read.status();
      ExpectNothingElse(*read);
      for (size_t job = 0; job < kLogJobs.size(); ++job) {
        EXPECT_EQ(read->metrics[job].ok(), job != static_cast<size_t>(number % 3)) << kLogJobs[job];
      }
      if (HasFailure()) return;
    }
  }
}

// The name of a table is a part of the text from which SQLite reads the schema.
TEST_F(LogDamage, ATableWhoseNameIsDamagedIsFound) {
  for (const std::string table : {"TABLE events ", "TABLE metrics "}) {
    const size_t at = merged_.find(table);
    ASSERT_NE(at, std::string::npos);
    Write(Flipped(merged_, 8 * (at + 6)), "");
    EXPECT_FALSE(ReadAll(path_).ok()) << table;
    EXPECT_FALSE(ReadAll(path_).ok()) << table << ", opened again";
  }
}

// The number of rows in a page of events is changed, or the table of metrics is renamed.
TEST_F(LogDamage, ALogOfAnOlderVersionIsCheckedBeforeItIsMigrated) {
  constexpr char kLeafOfEvents = 0x0D;
  Write(merged_, "");
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(path_.c_str(), &db), SQLITE_OK);
  const char* const sql = "ALTER TABLE metrics DROP COLUMN checksum; PRAGMA user_version=6";
  EXPECT_EQ(sqlite3_exec(db, sql, nullptr, nullptr, nullptr), SQLITE_OK) << sqlite3_errmsg(db);
  sqlite3_close(db);
  const std::string old = *RealFileSystem().Read(path_), kept = path_ + ".schema-6";
  size_t page = old.size() - kPageBytes;
  while (page > 0 && old[page] != kLeafOfEvents) page -= kPageBytes;
  const size_t name = old.find("TABLE metrics ");
  ASSERT_GT(page, 0u);
  ASSERT_NE(name, std::string::npos);
  for (const size_t at : {page + 4, name + 6}) {
    SCOPED_TRACE(at);
    const std::string damaged = Flipped(old, 8 * at);
    Write(damaged, "");
    EXPECT_FALSE(ReadAll(path_).ok());
    EXPECT_TRUE(*RealFileSystem().Read(path_) == damaged) << "it is not changed";
    EXPECT_FALSE(RealFileSystem().Exists(kept));
  }
  Write(old, "");
  EXPECT_TRUE(ReadAll(path_).ok());
  EXPECT_TRUE(RealFileSystem().Exists(kept));
}

// Each page begins with the number of its rows. If a bit of it is lost, SQLite reads fewer rows.
TEST_F(LogDamage, ARowThatIsMissingFromAPageIsFound) {
  int found = 0;
  for (size_t page = 1; page < merged_.size() / kPageBytes; page += AllCases() ? 1 : 3) {
    for (size_t bit = 0; bit < 16; ++bit) {
      Write(Flipped(merged_, 8 * (page * kPageBytes + 3) + bit), "");
      const auto read = ReadAll(path_);
      SCOPED_TRACE(absl::StrCat("bit ", bit, " of page ", page));
      found += !read.ok() || ExpectNothingElse(*read);
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(found, 16);
}

}  // namespace
}  // namespace xlad::service
