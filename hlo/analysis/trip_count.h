// Trip counts: how many times a kWhile instruction runs its body.
#pragma once

#include <cstdint>
#include <optional>

#include "hlo/module.h"

namespace xlad::hlo {

// Cost models assume this trip count for a loop whose count is not known before it runs.
inline constexpr int64_t kAssumedTripCount = 8;

// Returns the trip count of a kWhile instruction, or nullopt if it cannot be proven. The loop must have an induction
// variable: an integer, alone or an element of the tuple that the loop carries, that starts from a constant, to which
// the body adds (or from which it subtracts) a constant, and that the condition compares with a constant. A constant
// may also be an element of the tuple that starts from a constant and that the body leaves unchanged. Example:
//
//   condition {                                          body {
//     state = (u8[], f32[4]) parameter(0)                  state = (u8[], f32[4]) parameter(0)
//     i = u8[] get-tuple-element(state), index=0           i = u8[] get-tuple-element(state), index=0
//     limit = u8[] constant(4)                             x = f32[4] get-tuple-element(state), index=1
//     ROOT less = pred[] compare(i, limit),                step = u8[] constant(255)
//       direction=LT }                                     next = u8[] add(i, step)
//                                                          ROOT result = (u8[], f32[4]) tuple(next, x) }
//
// The count is exact in the arithmetic of the variable's type, which wraps around: from i = 3 this loop runs for
// 3, 2, 1, 0 and stops at 255, so its trip count is 4. Returns nullopt for a loop that never ends.
std::optional<int64_t> TripCount(const Instruction& loop);

// The trip count for cost models: TripCount, or kAssumedTripCount if that is not known.
int64_t TripCountOrAssumed(const Instruction& loop);

}  // namespace xlad::hlo
