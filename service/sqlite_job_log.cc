#include <sqlite3.h>

#include "service/job_log.h"

namespace xlad::service {
namespace {

constexpr int kSchemaVersion = 1;

constexpr char kSchema[] = R"(
CREATE TABLE IF NOT EXISTS events (
  sequence INTEGER PRIMARY KEY AUTOINCREMENT,
  job_id   TEXT NOT NULL,
  unix_ns  INTEGER NOT NULL,
  event    BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS metrics (
  job_id  TEXT NOT NULL,
  step    INTEGER NOT NULL,
  metrics BLOB NOT NULL,
  PRIMARY KEY (job_id, step)) WITHOUT ROWID;
)";

// A prepared statement, reset after use.
class Statement {
 public:
  Statement(sqlite3* db, const char* sql) { sqlite3_prepare_v2(db, sql, -1, &statement_, nullptr); }
  ~Statement() { sqlite3_finalize(statement_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  void Bind(int column, int64_t value) { sqlite3_bind_int64(statement_, column, value); }
  void Bind(int column, const std::string& text) {
    sqlite3_bind_text(statement_, column, text.data(), text.size(), SQLITE_TRANSIENT);
  }
  void BindBlob(int column, const std::string& bytes) {
    sqlite3_bind_blob(statement_, column, bytes.data(), bytes.size(), SQLITE_TRANSIENT);
  }
  int Step() { return statement_ == nullptr ? SQLITE_ERROR : sqlite3_step(statement_); }
  void Reset() { sqlite3_reset(statement_); }
  std::string Blob(int column) const {
    const char* data = static_cast<const char*>(sqlite3_column_blob(statement_, column));
    return std::string(data, sqlite3_column_bytes(statement_, column));
  }
  int64_t Int(int column) const { return sqlite3_column_int64(statement_, column); }

 private:
  sqlite3_stmt* statement_ = nullptr;
};

class SqliteJobLog final : public JobLog {
 public:
  SqliteJobLog(sqlite3* db, std::string path) : db_(db), path_(std::move(path)) {}
  ~SqliteJobLog() override { sqlite3_close(db_); }

  absl::Status Setup() {
    XLAD_RETURN_IF_ERROR(Execute("PRAGMA locking_mode=EXCLUSIVE"));
    XLAD_RETURN_IF_ERROR(Execute("PRAGMA journal_mode=WAL"));
    XLAD_RETURN_IF_ERROR(Execute("PRAGMA synchronous=FULL"));
    XLAD_RETURN_IF_ERROR(Execute("BEGIN IMMEDIATE"));  // Takes the lock that refuses a second coordinator.
    XLAD_RETURN_IF_ERROR(Execute("COMMIT"));
    int64_t version = 0;
    {
      Statement read(db_, "PRAGMA user_version");
      if (read.Step() == SQLITE_ROW) version = read.Int(0);
    }
    if (version > kSchemaVersion) {
      return absl::FailedPreconditionError(absl::StrCat(path_, " has schema version ", version, ", expected at most ",
                                                        kSchemaVersion, ": it was written by a newer xlad"));
    }
    XLAD_RETURN_IF_ERROR(Execute(kSchema));
    return Execute(absl::StrCat("PRAGMA user_version=", kSchemaVersion).c_str());
  }

  absl::Status Append(std::vector<JobEvent>* events) override {
    return InTransaction([&]() -> absl::Status {
      Statement insert(db_, "INSERT INTO events (job_id, unix_ns, event) VALUES (?, ?, ?)");
      for (JobEvent& event : *events) {
        insert.Bind(1, event.job_id());
        insert.Bind(2, event.unix_ns());
        insert.BindBlob(3, event.SerializeAsString());
        if (insert.Step() != SQLITE_DONE) return Error("append");
        event.set_sequence(sqlite3_last_insert_rowid(db_));
        insert.Reset();
      }
      return absl::OkStatus();
    });
  }

  absl::StatusOr<std::vector<JobEvent>> ReadEvents() override {
    Statement read(db_, "SELECT sequence, event FROM events ORDER BY sequence");
    std::vector<JobEvent> events;
    int code;
    while ((code = read.Step()) == SQLITE_ROW) {
      JobEvent event;
      if (!event.ParseFromString(read.Blob(1))) {
        return absl::DataLossError(absl::StrCat(path_, ": event ", read.Int(0), " cannot be read"));
      }
      event.set_sequence(read.Int(0));
      events.push_back(std::move(event));
    }
    if (code != SQLITE_DONE) return Error("read");
    return events;
  }

  absl::Status AppendMetrics(const std::string& job_id, const std::vector<StepMetrics>& metrics) override {
    return InTransaction([&]() -> absl::Status {
      Statement insert(db_, "INSERT OR IGNORE INTO metrics (job_id, step, metrics) VALUES (?, ?, ?)");
      for (const StepMetrics& step : metrics) {
        insert.Bind(1, job_id);
        insert.Bind(2, step.step());
        insert.BindBlob(3, step.SerializeAsString());
        if (insert.Step() != SQLITE_DONE) return Error("append");
        insert.Reset();
      }
      return absl::OkStatus();
    });
  }

  absl::StatusOr<std::vector<StepMetrics>> ReadMetrics(const std::string& job_id, int64_t from_step,
                                                       int64_t limit) override {
    Statement read(db_, "SELECT metrics FROM metrics WHERE job_id = ? AND step >= ? ORDER BY step LIMIT ?");
    read.Bind(1, job_id);
    read.Bind(2, from_step);
    read.Bind(3, limit);
    return ReadRows(&read, job_id);
  }

  absl::StatusOr<std::optional<StepMetrics>> LastMetrics(const std::string& job_id) override {
    Statement read(db_, "SELECT metrics FROM metrics WHERE job_id = ? ORDER BY step DESC LIMIT 1");
    read.Bind(1, job_id);
    XLAD_ASSIGN_OR_RETURN(std::vector<StepMetrics> rows, ReadRows(&read, job_id));
    if (rows.empty()) return std::optional<StepMetrics>();
    return std::optional<StepMetrics>(std::move(rows[0]));
  }

 private:
  absl::StatusOr<std::vector<StepMetrics>> ReadRows(Statement* read, const std::string& job_id) {
    std::vector<StepMetrics> metrics;
    int code;
    while ((code = read->Step()) == SQLITE_ROW) {
      StepMetrics step;
      if (!step.ParseFromString(read->Blob(0))) {
        return absl::DataLossError(absl::StrCat(path_, ": metrics of job ", job_id, " cannot be read"));
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

  absl::Status Error(absl::string_view what) const {
    const int code = sqlite3_errcode(db_);
    const std::string text = absl::StrCat(path_, ": ", sqlite3_errmsg(db_), " (", what, ")");
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

  sqlite3* db_;
  const std::string path_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<JobLog>> OpenSqliteJobLog(const std::string& path) {
  sqlite3* db = nullptr;
  if (sqlite3_open_v2(path.c_str(), &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nullptr) !=
      SQLITE_OK) {
    const std::string text = absl::StrCat("cannot open ", path, ": ", sqlite3_errmsg(db));
    sqlite3_close(db);
    return absl::InternalError(text);
  }
  auto log = std::make_unique<SqliteJobLog>(db, path);
  XLAD_RETURN_IF_ERROR(log->Setup());
  return log;
}

}  // namespace xlad::service
