// Finds the values of a counted loop's integer scalars in each iteration. Also finds the arrays that the loop reads or
// writes at a different index of the first dimension in each iteration. The loop below, for example, runs 8 times: `i`
// counts from 0 to 7, and `last` from 7 to 0. Each takes every value below 8 exactly once, so VisitsAll(last, 8) is
// true.
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

// Whether the initial and the next state of a while are tuple instructions, and all computations read the state only by
// get-tuple-elements, with at most one for each element.
bool HasTupleForm(const Instruction& loop);

// The get-tuple-element with this index of the computation's parameter, or null.
Instruction* FindElement(const Computation& computation, int64_t index);

// Whether the body returns carried element `index` unchanged. The loop must have the tuple form.
bool IsInvariant(const Instruction& loop, int64_t index);
// Whether a value of the body is a carried element that the body returns unchanged. The loop must have the tuple form.
bool IsInvariantElement(const Instruction& loop, const Instruction& value);

// For one loop in the tuple form. The instructions of its body must not be removed while this exists.
class LoopIndices {
 public:
  explicit LoopIndices(const Instruction& loop);

  // The trip count. 0 if it is unknown or larger than 65,536, or if no element of the state is the induction variable.
  int64_t trips() const { return trips_; }

  // Whether the integer scalar `index` of the body is each of the numbers 0 .. size-1 in exactly one iteration.
  bool VisitsAll(const Instruction* index, int64_t size);
  // Whether two scalars of the body have equal values in every iteration. False if this is not known.
  bool AreEqual(const Instruction* a, const Instruction* b);

  // Returns the dynamic-update-slice that computes the next value of carried element `element`. Returns null unless it
  // writes one index of the first dimension in each iteration, and the loop writes each index exactly once.
  Instruction* StackingUpdate(int64_t element);

 private:
  // One value for each iteration. Empty if the values are not known.
  using Values = std::vector<int64_t>;
  // `chain` is the length of the chain of users from `scalar` to the scalar for which the caller asked.
  const Values& ValuesOf(const Instruction* scalar, int chain = 0);
  Values Compute(const Instruction* scalar, int chain);

  const Instruction& loop_;
  std::optional<hlo::CountedLoop> counted_;
  int64_t trips_ = 0;
  int64_t computed_values_ = 0;
  absl::flat_hash_map<const Instruction*, Values> known_;
};

// Whether a dynamic-slice reads, or a dynamic-update-slice writes, one row of its operand: one index of the first
// dimension and all elements of the others.
bool AccessesOneRow(const Instruction& slice_or_update);

}  // namespace xlad::compiler
