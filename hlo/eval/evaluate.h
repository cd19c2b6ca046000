// The reference evaluator, which defines the meaning of a program. It is simple and slow. Compiled and partitioned
// programs are tested against it, and it is tested against XLA.
//
// The evaluator defines the following details, most of which the text of HLO's operation semantics leaves open. Tests
// check them.
// - Data movement is exact. Copies, slices, gathers, select, bitcast-convert, sorts and collectives without a reduction
//   keep all bits, including the sign and payload of a NaN. Tests treat all NaN results of arithmetic as equal.
// - Zeros have signs: maximum(-0, +0) is +0 and minimum(-0, +0) is -0, in either order. If the result of round, ceil,
//   sqrt or remainder is 0, it has the sign of the first operand. A sum starts with its initial value, so a sum of -0
//   with the initial value +0 is +0.
// - maximum, minimum and clamp of floats return NaN if an operand is NaN.
// - Integers wrap. x / 0 is -1 (all bits set), x % 0 is x, INT_MIN / -1 is INT_MIN, INT_MIN % -1 is 0.
// - A shift by the width or more, or by a negative amount, results in 0, or in copies of the sign bit for
//   shift-right-arithmetic.
// - Conversions from float to integer round toward zero and saturate; NaN becomes 0. Conversions between integers wrap.
// - Start indices of dynamic-slice, dynamic-update-slice and gather are clamped so that the slice is inside the
//   operand. A u64 of 2^63 or more is clamped to the largest start, and a negative start to 0. Scatter skips windows
//   that are not completely inside.
// - reduce and reduce-window combine in row-major order of the reduced indices, with the accumulator as the first
//   argument. If the reducer is a single add or multiply in the operand's type, reduce computes floats of up to 32 bits
//   in f64, and c64 in c128, and rounds once. Reductions across devices follow the order of the group and round after
//   each step.
// - Arithmetic on floats of fewer than 32 bits is that of f32, and each instruction rounds its result.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/status.h"
#include "hlo/literal.h"
#include "hlo/module.h"

namespace xlad::hlo {

// Limits of one evaluation, over all devices together, so that a hostile program cannot make the process hang or run
// out of memory.
struct EvaluateLimits {
  int64_t instructions = 100'000'000;  // Executed instructions; each execution counts.
  int64_t live_bytes = 16LL << 30;     // Bytes of live arrays.
  double element_steps = 1e12;         // Element operations and copies, estimated from shapes.
};

// Runs the entry of modules[d] on device d. The devices run in turn in one thread, each until it is done or waits at a
// collective or recv-done. modules.size() == inputs.size() is the number of devices; modules may repeat one pointer
// (SPMD). Device d is replica d / num_partitions and partition d % num_partitions of modules[d]. num_partitions is that
// of modules[0] if it divides the number of devices, otherwise the number of devices.
//
// inputs[d][p] is parameter p of device d. Result d is the root of the entry computation on device d. Thread-safe.
//
// Errors: InvalidArgument if the inputs do not have the parameters' shapes, if a module fails verification or has a
// shape of unknown size, or if the shapes, operands, replica groups or source-target pairs of a collective, send or
// recv do not match the devices that take part; Unimplemented for opcodes, types and forms that the evaluator does not
// support; ResourceExhausted if a limit is exceeded; FailedPrecondition if a reducer or comparator communicates, or if
// collectives deadlock: "devices 0-2 wait at all-reduce.7, 3 has returned".
absl::StatusOr<std::vector<Literal>> Evaluate(const std::vector<const Module*>& modules,
                                              const std::vector<std::vector<Literal>>& inputs,
                                              const EvaluateLimits& limits = {});

// Evaluates one module on one device.
absl::StatusOr<Literal> Evaluate(const Module& module, const std::vector<Literal>& inputs,
                                 const EvaluateLimits& limits = {});

// The result of one instruction on given operands, for constant folding and tests of single ops. The instruction must
// have passed the verifier. Errors: InvalidArgument if the number or a shape of `operands` is wrong; Unimplemented for
// control flow, collectives and opcodes that are not evaluated.
absl::StatusOr<Literal> EvaluateInstruction(const Instruction& instruction,
                                            const std::vector<const Literal*>& operands);

// Whether programs with this opcode can be evaluated. WhyNoEvaluator returns the reason why they cannot, or "" if they
// can.
bool HasEvaluator(Opcode opcode);
absl::string_view WhyNoEvaluator(Opcode opcode);

}  // namespace xlad::hlo
