// Makes a data folder from a backup. Coordinators must not use the data folder or the backup meanwhile.
#pragma once

#include <string>

#include "base/status.h"

namespace xlad::service {

// The difference between the term of a restored coordinator and the term in its backup. It exceeds the number of terms
// that the original coordinator can have begun since the backup.
inline constexpr int64_t kRestoredTermStep = 1'000'000;

// Copies the backup into `data_folder`, which must be empty or missing, and begins a term that is higher than any term
// of the original coordinator. Returns the new term. `unix_ns` is the time of its record. NotFound if `backup` has
// no job log, InvalidArgument if `data_folder` lies in it, AlreadyExists if `data_folder` has files.
absl::StatusOr<int64_t> RestoreBackup(const std::string& backup, const std::string& data_folder, int64_t unix_ns);

}  // namespace xlad::service
