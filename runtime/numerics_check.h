// Finds the step of a program that makes the first NaN or infinity.
#pragma once

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "runtime/device.h"
#include "runtime/slice.h"
#include "tensor/not_finite.h"

namespace xlad::runtime {

struct CheckedSlice {
  Slice slice;
  tensor::ElementType type = tensor::ElementType::kF32;
};

// The check of one execution of one step. Infinities and NaNs may be intended: the mask of a softmax is minus infinity,
// and data may have NaNs in place of missing values, which a select removes. A step is therefore reported only if a
// result has a NaN and no operand has one, or if a result has an infinity and no operand has one.
class NumericsCheck {
 public:
  // `allocations` has the device address of each allocation of the executable. Both arguments must outlive the object.
  NumericsCheck(Stream* stream, absl::Span<std::byte* const> allocations)
      : stream_(*stream), allocations_(allocations) {}

  // Waits for the stream and reads the operands. Called before the step, which may overwrite them.
  absl::Status Before(const std::vector<CheckedSlice>& operands);
  // Waits for the step and reads its results. OutOfRange if the step has made a NaN or infinity.
  absl::Status After(const std::vector<CheckedSlice>& results);

 private:
  absl::StatusOr<tensor::NotFinite> Find(const CheckedSlice& array);

  Stream& stream_;
  absl::Span<std::byte* const> allocations_;
  bool operands_have_nan_ = false, operands_have_infinity_ = false;
  std::vector<std::byte> bytes_;
};

}  // namespace xlad::runtime
