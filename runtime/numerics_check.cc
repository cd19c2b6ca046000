#include "runtime/numerics_check.h"

#include "absl/strings/str_cat.h"

namespace xlad::runtime {
namespace {

absl::Status Found(absl::string_view value, int result, int64_t element, absl::string_view expected) {
  return absl::OutOfRangeError(absl::StrCat("found ", value, " in floating-point result ", result, ", element ",
                                            element, ", expected ", expected));
}

}  // namespace

absl::StatusOr<tensor::NotFinite> NumericsCheck::Find(const CheckedSlice& array) {
  const std::byte* from = allocations_[array.slice.allocation] + array.slice.offset;
  bytes_.resize(array.slice.bytes);
  XLAD_RETURN_IF_ERROR(stream_.CopyToHost(absl::MakeSpan(bytes_), from));
  XLAD_RETURN_IF_ERROR(stream_.Synchronize());
  return tensor::FindNotFinite(array.type, bytes_);
}

absl::Status NumericsCheck::Before(const std::vector<CheckedSlice>& operands) {
  for (const CheckedSlice& operand : operands) {
    XLAD_ASSIGN_OR_RETURN(const tensor::NotFinite found, Find(operand));
    operands_have_nan_ = operands_have_nan_ || found.first_nan >= 0;
    operands_have_infinity_ = operands_have_infinity_ || found.first_infinity >= 0;
  }
  return absl::OkStatus();
}

absl::Status NumericsCheck::After(const std::vector<CheckedSlice>& results) {
  for (int i = 0; i < std::ssize(results); ++i) {
    XLAD_ASSIGN_OR_RETURN(const tensor::NotFinite found, Find(results[i]));
    if (found.first_nan >= 0 && !operands_have_nan_) {
      return Found("NaN", i, found.first_nan,
                   operands_have_infinity_ ? "a number; an operand has an infinity, none has a NaN"
                                           : "a number; the operands are finite");
    }
    if (found.first_infinity >= 0 && !operands_have_infinity_) {
      return Found("an infinity", i, found.first_infinity, "finite numbers; no operand has an infinity");
    }
  }
  return absl::OkStatus();
}

}  // namespace xlad::runtime
