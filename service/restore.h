// Makes a data folder from a backup, while no coordinator uses either.
#pragma once

#include <string>

#include "base/status.h"

namespace xlad::service {

// The difference between the term of a restored coordinator and that of its backup: greater than the number of times
// that the coordinator that made the backup can have been started since.
inline constexpr int64_t kRestoredTermStep = 1'000'000;

// Copies the backup into `data_folder`, which must not exist or be empty, and begins a term that is higher than any
// that the coordinator that made the backup has had since. Returns that term. `unix_ns` is the time of its record.
absl::StatusOr<int64_t> RestoreBackup(const std::string& backup, const std::string& data_folder, int64_t unix_ns);

}  // namespace xlad::service
