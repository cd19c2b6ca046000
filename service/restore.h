// Makes a data folder from a backup. Coordinators must not use the data folder or the backup meanwhile.
#pragma once

#include <string>

#include "base/status.h"

namespace xlad::service {

// The name of the job log in a backup or data folder that is not complete yet. At the end it is renamed to jobs.sqlite,
// so a folder whose writer was killed has only this name.
inline constexpr char kPartialLog[] = "jobs.sqlite.partial";

// FailedPrecondition if the folder is a backup or data folder that is not complete.
absl::Status CheckComplete(const std::string& folder);

// DataLoss if the folder has blobs, but its log is missing or empty. SQLite would create a new log, and remove the
// write-ahead log of an empty one. If it cannot be found out whether they exist, for example because a folder may not
// be read, the result is that error.
absl::Status CheckLogExists(const std::string& data_folder);

// Makes the files in the folder durable and gives the log, which has the name kPartialLog, its final name.
absl::Status CompleteFolder(const std::string& folder);

// The least difference between the term of a restored coordinator and the term in its backup. It exceeds the number of
// terms that the original coordinator can have begun since the backup.
inline constexpr int64_t kRestoredTermStep = 1'000'000;

// Copies the backup into `data_folder`, which must be empty or missing, and begins a term that is higher than any term
// of the original coordinator. `unix_ns` is the present time. The term is also higher than any term of a coordinator
// that was restored from this backup before, unless this machine's clock is behind the clock of that machine. The
// generations of attempts are higher, too. Returns the new term. If an earlier call failed or was killed, what it left
// in `data_folder` is removed first. NotFound if `backup` has no job log, FailedPrecondition if it is not complete,
// InvalidArgument if `data_folder` lies in it, AlreadyExists if `data_folder` has other files.
absl::StatusOr<int64_t> RestoreBackup(const std::string& backup, const std::string& data_folder, int64_t unix_ns);

}  // namespace xlad::service
