// The meaning of a program: slow, readable, obviously correct. Everything else is tested against it.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "hlo/literal.h"
#include "hlo/module.h"

namespace xlad::hlo {

// Runs the entry of modules[d] on device d, all devices in lockstep in one thread, exchanging data at collectives.
// modules.size() == inputs.size() == devices; modules may repeat one pointer (SPMD). Device d is
// replica d / num_partitions, partition d % num_partitions of modules[d].
//
// inputs[d][p] is parameter p; the results are the roots. Errors: InvalidArgument where inputs do not fit,
// Unimplemented for an opcode without meaning here, FailedPrecondition where collectives cannot meet, in words:
// "devices 0-2 wait at all-reduce.7, 3 has returned".
absl::StatusOr<std::vector<Literal>> Evaluate(const std::vector<const Module*>& modules,
                                              const std::vector<std::vector<Literal>>& inputs);

// One device.
absl::StatusOr<Literal> Evaluate(const Module& module, const std::vector<Literal>& inputs);

// One instruction on given operand values, no control flow or collectives; for constant folding and op tests.
absl::StatusOr<Literal> EvaluateInstruction(const Instruction& instruction, const std::vector<const Literal*>& operands);

}  // namespace xlad::hlo
