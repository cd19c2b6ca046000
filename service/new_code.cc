#include "service/new_code.h"

#include "absl/strings/str_cat.h"
#include "proto/only_code.h"

namespace xlad::service {

absl::Status CheckReplaces(const Executable& quick, const Executable& optimized) {
  if (optimized.quick()) {
    return absl::InvalidArgumentError(absl::StrCat("executable '", optimized.name(),
                                                   "': found quickly compiled code, expected optimized code"));
  }
  return CheckOnlyCodeDiffers(quick, optimized);
}

}  // namespace xlad::service
