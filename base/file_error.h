// The mark of errors of local files that may end. Their code is Unavailable, like that of a coordinator that cannot be
// reached, but the exit code of `xlad` is different.
#pragma once

#include "absl/status/status.h"

namespace xlad {

// Marks an error of a file. Annotate keeps the mark. The code and the message, which are what another process receives,
// do not contain it.
absl::Status MarkFileError(absl::Status status);

bool IsFileError(const absl::Status& status);

}  // namespace xlad
