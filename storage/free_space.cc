#include "storage/free_space.h"

#include "absl/strings/str_cat.h"

namespace xlad::storage {

absl::Status FreeSpace::Check(int64_t written) {
  if (reserve_bytes_ == 0 || written < next_check_) return absl::OkStatus();
  next_check_ = written + kCheckBytes;
  XLAD_ASSIGN_OR_RETURN(const int64_t free_bytes, files_.FreeBytes(folder_));
  if (free_bytes >= reserve_bytes_ + kCheckBytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("the coordinator's disk has ", free_bytes >> 20, " MiB left, expected ",
                   ((reserve_bytes_ + kCheckBytes - 1) >> 20) + 1, " MiB or more, of which ", reserve_bytes_ >> 20,
                   " MiB are reserved for the coordinator's log; free some space in ", folder_));
}

}  // namespace xlad::storage
