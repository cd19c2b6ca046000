// The operands and results of LAPACK routines. On CPUs, JAX calls them by custom calls such as "lapack_sgetrf_ffi".
#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/status.h"
#include "tensor/shape.h"

namespace xlad::tensor {

struct LapackCall {
  std::string routine;                   // "getrf"
  ElementType type = ElementType::kF32;  // f32, f64, c64 or c128.
  Dims batch;  // The leading dimensions, before those of one matrix. They are equal in all arrays.
};

// The routine and the type of a custom-call target, without `batch`. Nullopt if it is not a known LAPACK routine.
std::optional<LapackCall> ParseLapackTarget(absl::string_view target);

// Checks operands and results against the signature of the call's routine, and sets call->batch. InvalidArgument if
// their number is wrong, or if an array does not match; the message then names this array.
absl::Status CheckLapackShapes(absl::Span<const Shape> operands, absl::Span<const Shape> results, LapackCall* call);

// The option `name` of a configuration like "{uplo = 76 : ui8, left = true}", as a number: a character is its code, and
// true is 1. Returns `otherwise` if the configuration has no integer or boolean of that name.
int LapackOption(absl::string_view config, absl::string_view name, int otherwise);

}  // namespace xlad::tensor
