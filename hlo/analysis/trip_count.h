// Trip counts: how many times a kWhile instruction runs its body.
#pragma once

#include <cstdint>
#include <optional>

#include "hlo/module.h"

namespace xlad::hlo {

// Cost models assume this trip count for a loop whose count is not known before it runs.
inline constexpr int64_t kAssumedTripCount = 8;

// Returns the trip count of a kWhile instruction, or nullopt if it cannot be proven. The loop must have an induction
// variable: an integer that is the loop's state or an element of its state tuple. The variable must start from a
// constant, the body must add a constant to it or subtract a constant from it, and the condition must compare it with a
// constant. The step and the bound may also be elements of the state tuple that start from a constant and that the body
// does not change. Example:
//
//   condition {                                          body {
//     state = (u8[], f32[4]) parameter(0)                  state = (u8[], f32[4]) parameter(0)
//     i = u8[] get-tuple-element(state), index=0           i = u8[] get-tuple-element(state), index=0
//     limit = u8[] constant(4)                             x = f32[4] get-tuple-element(state), index=1
//     ROOT less = pred[] compare(i, limit),                step = u8[] constant(255)
//       direction=LT }                                     next = u8[] add(i, step)
//                                                          ROOT result = (u8[], f32[4]) tuple(next, x) }
//
// The count is exact in the arithmetic of the variable's type, which wraps around. If i starts at 3, the loop above
// runs for i = 3, 2, 1, 0 and stops at i = 255, so its trip count is 4. Returns nullopt for a loop that never ends.
std::optional<int64_t> TripCount(const Instruction& loop);

// A loop whose trip count is known. In iteration k, from 0, the induction variable is start + k * step, if that does
// not overflow its type.
struct CountedLoop {
  int64_t element = 0;  // The tuple element that is the induction variable, or -1 if it is the loop's whole state.
  int64_t start = 0;
  int64_t step = 0;
  int64_t trips = 0;
};

// The induction variable and trip count of a kWhile instruction, or nullopt if TripCount is.
std::optional<CountedLoop> FindCountedLoop(const Instruction& loop);

// The trip count for cost models: TripCount, or kAssumedTripCount if that is not known.
int64_t TripCountOrAssumed(const Instruction& loop);

}  // namespace xlad::hlo
