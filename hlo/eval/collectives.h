// What a collective computes, once all devices of a group have come to it.
#pragma once

#include <vector>

#include "hlo/eval/groups.h"
#include "hlo/eval/operation.h"

namespace xlad::hlo::eval {

// A device at a collective.
struct Arrival {
  int64_t device = 0;
  const Instruction* instruction = nullptr;
  std::vector<Value>* operands = nullptr;
  Caller* caller = nullptr;
};

// The results for `group` (in the group's order), one each. Reductions go in that order.
absl::StatusOr<std::vector<Value>> Exchange(const std::vector<Arrival>& group, const DeviceGrid& grid);

// The result on a device that a collective-broadcast's groups leave out: zeros.
Value LeftOut(const Instruction& instruction);

// Whether two devices' instructions are the same collective: the same instruction, or, in different modules, the
// same kind on the same channel with the same operand shapes.
bool SameCollective(const Instruction& a, const Instruction& b);

}  // namespace xlad::hlo::eval
