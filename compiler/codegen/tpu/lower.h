// Lowers a compiled module to a program for a TPU-like core (machine/llo/isa.h).
//
// The instructions of a computation become kernels between arrays in HBM. Tuples, reshapes and other instructions that
// only rename arrays need no kernel. Elementwise instructions, including those in fusions, are computed in registers,
// in one pass over their operands. Reductions of such values are computed in the same pass. Transposes use the
// transpose unit, and matrix products use the matrix units. A convolution is a matrix product whose operand is gathered
// by DMA. Slices, pads, concatenations and broadcasts are copies by DMA. An f32 product takes one bf16 pass with
// precision default, three with high and six with highest; products of bf16, s8, u8 and floats of 8 bits take one pass,
// and products of f16 take four. Elements of 8 and 16 bits are packed in VMEM (machine/llo/isa.h). Everything else is a
// macro-operation with a stated cost: its vector operations and bytes.
#pragma once

#include <vector>

#include "compiler/analysis/hlo_names.h"
#include "machine/chip.h"
#include "machine/llo/interpret.h"

namespace xlad::compiler {

struct LoweredLlo {
  machine::LloProgram program;
  std::vector<int64_t> bytes;                    // The size of each buffer.
  machine::LloMemory constants;                  // The contents of buffers of constants. Other buffers are empty here.
  std::vector<int> parameters, results;          // The buffers of the array leaves, in order.
  std::vector<const Instruction*> instructions;  // For each kernel, the instruction of which it computes all or a part.
};

// The memory with which the program starts: buffers that are not constants are zeros. It is as large as all arrays of
// the program together. The lowering itself does not need it.
machine::LloMemory InitialMemory(const LoweredLlo& lowered);

// Lowers a computation. Loops and branches in it become macro-operations. The instructions must outlive the result.
// Parameter leaves that are tokens are left out. Unimplemented if a parameter has any other leaf that is not an array.
absl::StatusOr<LoweredLlo> LowerToLlo(const Computation& computation, const machine::Chip& chip);

// The output of `xlad compile --emit llo`: the programs of the entry computation, and of the bodies, conditions,
// branches and called computations that it runs. Comments give the time of each kernel.
absl::StatusOr<std::string> LloListing(const Module& module, const machine::Chip& chip);

}  // namespace xlad::compiler
