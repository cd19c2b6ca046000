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
// and data may have NaNs in place of missing values, which a select leaves out. A step is therefore the cause of a NaN
// or an infinity only if none of its operands has one.
class NumericsCheck {
 public:
  // Both must outlive the object. `allocations` are device addresses by the executable's allocations.
  NumericsCheck(Stream* stream, absl::Span<std::byte* const> allocations)
      : stream_(*stream), allocations_(allocations) {}

  // Waits for the stream and reads the operands; called before the step, which may write over them.
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
