// A prepared statement of SQLite. Used by one thread at a time.
#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <string>

namespace xlad::service {

// `db` must outlive the statement. If the statement cannot be prepared, Step returns SQLITE_ERROR.
class SqliteStatement {
 public:
  SqliteStatement(sqlite3* db, const char* sql) { sqlite3_prepare_v2(db, sql, -1, &statement_, nullptr); }
  ~SqliteStatement() { sqlite3_finalize(statement_); }
  SqliteStatement(const SqliteStatement&) = delete;
  SqliteStatement& operator=(const SqliteStatement&) = delete;

  bool is_prepared() const { return statement_ != nullptr; }
  // Parameters are numbered from 1, result columns from 0.
  void Bind(int parameter, int64_t value) { sqlite3_bind_int64(statement_, parameter, value); }
  void Bind(int parameter, const std::string& text) {
    sqlite3_bind_text(statement_, parameter, text.data(), static_cast<int>(text.size()), SQLITE_TRANSIENT);
  }
  void BindBlob(int parameter, const std::string& bytes) {
    sqlite3_bind_blob64(statement_, parameter, bytes.data(), bytes.size(), SQLITE_TRANSIENT);
  }
  int Step() { return statement_ == nullptr ? SQLITE_ERROR : sqlite3_step(statement_); }
  void Reset() { sqlite3_reset(statement_); }
  std::string Blob(int column) const {
    const char* data = static_cast<const char*>(sqlite3_column_blob(statement_, column));
    return std::string(data, sqlite3_column_bytes(statement_, column));
  }
  bool IsNull(int column) const { return sqlite3_column_type(statement_, column) == SQLITE_NULL; }
  int64_t Int(int column) const { return sqlite3_column_int64(statement_, column); }

 private:
  sqlite3_stmt* statement_ = nullptr;
};

}  // namespace xlad::service
