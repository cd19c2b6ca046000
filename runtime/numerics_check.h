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

// The check of one execution of one step. Infinities may be intended (the mask of a softmax is minus infinity), so a
// step is the cause of an infinity only if none of its operands has one, and of a NaN if none of them has a NaN. A NaN
// in an operand comes from a parameter or a constant, because the check ends a program at the first NaN.
class NumericsCheck {
 public:
  // Both must outlive the object. `allocations` are device addresses by the executable's allocations.
  NumericsCheck(Stream* stream, absl::Span<std::byte* const> allocations)
      : stream_(*stream), allocations_(allocations) {}

  // Waits for the stream and reads the operands; called before the step, which may write over them. OutOfRange for a
  // NaN.
  absl::Status Before(const std::vector<CheckedSlice>& operands);
  // Waits for the step and reads its results. OutOfRange if the step has made a NaN or infinity.
  absl::Status After(const std::vector<CheckedSlice>& results);

 private:
  absl::StatusOr<tensor::NotFinite> Find(const CheckedSlice& array);

  Stream& stream_;
  absl::Span<std::byte* const> allocations_;
  bool operands_have_infinity_ = false;
  std::vector<std::byte> bytes_;
};

}  // namespace xlad::runtime
