// Logs to stderr, one line per event. This header hides spdlog, which only log.cc includes.
//
// Lines are text on a terminal and JSON objects otherwise; XLAD_LOG_FORMAT=text|json overrides this. XLAD_LOG_LEVEL is
// the lowest level that is logged (debug, info, warn or error), or "off" to log nothing; the default is info.
// Thread-safe, except that no other thread may log during SetLogsText and LogToFile.
#pragma once

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace xlad {

enum class LogLevel { kDebug, kInfo, kWarn, kError };

// A key and its value, for example {"job", job_id} or {"port", absl::StrCat(port)}.
using LogField = std::pair<absl::string_view, std::string>;

void Log(LogLevel level, absl::string_view message, std::initializer_list<LogField> fields = {});

inline void LogInfo(absl::string_view message, std::initializer_list<LogField> fields = {}) {
  Log(LogLevel::kInfo, message, fields);
}
inline void LogWarn(absl::string_view message, std::initializer_list<LogField> fields = {}) {
  Log(LogLevel::kWarn, message, fields);
}
inline void LogError(absl::string_view message, std::initializer_list<LogField> fields = {}) {
  Log(LogLevel::kError, message, fields);
}

void SetLogLevel(LogLevel level);

// Adds these fields to every later line of this process. A field of the line itself with the same key takes precedence.
// Replaces the fields of an earlier call.
void SetLogContext(std::vector<std::pair<std::string, std::string>> fields);
// Returns whether lines are text. SetLogsText overrides the choice made from the terminal and the environment. It is
// for a child that logs through its parent.
bool LogsText();
void SetLogsText(bool text);

// Appends later lines to this file instead of writing them to stderr. Returns false if the file cannot be opened.
bool LogToFile(const std::string& path);

}  // namespace xlad
