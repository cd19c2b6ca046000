// Combining elements as a reducer computation says: a typed loop where it is one known operation, a call otherwise.
#pragma once

#include <optional>

#include "hlo/eval/numeric.h"
#include "hlo/eval/operation.h"

namespace xlad::hlo::eval {

// acc[i * acc_stride] = op(acc[i * acc_stride], x[i * x_stride]) for i in [0, n), in this order; strides in elements.
using CombineRun = void (*)(std::byte* acc, int64_t acc_stride, const std::byte* x, int64_t x_stride, int64_t n);

// The loop for a commutative opcode on elements of `type`, rounding after every step; nullptr where there is none.
// Sub-byte integers must come in their carrier.
CombineRun FindCombine(Opcode opcode, ElementType type);

// The loop and its type where `reducer` just applies one commutative opcode. `wide_sums`: sums and products of
// floats at most 32 bits wide run in double, those of c64 in c128, and are rounded once.
struct FastReducer {
  CombineRun combine;
  ElementType type;  // What accumulators and elements must be converted to.
};
std::optional<FastReducer> RecogniseReducer(const Computation& reducer, ElementType type, bool wide_sums);

// compare(x, y) of the parameters 0 and 1 and nothing else: a sort's or selection's comparator.
struct SimpleComparator {
  Comparison comparison;
  bool total_order;
};
std::optional<SimpleComparator> RecogniseComparator(const Computation& comparator);

// Element `i` as a scalar.
Value ScalarAt(const Value& value, int64_t i);
// Writes a scalar to element `i`.
void SetElement(Array* array, int64_t i, const Value& scalar);
// A call's results: the elements of a tuple, or the one array.
std::vector<Value> ResultList(Value result);
// One result where `values` has one element and `tuple` is false, a tuple otherwise.
Value PackResults(std::vector<Value> values, bool tuple);

// Elements converted with the rules of `convert`.
Value ConvertTo(const Value& value, ElementType type);

}  // namespace xlad::hlo::eval
