// The operands and results of LAPACK routines. On CPUs, JAX calls them by custom calls such as "lapack_sgetrf_ffi".
#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/status.h"
#include "tensor/shape.h"

namespace xlad::tensor {

// A routine and the signature of its calls. `signature` has one word per operand, then ">", then one word per result. A
// word has one letter per dimension, without the batch dimensions, or is "-" if the array has only these.
//   letters: equal letters mean equal sizes. After a word with m and n, "k" is min(m, n). After a word with n, "p" is
//            max(n - 1, 0).
//   suffix:  ":r" means the real type of a complex call, ":c" the complex type of a real call, and ":i" s32.
// Example: for m = 3, n = 4 and the batch dimension B, "mn > mn k:i -:i" has the operand f32[B,3,4] and the results
// f32[B,3,4], s32[B,3] and s32[B].
struct LapackRoutine {
  absl::string_view name;  // The name without the letter of the type: "getrf".
  absl::string_view signature;
  absl::string_view complex_signature;  // The signature for complex matrices if it differs, otherwise empty.
};

// All routines, in the order in which messages list them.
absl::Span<const LapackRoutine> LapackRoutines();

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
