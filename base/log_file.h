// Log files of bounded size to which several processes append, because the files are their standard error.
//
// A process that writes a log file alone uses LogToFile (base/log.h), which keeps the same parts.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace xlad {

inline constexpr int64_t kMaxLogBytes = 16 << 20;  // A file that has reached this size is rotated.
inline constexpr int kOldLogs = 3;                  // How many older parts are kept.

// The name of an older part of a log; part 1 is the latest: "/d/xlad.1.log" for "/d/xlad.log". spdlog uses these names.
std::string OldLogPath(const std::string& path, int part);

// If the file has at least `max_bytes`, moves its contents to part 1, and older parts one further. The contents are
// copied, and then the file is emptied, because its writers keep it open. They must have opened it for appending. Lines
// that are written in the microseconds between the end of the copy and the emptying are lost. If the copy cannot be
// written, returns an error, and the file is unchanged.
absl::Status RotateAppended(const std::string& path, int64_t max_bytes = kMaxLogBytes);

// The file to which the standard error of this process is appended. Empty if it is not a file that is open for
// appending.
std::string AppendedStderr();

}  // namespace xlad
