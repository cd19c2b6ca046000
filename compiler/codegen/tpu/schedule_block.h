// Register allocation and scheduling of a block of instructions without loops.
#pragma once

#include <vector>

#include "machine/llo/isa.h"

namespace xlad::compiler {

// An instruction of a block. Loads and stores of different regions do not overlap; region -1 overlaps with all.
struct BlockInstruction {
  machine::LloInstruction instruction;
  int region = -1;
};

// The address of the first spilled tile. Loads and stores of spilled tiles have the register that is always 0 as base.
inline constexpr int64_t kSpillBase = int64_t{1} << 40;

// Assigns a register to each of the vector values 0 .. values-1 of the block, each of which is written once. If there
// are too few registers, the value whose next use is the furthest is spilled (Belady, IBM Systems Journal 1966).
// Returns the number of spilled tiles.
int64_t AllocateRegisters(int values, std::vector<BlockInstruction>* block);

// Schedules the instructions in program order. Each is put into the first bundle that has a free slot of its kind and
// in which its sources are available. Accesses to a register, to overlapping memory and to a unit keep their order. No
// bundle is empty.
std::vector<machine::LloBundle> ScheduleBlock(const std::vector<BlockInstruction>& block, int vector_alus);

}  // namespace xlad::compiler
