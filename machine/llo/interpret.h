// The interpreter of the LLO-like instruction set: computes the results of a program, not its time.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "machine/llo/isa.h"

namespace xlad::machine {

// The bytes of the program's buffers, dense and little-endian: elements have BytesOf bytes, and a pred is 0 or 1. The
// format of buffers of type kOther is defined by the macro-operations that use them.
using LloMemory = std::vector<std::string>;

// Computes the outputs of a macro-operation from its inputs.
using LloMacroFunction = std::function<absl::Status(const LloKernel& kernel, LloMemory* memory)>;

// The largest number of bundles that a kernel may run.
inline constexpr int64_t kMaxBundles = int64_t{1} << 32;

// Runs all kernels. A DMA copy is made as late as is allowed: when the program waits for it. Every kernel starts with
// zeros in its registers and with NaNs in VMEM, so that reads of VMEM that the kernel has not written make the results
// wrong.
//
// The program must be verified (VerifyLlo), and `memory` must have a buffer of the right size for each buffer of the
// program. InvalidArgument, naming the kernel and the instruction, if an address is outside of VMEM or of a buffer, if
// a block is wider than its tiles, if a queue is empty, if a dma.wait has no copy to wait for, or if there are too few
// or too many weights. InvalidArgument, naming the kernel and the semaphore, if a kernel ends before it has waited for
// all of its copies. ResourceExhausted if a kernel runs more than kMaxBundles bundles. Errors of `macro` are returned.
absl::Status RunLlo(const LloProgram& program, const LloMacroFunction& macro, LloMemory* memory);

}  // namespace xlad::machine
