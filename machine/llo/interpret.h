// The interpreter of the LLO-like instruction set: the numbers that a program computes, without time.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "machine/llo/isa.h"

namespace xlad::machine {

// The bytes of the program's buffers, dense and little-endian: f32, s32 and u32 in 4 bytes, bf16 in 2, pred in 1. Those
// of type kOther are whatever the macro-operations agree on.
using LloMemory = std::vector<std::string>;

// Computes the outputs of a macro-operation from its inputs.
using LloMacroFunction = std::function<absl::Status(const LloKernel& kernel, LloMemory* memory)>;

// Runs all kernels. Copies by DMA happen as late as they may: when the program waits for them. Every kernel starts with
// zeros in its registers and with VMEM full of NaNs, so that what it does not write itself shows.
//
// InvalidArgument, naming the kernel and the instruction, for an address outside of VMEM or of a buffer, a queue that
// is empty, too few weights, and DMA that is not waited for at the end of its kernel; ResourceExhausted after
// kMaxBundles bundles; errors of `macro`. The program must be verified (VerifyLlo), and `memory` have a buffer of the
// right size for each of the program's.
inline constexpr int64_t kMaxBundles = int64_t{1} << 32;
absl::Status RunLlo(const LloProgram& program, const LloMacroFunction& macro, LloMemory* memory);

}  // namespace xlad::machine
