#include "runtime/numerics_check.h"

#include "absl/strings/str_cat.h"

namespace xlad::runtime {
namespace {

absl::Status Found(absl::string_view value, absl::string_view array, int number, int64_t element,
                   absl::string_view expected) {
  return absl::OutOfRangeError(absl::StrCat("found ", value, " in ", array, " ", number, ", element ", element,
                                            ", expected ", expected));
}

}  // namespace

absl::StatusOr<tensor::NotFinite> NumericsCheck::Find(const CheckedSlice& array) {
  const std::byte* from = allocations_[array.slice.allocation] + array.slice.offset;
  bytes_.resize(static_cast<size_t>(array.slice.bytes));
  XLAD_RETURN_IF_ERROR(stream_.CopyToHost(absl::MakeSpan(bytes_), from));
  XLAD_RETURN_IF_ERROR(stream_.Synchronize());
  return tensor::FindNotFinite(array.type, bytes_);
}

absl::Status NumericsCheck::Before(const std::vector<CheckedSlice>& operands) {
  for (int i = 0; i < std::ssize(operands); ++i) {
    XLAD_ASSIGN_OR_RETURN(const tensor::NotFinite found, Find(operands[i]));
    if (found.first_nan >= 0) {
      return Found("NaN", "floating-point operand", i, found.first_nan,
                   "a number; no step has made the NaN, so it comes from a parameter or a constant");
    }
    operands_have_infinity_ = operands_have_infinity_ || found.first_infinity >= 0;
  }
  return absl::OkStatus();
}

absl::Status NumericsCheck::After(const std::vector<CheckedSlice>& results) {
  for (int i = 0; i < std::ssize(results); ++i) {
    XLAD_ASSIGN_OR_RETURN(const tensor::NotFinite found, Find(results[i]));
    if (found.first_nan >= 0) {
      return Found("NaN", "floating-point result", i, found.first_nan,
                   operands_have_infinity_ ? "a number; an operand has an infinity, none has a NaN"
                                           : "a number; the operands are finite");
    }
    if (found.first_infinity >= 0 && !operands_have_infinity_) {
      return Found("an infinity", "floating-point result", i, found.first_infinity,
                   "finite numbers; the operands are finite");
    }
  }
  return absl::OkStatus();
}

}  // namespace xlad::runtime
