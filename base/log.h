// Logging: one line an event, to stderr. spdlog is behind this header and nowhere else.
//
// Human-readable on a terminal, one JSON object a line otherwise (or as XLAD_LOG_FORMAT=text|json says).
// Level from XLAD_LOG_LEVEL (debug, info, warn, error). Thread-safe.
#pragma once

#include <initializer_list>
#include <string>
#include "absl/strings/string_view.h"
#include <utility>

namespace xlad {

enum class LogLevel { kDebug, kInfo, kWarn, kError };

// A key and its value; numbers through absl::StrCat.
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

// From now on log to this file instead of stderr. False where the file cannot be opened.
bool LogToFile(const std::string& path);

}  // namespace xlad
