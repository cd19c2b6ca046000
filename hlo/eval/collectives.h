// The results of a collective, computed when all devices of its group have reached it.
#pragma once

#include <vector>

#include "hlo/eval/groups.h"
#include "hlo/eval/operation.h"

namespace xlad::hlo::eval {

// A device that waits at a collective, with its operands for the collective.
struct Participant {
  int64_t device = 0;
  const Instruction* instruction = nullptr;
  std::vector<Value>* operands = nullptr;
  Caller* caller = nullptr;
};

// The result of each device of `group`, in the group's order. Reductions combine in that order. Errors: InvalidArgument
// if the operands do not fit the group, Unimplemented for a collective-permute with slice sizes, and errors of the
// reducer.
absl::StatusOr<std::vector<Value>> RunCollective(const std::vector<Participant>& group, const DeviceGrid& grid);

// The result of a collective-broadcast on a device that is not in any of its groups: zeros.
Value NonMemberResult(const Instruction& instruction);

// Whether the instructions of two devices are the same collective. If the devices run the same module, they must be the
// same instruction. Otherwise they must have equal opcodes, channels, source-target pairs and operand shapes.
bool SameCollective(const Instruction& a, const Instruction& b);

}  // namespace xlad::hlo::eval
