#include <sqlite3.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <thread>

#include "absl/strings/match.h"
#include "base/file_system.h"
#include "base/hash.h"
#include "service/log/job_log.h"
#include "service/log/sqlite_statement.h"
#include "service/log/wal_check.h"

namespace xlad::service {
namespace {

// Version 1 has events and metrics. Version 2 adds an index of events by job, and the attempt of metrics. Version 3
// adds events about checkpoints that could not be stored, and version 4 events about the code that an attempt runs.
// Version 5 adds a checksum to each event. Version 6 has the same tables as version 5, but the batches in the data
// folder have names that an earlier xlad takes for temporary files (storage/batch_spool.h). It would remove them, so it
// must refuse the log. Version 7 adds a checksum to the metrics of each step. It is NULL in rows of an older
// version, because there can be too many of them to rewrite.
constexpr int kSchemaVersion = 7;

constexpr char kSchema[] = R"(
CREATE TABLE IF NOT EXISTS events (
  sequence INTEGER PRIMARY KEY AUTOINCREMENT,
  job_id   TEXT NOT NULL,
  unix_ns  INTEGER NOT NULL,
  event    BLOB NOT NULL,
  checksum INTEGER NOT NULL DEFAULT 0);
CREATE INDEX IF NOT EXISTS events_of_job ON events (job_id, sequence);
CREATE TABLE IF NOT EXISTS metrics (
  job_id  TEXT NOT NULL,
  step    INTEGER NOT NULL,
  metrics BLOB NOT NULL,
  attempt INTEGER NOT NULL DEFAULT 0,
  checksum INTEGER,
  PRIMARY KEY (job_id, step)) WITHOUT ROWID;
)";

// The maximum number of rows that one transaction of a compaction deletes.
constexpr int64_t kRowsPerTransaction = 2000;
// The number of pages, of 4 KiB each, that a backup copies before an append can continue.
constexpr int kPagesPerStep = 128;
// The copy is synced after every 4 MiB, because an append waits while the disk writes what was written before it.
constexpr int64_t kStepsPerSync = 8;

constexpr char kInsertEvent[] =
    "INSERT INTO events (sequence, job_id, unix_ns, event, checksum) VALUES (?, ?, ?, ?, ?)";
// A number is never used again, even after the events have been deleted.
constexpr char kLastSequence[] =
    "SELECT MAX(COALESCE((SELECT seq FROM sqlite_sequence WHERE name = 'events'), 0), "
    "COALESCE((SELECT MAX(sequence) FROM events), 0))";
constexpr char kInsertMetrics[] =
    "INSERT INTO metrics (job_id, step, metrics, attempt, checksum) VALUES (?, ?, ?, ?, ?) ON CONFLICT (job_id, step) "
    "DO UPDATE SET metrics = excluded.metrics, attempt = excluded.attempt, checksum = excluded.checksum "
    "WHERE excluded.attempt > attempt";

// The checksum of a row of the table of events.
int64_t ChecksumOf(int64_t sequence, const std::string& job_id, const std::string& event) {
  return static_cast<int64_t>(Hash64(event, Hash64(job_id, static_cast<uint64_t>(sequence))));
}

// The checksum of a row of the table of metrics.
int64_t ChecksumOfMetrics(int64_t step, int64_t attempt, const std::string& job_id, const std::string& metrics) {
  return ChecksumOf(step, absl::StrCat(attempt, " ", job_id), metrics);
}

// Returns what the operating system said about the latest error: ": Read-only file system". Empty if it said nothing.
std::string CauseText(sqlite3* db) {
  const int code = db == nullptr ? 0 : sqlite3_system_errno(db);
  const int error = sqlite3_errcode(db) & 0xff;
  const bool is_of_system = error == SQLITE_IOERR || error == SQLITE_CANTOPEN;
  return code == 0 || !is_of_system ? "" : absl::StrCat(": ", std::strerror(code));
}

class SqliteJobLog final : public JobLog {
 public:
  SqliteJobLog(sqlite3* db, std::string path) : db_(db), path_(std::move(path)) {}
  ~SqliteJobLog() override {
    insert_event_.reset();
    insert_metrics_.reset();
    sqlite3_close(db_);
  }

  absl::Status Setup() {
    // Until it has been checked, the write-ahead log stays as it is: otherwise SQLite would remove a damaged one when
    // the database is closed.
    sqlite3_db_config(db_, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);
    XLAD_RETURN_IF_ERROR(Execute("PRAGMA locking_mode=EXCLUSIVE"));
    XLAD_RETURN_IF_ERROR(Execute("PRAGMA journal_mode=WAL"));
    XLAD_RETURN_IF_ERROR(Execute("PRAGMA synchronous=FULL"));
    XLAD_RETURN_IF_ERROR(Execute("BEGIN IMMEDIATE"));  // Takes the lock that refuses a second coordinator.
    XLAD_RETURN_IF_ERROR(Execute("COMMIT"));
    XLAD_RETURN_IF_ERROR(CheckWriteAheadLog(db_));
    sqlite3_db_config(db_, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0, nullptr);
    // After a failed sync, the end of the write-ahead log can be read but may not be on disk, and another sync does
    // not write it again (Rebello et al., "Can Applications Recover from fsync Failures?", ATC 2020). Everything that
    // is read from now on must be durable. Therefore the write-ahead log is copied into the database, the database is
    // synced, and then the write-ahead log is truncated.
    XLAD_RETURN_IF_ERROR(Execute("PRAGMA wal_checkpoint(TRUNCATE)"));
    int64_t version = 0;
    {
      SqliteStatement read(db_, "PRAGMA user_version");
      if (read.Step() == SQLITE_ROW) version = read.Int(0);
    }
    if (version > kSchemaVersion) {
      return absl::FailedPreconditionError(absl::StrCat(path_, " has schema version ", version, ", expected at most ",
                                                        kSchemaVersion, ": it was written by a newer xlad"));
    }
    // Before the log is migrated, so that a damaged one is not changed.
    if (version > 0) XLAD_RETURN_IF_ERROR(CheckEvents());
    if (version > 0 && version < kSchemaVersion) XLAD_RETURN_IF_ERROR(KeepCopy(version));
    XLAD_RETURN_IF_ERROR(InTransaction([&] { return Migrate(version); }));
    SqliteStatement last(db_, kLastSequence);
    if (last.Step() != SQLITE_ROW) return Error("read");
    last_sequence_ = last.Int(0);
    insert_event_ = std::make_unique<SqliteStatement>(db_, kInsertEvent);
    insert_metrics_ = std::make_unique<SqliteStatement>(db_, kInsertMetrics);
    // Otherwise a table has another name or other columns, because the schema was damaged.
    return insert_event_->is_prepared() && insert_metrics_->is_prepared() ? absl::OkStatus() : Error("check");
  }

  absl::Status Append(LogBatch* batch) override {
    const std::lock_guard lock(mutex_);
    XLAD_RETURN_IF_ERROR(error_);
    error_ = InTransaction([&]() -> absl::Status {
      for (JobEvent& event : batch->events) {
        const std::string bytes = event.SerializeAsString();
        const int64_t sequence = ++last_sequence_;  // After an error, the log is reopened.
        insert_event_->Bind(1, sequence);
        insert_event_->Bind(2, event.job_id());
        insert_event_->Bind(3, event.unix_ns());
        insert_event_->BindBlob(4, bytes);
        insert_event_->Bind(5, ChecksumOf(sequence, event.job_id(), bytes));
        if (insert_event_->Step() != SQLITE_DONE) return StepError(insert_event_.get());
        event.set_sequence(sequence);
        insert_event_->Reset();
      }
      for (const LogBatch::Metrics& metrics : batch->metrics) {
        for (const StepMetrics& step : metrics.rows) {
          insert_metrics_->Bind(1, metrics.job.str());
          insert_metrics_->Bind(2, step.step());
          const std::string bytes = step.SerializeAsString();
          insert_metrics_->BindBlob(3, bytes);
          insert_metrics_->Bind(4, step.attempt());
          insert_metrics_->Bind(5, ChecksumOfMetrics(step.step(), step.attempt(), metrics.job.str(), bytes));
          if (insert_metrics_->Step() != SQLITE_DONE) return StepError(insert_metrics_.get());
          insert_metrics_->Reset();
        }
      }
      return absl::OkStatus();
    });
    return error_;
  }

  absl::Status ReadEvents(const std::function<absl::Status(const JobEvent&)>& visit) override {
    const std::lock_guard lock(mutex_);
    SqliteStatement read(db_, "SELECT sequence, event, job_id, checksum FROM events ORDER BY sequence");
    return VisitEvents(&read, visit);
  }

  absl::StatusOr<std::vector<JobEvent>> ReadEventsOf(const JobId& job, int64_t after_sequence,
                                                     int64_t limit) override {
    const std::lock_guard lock(mutex_);
    SqliteStatement read(db_,
                         "SELECT sequence, event, job_id, checksum FROM events WHERE job_id = ? AND sequence > ? "
                         "ORDER BY sequence LIMIT ?");
    read.Bind(1, job.str());
    read.Bind(2, after_sequence);
    read.Bind(3, limit);
    std::vector<JobEvent> events;
    XLAD_RETURN_IF_ERROR(VisitEvents(&read, [&](const JobEvent& event) {
      events.push_back(event);
      return absl::OkStatus();
    }));
    return events;
  }

  absl::StatusOr<std::vector<StepMetrics>> ReadMetrics(const JobId& job, int64_t from_step, int64_t limit) override {
    const std::lock_guard lock(mutex_);
    SqliteStatement read(db_, "SELECT metrics, step, attempt, checksum FROM metrics WHERE job_id = ? AND step >= ? "
                              "ORDER BY step LIMIT ?");
    read.Bind(1, job.str());
    read.Bind(2, from_step);
    read.Bind(3, limit);
    return ReadRows(&read, job);
  }

  absl::StatusOr<std::optional<StepMetrics>> LastMetrics(const JobId& job, int64_t attempt) override {
    const std::lock_guard lock(mutex_);
    SqliteStatement read(db_,
                         "SELECT metrics, step, attempt, checksum FROM metrics WHERE job_id = ?1 AND "
                         "(?2 = 0 OR attempt IN (0, ?2)) ORDER BY step DESC LIMIT 1");
    read.Bind(1, job.str());
    read.Bind(2, attempt);
    XLAD_ASSIGN_OR_RETURN(std::vector<StepMetrics> rows, ReadRows(&read, job));
    if (rows.empty()) return std::optional<StepMetrics>();
    return std::optional<StepMetrics>(std::move(rows[0]));
  }

  absl::Status Compact(const LogCompaction& compaction) override {
    for (const JobId& job : compaction.jobs) {
      XLAD_RETURN_IF_ERROR(DeleteRows(
          "DELETE FROM metrics WHERE job_id = ?1 AND step IN (SELECT step FROM metrics WHERE job_id = ?1 LIMIT ?2)",
          job));
      XLAD_RETURN_IF_ERROR(DeleteRows("DELETE FROM events WHERE sequence IN (SELECT sequence FROM events WHERE "
                                      "job_id = ?1 ORDER BY sequence DESC LIMIT ?2)",
                                      job));
    }
    for (int64_t from = 0; from < std::ssize(compaction.events); from += kRowsPerTransaction) {
      const int64_t to = std::min(std::ssize(compaction.events), from + kRowsPerTransaction);
      XLAD_RETURN_IF_ERROR(CompactionStep([&] {
        return InTransaction([&] {
          SqliteStatement event(db_, "DELETE FROM events WHERE sequence = ?");
          for (int64_t i = from; i < to; ++i) XLAD_RETURN_IF_ERROR(Delete(&event, compaction.events[i]));
          return absl::OkStatus();
        });
      }));
    }
    return CompactionStep([&] { return Execute("PRAGMA wal_checkpoint(TRUNCATE)"); });
  }

  absl::Status BackUp(const std::string& path) override { return CopyTo(path, /*pauses=*/true); }

 private:
  // Copies a few pages at a time. If it `pauses`, it does so as long as each copy takes, so that appends continue.
  // SQLite adds to the copy what this connection writes meanwhile.
  absl::Status CopyTo(const std::string& path, bool pauses) {
    if (RealFileSystem().Exists(path)) return absl::AlreadyExistsError(absl::StrCat("found ", path));
    sqlite3* copy = nullptr;
    absl::Status status = absl::OkStatus();
    if (sqlite3_open(path.c_str(), &copy) == SQLITE_OK) {
      // SyncFile syncs the copy, while appends do not wait for it.
      sqlite3_exec(copy, "PRAGMA synchronous=OFF", nullptr, nullptr, nullptr);
      status = CopyPages(copy, path, pauses);
    } else {
      status = absl::InternalError(absl::StrCat("cannot create ", path, ": ", sqlite3_errmsg(copy)));
    }
    sqlite3_close(copy);
    if (status.ok()) status = SyncFile(path);
    std::error_code ignored;
    // An incomplete copy is removed, so that it does not fill the disk and a retry can succeed.
    if (!status.ok()) std::filesystem::remove(path, ignored);
    return Annotate(status, "back up");
  }

  // Checksums of rows do not find rows that are missing because a page was damaged. The metrics are not checked: there
  // can be 86 million rows for each day of a job, and no job is lost with them.
  absl::Status CheckEvents() {
    SqliteStatement check(db_, "PRAGMA integrity_check(events)");
    if (check.Step() != SQLITE_ROW) return Error("check");
    const std::string found = check.Blob(0);
    SqliteStatement metrics(db_, "SELECT 1 FROM metrics LIMIT 0");  // Finds whether there is such a table.
    if (found == "ok") return metrics.Step() == SQLITE_DONE ? absl::OkStatus() : Error("check");
    // SQLite reports an error of the disk like damage.
    if (absl::StrContains(found, "error code=")) return absl::InternalError(absl::StrCat(path_, ": ", found));
    return absl::DataLossError(absl::StrCat(path_, " is damaged: ", found, "; restore the folder from a backup"));
  }

  // `row` has the metrics, the step, the attempt and the checksum.
  absl::Status CheckMetrics(const SqliteStatement& row, const std::string& job_id, const std::string& metrics) const {
    const bool is_same = row.Int(3) == ChecksumOfMetrics(row.Int(1), row.Int(2), job_id, metrics);
    if (is_same || row.IsNull(3)) return absl::OkStatus();
    return absl::DataLossError(absl::StrCat(path_, ": the metrics of step ", row.Int(1), " of job ", job_id,
                                            " are damaged: their checksum differs; jobs continue without them, and "
                                            "only a backup of the folder can have them"));
  }

  // Must run in a transaction, because a migration cannot be repeated.
  absl::Status Migrate(int64_t version) {
    if (version == 1) {
      XLAD_RETURN_IF_ERROR(Execute("ALTER TABLE metrics ADD COLUMN attempt INTEGER NOT NULL DEFAULT 0"));
    }
    if (version > 0 && version < 5) XLAD_RETURN_IF_ERROR(AddChecksums());
    if (version > 0 && version < 7) {
      XLAD_RETURN_IF_ERROR(Execute("ALTER TABLE metrics ADD COLUMN checksum INTEGER"));
    }
    // In a log of this version, a table that is missing is damage, so it must not be created.
    if (version < kSchemaVersion) XLAD_RETURN_IF_ERROR(Execute(kSchema));
    // Written in any case: until this has been synced, a crash can undo that the write-ahead log was truncated.
    return Execute(absl::StrCat("PRAGMA user_version=", kSchemaVersion).c_str());
  }

  absl::Status AddChecksums() {
    XLAD_RETURN_IF_ERROR(Execute("ALTER TABLE events ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0"));
    SqliteStatement read(db_, "SELECT sequence, event, job_id FROM events ORDER BY sequence");
    SqliteStatement write(db_, "UPDATE events SET checksum = ? WHERE sequence = ?");
    int code;
    while ((code = read.Step()) == SQLITE_ROW) {
      write.Bind(1, ChecksumOf(read.Int(0), read.Blob(2), read.Blob(1)));
      write.Bind(2, read.Int(0));
      if (write.Step() != SQLITE_DONE) return StepError(&write);
      write.Reset();
    }
    return code == SQLITE_DONE ? absl::OkStatus() : Error("migrate");
  }

  absl::Status KeepCopy(int64_t version) {
    const std::string kept = absl::StrCat(path_, ".schema-", version);
    std::error_code ignored;
    std::filesystem::remove(kept, ignored);  // The copy may exist because an earlier migration did not finish.
    return CopyTo(kept, /*pauses=*/false);
  }

  absl::Status CopyPages(sqlite3* copy, const std::string& path, bool pauses) {
    sqlite3_backup* backup = nullptr;
    {
      const std::lock_guard lock(mutex_);
      backup = sqlite3_backup_init(copy, "main", db_, "main");
    }
    absl::Status synced = absl::OkStatus();
    int64_t steps = 0;
    for (int code = backup == nullptr ? SQLITE_ERROR : SQLITE_OK; code == SQLITE_OK && synced.ok();) {
      const auto begin = std::chrono::steady_clock::now();
      {
        const std::lock_guard lock(mutex_);
        if (!error_.ok()) {
          sqlite3_backup_finish(backup);
          return error_;
        }
        code = sqlite3_backup_step(backup, kPagesPerStep);
      }
      if (code == SQLITE_OK && pauses) std::this_thread::sleep_for(std::chrono::steady_clock::now() - begin);
      if (++steps % kStepsPerSync == 0) synced = SyncFile(path);
    }
    const std::lock_guard lock(mutex_);
    const int code = sqlite3_backup_finish(backup);
    if (backup != nullptr && code == SQLITE_OK) return synced;
    const std::string text = absl::StrCat(path_, ": ", sqlite3_errmsg(copy));
    return sqlite3_errcode(copy) == SQLITE_FULL ? absl::ResourceExhaustedError(text) : absl::InternalError(text);
  }

  static absl::Status SyncFile(const std::string& path) {
    XLAD_ASSIGN_OR_RETURN(const auto file, RealFileSystem().Open(path, OpenMode::kRead));
    XLAD_RETURN_IF_ERROR(file->Sync());
    return RealFileSystem().SyncDirectory(FolderOfPath(path));
  }

  template <typename Work>
  absl::Status CompactionStep(const Work& work) {
    const std::lock_guard lock(mutex_);
    XLAD_RETURN_IF_ERROR(error_);
    error_ = work();
    return error_;
  }

  // `sql` deletes at most ?2 rows of the job ?1.
  absl::Status DeleteRows(const char* sql, const JobId& job) {
    bool more = true;
    while (more) {
      XLAD_RETURN_IF_ERROR(CompactionStep([&] {
        return InTransaction([&]() -> absl::Status {
          SqliteStatement rows(db_, sql);
          rows.Bind(1, job.str());
          rows.Bind(2, kRowsPerTransaction);
          if (rows.Step() != SQLITE_DONE) return StepError(&rows);
          more = sqlite3_changes(db_) == kRowsPerTransaction;
          return absl::OkStatus();
        });
      }));
    }
    return absl::OkStatus();
  }

  absl::Status Delete(SqliteStatement* statement, int64_t key) {
    statement->Bind(1, key);
    if (statement->Step() != SQLITE_DONE) return StepError(statement);
    statement->Reset();
    return absl::OkStatus();
  }

  absl::Status VisitEvents(SqliteStatement* read, const std::function<absl::Status(const JobEvent&)>& visit) {
    int code;
    while ((code = read->Step()) == SQLITE_ROW) {
      JobEvent event;
      const std::string bytes = read->Blob(1);
      const bool is_same = read->Int(3) == ChecksumOf(read->Int(0), read->Blob(2), bytes);
      if (!is_same || !event.ParseFromString(bytes) || event.event_case() == JobEvent::EVENT_NOT_SET) {
        return absl::DataLossError(absl::StrCat(path_, ": event ", read->Int(0), " is damaged: ",
                                                is_same ? "it cannot be read" : "its checksum differs",
                                                "; restore the folder from a backup"));
      }
      event.set_sequence(read->Int(0));
      XLAD_RETURN_IF_ERROR(visit(event));
    }
    return code == SQLITE_DONE ? absl::OkStatus() : Error("read");
  }

  absl::StatusOr<std::vector<StepMetrics>> ReadRows(SqliteStatement* read, const JobId& job) {
    std::vector<StepMetrics> metrics;
    int code;
    while ((code = read->Step()) == SQLITE_ROW) {
      StepMetrics step;
      const std::string bytes = read->Blob(0);
      XLAD_RETURN_IF_ERROR(CheckMetrics(*read, job.str(), bytes));
      if (!step.ParseFromString(bytes)) {
        return absl::DataLossError(absl::StrCat(path_, ": the metrics of step ", read->Int(1), " of job ", job.str(),
                                                " are damaged: they cannot be read; jobs continue without them, and "
                                                "only a backup of the folder can have them"));
      }
      metrics.push_back(std::move(step));
    }
    if (code != SQLITE_DONE) return Error("read");
    return metrics;
  }

  template <typename Work>
  absl::Status InTransaction(const Work& work) {
    XLAD_RETURN_IF_ERROR(Execute("BEGIN IMMEDIATE"));
    absl::Status status = work();
    if (status.ok()) status = Execute("COMMIT");
    if (!status.ok()) sqlite3_exec(db_, "ROLLBACK", nullptr, nullptr, nullptr);
    return status;
  }

  absl::Status Execute(const char* sql) {
    if (sqlite3_exec(db_, sql, nullptr, nullptr, nullptr) != SQLITE_OK) return Error(sql);
    return absl::OkStatus();
  }

  // Returns the error of a step. Resets the statement, because a failed step leaves it in use.
  absl::Status StepError(SqliteStatement* statement) {
    const absl::Status error = Error("write");
    statement->Reset();
    return error;
  }

  absl::Status Error(absl::string_view what) const {
    const int code = sqlite3_errcode(db_);
    const std::string text = absl::StrCat(path_, ": ", sqlite3_errmsg(db_), CauseText(db_), " (", what, ")");
    if (code == SQLITE_BUSY || code == SQLITE_LOCKED) {
      return absl::AlreadyExistsError(absl::StrCat(path_, " is in use by another coordinator; stop it, or give this "
                                                   "one another --data folder"));
    }
    if (code == SQLITE_FULL) return absl::ResourceExhaustedError(text);
    if (code == SQLITE_CORRUPT || code == SQLITE_NOTADB) {
      return absl::DataLossError(absl::StrCat(text, ": the file is damaged; restore it from a backup, or start with "
                                              "another --data folder"));
    }
    return absl::InternalError(text);
  }

  std::mutex mutex_;
  // The first error of an append or a compaction, after which the log must be reopened. The database stays locked until
  // its last user has ended, so a backup ends as well.
  absl::Status error_;
  sqlite3* db_;
  const std::string path_;
  int64_t last_sequence_ = 0;  // The number of the latest event.
  std::unique_ptr<SqliteStatement> insert_event_, insert_metrics_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<JobLog>> OpenSqliteJobLog(const std::string& path) {
  sqlite3* db = nullptr;
  if (sqlite3_open_v2(path.c_str(), &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nullptr) !=
      SQLITE_OK) {
    const std::string text = absl::StrCat("cannot open ", path, ": ", sqlite3_errmsg(db), CauseText(db),
                                          "; remove the cause, or give the coordinator another --data folder");
    sqlite3_close(db);
    return absl::InternalError(text);
  }
  auto log = std::make_unique<SqliteJobLog>(db, path);
  XLAD_RETURN_IF_ERROR(log->Setup());
  return log;
}

}  // namespace xlad::service
