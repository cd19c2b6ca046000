#include "cli/wrong_usage.h"

namespace xlad::cli {
namespace {

constexpr char kUsagePayload[] = "xlad/usage";

}  // namespace

absl::Status WrongUsage(absl::Status status) {
  status.SetPayload(kUsagePayload, absl::Cord());  // Has no effect on a status that is OK.
  return status;
}

bool IsWrongUsage(const absl::Status& status) { return status.GetPayload(kUsagePayload).has_value(); }

}  // namespace xlad::cli
