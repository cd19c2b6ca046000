// The values that the integer scalars of a counted loop have in each iteration, and the arrays of which each iteration
// reads or writes another element of the first dimension. Example: the loop below runs 8 times, so that `i` is 0 to 7
// in turn, `last` is 7 to 0, and both are each number below 8 once. VisitsAll(last, 8) is true.
//
//   i = s32[] get-tuple-element(state), index=0        // start 0, step 1
//   seven = s32[] constant(7)
//   last = s32[] subtract(seven, i)
//   one = f32[1,4] dynamic-slice(x, last, zero), dynamic_slice_sizes={1,4}      // x = f32[8,4]
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "compiler/analysis/hlo_names.h"
#include "hlo/analysis/trip_count.h"

namespace xlad::compiler {

// Whether the initial and the next state of a while are tuples, and all computations read the state only by
// get-tuple-elements, at most one of each element.
bool HasTupleForm(const Instruction& loop);

// The get-tuple-element with this index of the computation's parameter, or null.
Instruction* FindElement(const Computation& computation, int64_t index);

// Whether the body returns carried element `index` unchanged. The loop must have the tuple form.
bool IsInvariant(const Instruction& loop, int64_t index);

// For one loop in the tuple form. The instructions of its body must not be removed while this exists.
class LoopIndices {
 public:
  explicit LoopIndices(const Instruction& loop);

  // The trip count, or 0 if it is not known or larger than a limit.
  int64_t trips() const { return trips_; }

  // Whether the integer scalar `index` of the body is each of the numbers 0 .. size-1 in exactly one iteration.
  bool VisitsAll(const Instruction* index, int64_t size);
  // Whether two scalars of the body have equal values in every iteration. False if this is not known.
  bool AreEqual(const Instruction* a, const Instruction* b);

  // If the next value of carried element `element` is its current value with one element of the first dimension
  // replaced, a different one in every iteration and all in the whole loop: returns that dynamic-update-slice.
  // Otherwise returns null.
  Instruction* StackingUpdate(int64_t element);

 private:
  // One value for each iteration. Empty if the values are not known.
  using Values = std::vector<int64_t>;
  // `chain` is the number of instructions between `scalar` and the one that a caller asked for.
  const Values& ValuesOf(const Instruction* scalar, int chain = 0);
  Values Compute(const Instruction* scalar, int chain);

  const Instruction& loop_;
  std::optional<hlo::CountedLoop> counted_;
  int64_t trips_ = 0;
  int64_t computed_values_ = 0;
  absl::flat_hash_map<const Instruction*, Values> known_;
};

// Whether `slice` is a dynamic-slice of one element of the first dimension of its operand, or `update` is a
// dynamic-update-slice of one: of the other dimensions, all elements.
bool IsOneOfFirstDimension(const Instruction& slice_or_update);

}  // namespace xlad::compiler
