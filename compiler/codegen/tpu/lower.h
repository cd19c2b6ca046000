// From a compiled module to a program for a TPU-like core (machine/llo/isa.h).
//
// Every instruction of a computation becomes kernels between arrays in HBM. Elementwise instructions, also inside of
// fusions, are computed in registers, in one pass over their operands; reductions of such values in the same pass.
// Transposes use the transpose unit, products of matrices the matrix units, convolutions are products over windows
// whose operand is gathered by DMA, and slices, pads, concatenations and broadcasts are copies by DMA. f32 products of
// precision default take one pass of bf16, high three and highest six. Everything else is a macro-operation with a
// stated cost: its vector operations and bytes.
#pragma once

#include <vector>

#include "compiler/analysis/hlo_names.h"
#include "machine/chip.h"
#include "machine/llo/interpret.h"

namespace xlad::compiler {

struct LoweredLlo {
  machine::LloProgram program;
  machine::LloMemory memory;                     // Constants are filled in; all other buffers are zeros.
  std::vector<int> parameters, results;          // The buffers of the array leaves, in order.
  std::vector<const Instruction*> instructions;  // By kernel: the instruction of which it computes all or a part.
};

// Lowers a computation; loops and branches inside are macro-operations. The instructions must outlive the result.
// Unimplemented if a parameter or result is not an array or a tuple of arrays.
absl::StatusOr<LoweredLlo> LowerToLlo(const Computation& computation, const machine::Chip& chip);

// The programs of the entry computation and of each loop's body and condition and each branch that it runs, with the
// time of each kernel in comments: what `xlad compile --emit llo` prints.
absl::StatusOr<std::string> LloListing(const Module& module, const machine::Chip& chip);

}  // namespace xlad::compiler
