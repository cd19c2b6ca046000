// Random counters of while loops: of narrow and wide types, signed and unsigned, counting up and down, and wrapping
// around.
#pragma once

#include "compiler/testing/random_values.h"

namespace xlad::compiler {

// The counter of for (i = init; i COMPARED TO limit; i += step). `init`, `limit` and `step` are the bits of values of
// `type`.
struct LoopCounter {
  hlo::ElementType type = hlo::ElementType::kS32;
  uint64_t init = 0, limit = 0, step = 1;
  hlo::Comparison comparison = hlo::Comparison::kLt;
  bool subtracts = false;  // Whether the step is i -= step.

  // The number of iterations, found by counting, or -1 if it is more than `most`.
  int64_t TripCount(int64_t most) const;
  // Emit the loop's condition on a value of the counter, and the next value of the counter.
  hlo::Instruction* Condition(RandomValues& random, hlo::Builder& builder, hlo::Instruction* counter) const;
  hlo::Instruction* Next(RandomValues& random, hlo::Builder& builder, hlo::Instruction* counter,
                         hlo::Instruction* step) const;
};

// A counter of a loop with at most `most` iterations. `most` must be at least 12.
LoopCounter RandomLoopCounter(RandomValues& random, int64_t most);

}  // namespace xlad::compiler
