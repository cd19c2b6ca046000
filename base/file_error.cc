#include "base/file_error.h"

namespace xlad {
namespace {

constexpr char kFilePayload[] = "xlad/file";

}  // namespace

absl::Status MarkFileError(absl::Status status) {
  status.SetPayload(kFilePayload, absl::Cord());  // Has no effect on a status that is OK.
  return status;
}

bool IsFileError(const absl::Status& status) { return status.GetPayload(kFilePayload).has_value(); }

}  // namespace xlad
