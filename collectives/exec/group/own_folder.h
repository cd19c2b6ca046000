// Folders that belong to the user of this process.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "base/status.h"

namespace xlad::collectives {

// Creates a folder, readable by this user only, if it does not exist. FailedPrecondition if the path is not a folder,
// if the folder belongs to another user, or if `is_private` is true and others can access it.
// Otherwise the errors are those of PathError. Messages end with `advice`, which says what to do.
absl::Status MakeOwnFolder(const std::string& path, bool is_private, absl::string_view advice);

// Returns the error of a system call on a path, which has just set errno: AlreadyExists, NotFound, PermissionDenied
// with the id of this user, or Unavailable for errors that may be temporary. `what` is the operation that failed.
absl::Status PathError(absl::string_view what, const std::string& path);

}  // namespace xlad::collectives
