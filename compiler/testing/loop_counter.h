// Random counters of while loops: narrow and wide, signed and unsigned, up and down, wrapping around.
#pragma once

#include "compiler/testing/random_values.h"

namespace xlad::compiler {

// for (i = init; i COMPARED TO limit; i += step). All are the low bits of a value of the type.
struct LoopCounter {
  hlo::ElementType type = hlo::ElementType::kS32;
  uint64_t init = 0, limit = 0, step = 1;
  hlo::Comparison comparison = hlo::Comparison::kLt;
  bool subtracts = false;  // Whether i -= step.

  // How often the body runs, found by counting; -1 if more often than `most`.
  int64_t TripCount(int64_t most) const;
  // The condition on a value of the counter, and its next value.
  hlo::Instruction* Condition(RandomValues& random, hlo::Builder& builder, hlo::Instruction* counter) const;
  hlo::Instruction* Next(RandomValues& random, hlo::Builder& builder, hlo::Instruction* counter,
                         hlo::Instruction* step) const;
};

// A counter whose body runs at most `most` times.
LoopCounter RandomLoopCounter(RandomValues& random, int64_t most);

}  // namespace xlad::compiler
