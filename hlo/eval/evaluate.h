// The meaning of a program: slow, readable, obviously correct. Everything else is tested against it.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/status.h"
#include "hlo/literal.h"
#include "hlo/module.h"

namespace xlad::hlo {

// What one evaluation may use, over all devices: a program from outside can neither hang nor exhaust the process.
struct EvaluateLimits {
  int64_t instructions = 100'000'000;  // Instructions run, loop bodies and called computations each time.
  int64_t live_bytes = int64_t{16} << 30;
  double element_steps = 1e12;  // Multiplications of dots, window elements, elements moved ...: an estimate by shapes.
};

// Runs the entry of modules[d] on device d, all devices in lockstep in one thread, exchanging data at collectives.
// modules.size() == inputs.size() == devices; modules may repeat one pointer (SPMD). Device d is
// replica d / num_partitions, partition d % num_partitions of modules[d].
//
// inputs[d][p] is parameter p; the results are the roots. Errors: InvalidArgument where inputs do not fit or a module
// fails verification, Unimplemented for an opcode without meaning here, ResourceExhausted over a limit,
// FailedPrecondition where collectives cannot meet, in words: "devices 0-2 wait at all-reduce.7, 3 has returned".
absl::StatusOr<std::vector<Literal>> Evaluate(const std::vector<const Module*>& modules,
                                              const std::vector<std::vector<Literal>>& inputs,
                                              const EvaluateLimits& limits = {});

// One device.
absl::StatusOr<Literal> Evaluate(const Module& module, const std::vector<Literal>& inputs,
                                 const EvaluateLimits& limits = {});

// One instruction on given operand values, no control flow or collectives; for constant folding and op tests. The
// instruction must be well formed (as after Verify).
absl::StatusOr<Literal> EvaluateInstruction(const Instruction& instruction,
                                            const std::vector<const Literal*>& operands);

// Whether programs with this opcode can be evaluated; where not, WhyNoEvaluator says why, else it is empty.
bool HasEvaluator(Opcode opcode);
absl::string_view WhyNoEvaluator(Opcode opcode);

}  // namespace xlad::hlo
