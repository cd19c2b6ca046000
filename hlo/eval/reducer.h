// Reducer computations: a typed loop if the reducer is a single known operation, otherwise a call per element.
#pragma once

#include <optional>

#include "hlo/eval/numeric.h"
#include "hlo/eval/operation.h"

namespace xlad::hlo::eval {

// A loop that computes acc[i * acc_stride] = op(acc[i * acc_stride], x[i * x_stride]) for i = 0, ..., n - 1 in this
// order. Strides count elements.
using CombineLoop = void (*)(std::byte* acc, int64_t acc_stride, const std::byte* x, int64_t x_stride, int64_t n);

// The loop for a commutative opcode on elements of `type`, or null if there is none. The loop rounds after each step.
// `type` is a carrier type or a small float.
CombineLoop FindCombineLoop(Opcode opcode, ElementType type);

// The loop for a reducer that applies one commutative opcode to its two parameters.
struct FastReducer {
  CombineLoop combine;
  ElementType type;  // The type that accumulators and elements have in the loop; the caller converts.
};
// The loop for `reducer` on elements of `type`, or nullopt if `reducer` does not have this form. If `wide_sums` is
// true, sums and products of floats of at most 32 bits are computed in f64, and those of c64 in c128.
std::optional<FastReducer> MatchReducer(const Computation& reducer, ElementType type, bool wide_sums);

// A comparator of a sort or selection that only compares its first two parameters, in this order.
struct SimpleComparator {
  Comparison comparison;
  bool total_order;
};
// The comparison, or nullopt if the comparator does not have this form or does not compare real scalars.
std::optional<SimpleComparator> MatchComparator(const Computation& comparator);

// Element `i` as a scalar.
Value ScalarAt(const Value& value, int64_t i);
Value ScalarAt(const Array& array, int64_t i);
// Writes a scalar to element `i`, converted to the array's type.
void SetElement(Array* array, int64_t i, const Value& scalar);
// The results of a call as a list: the elements of a tuple, or the only array.
std::vector<Value> ResultList(Value result);
// The inverse of ResultList: the tuple of the values, or the only value if `tuple` is false.
Value PackResults(std::vector<Value> values, bool tuple);
Value PackResults(std::vector<Array> arrays, bool tuple);

// Zeros for the first `count` results of an instruction.
std::vector<Array> ResultArrays(const Operation& operation, int64_t count);

// Converts the elements as the instruction `convert` does. The result shares the bytes of `value` if `value` already
// has this type.
Value ConvertTo(const Value& value, ElementType type);

}  // namespace xlad::hlo::eval
