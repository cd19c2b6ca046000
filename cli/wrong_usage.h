// Errors of the text of the command line, for which the exit code is 2.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace xlad::cli {

// Marks an error of the text of the command line: Fail (cli/command.h) returns kUsage for it. Annotate removes the
// mark.
absl::Status WrongUsage(absl::Status status);
template <typename T>
absl::StatusOr<T> WrongUsage(absl::StatusOr<T> found) {
  if (found.ok()) return found;
  return WrongUsage(found.status());
}
bool IsWrongUsage(const absl::Status& status);

}  // namespace xlad::cli
