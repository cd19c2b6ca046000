// The binary form of programs of the LLO-like instruction set.
//
// After the four bytes "LLO1" come the parts of LloProgram in the order of its members. Numbers are in little-endian
// base 128 (LEB128, DWARF 5, section 7.6), those that may be negative with the sign in the lowest bit. An item is its
// number of instructions plus 1 and the instructions, or 0 for a loop. An instruction is its opcode in one byte, the
// registers that it has in one byte each, and its other operands.
#pragma once

#include <string>

#include "machine/llo/isa.h"

namespace xlad::machine {

// Assembles: PrintLlo(*DecodeLlo(EncodeLlo(p))) == PrintLlo(p).
std::string EncodeLlo(const LloProgram& program);

// Disassembles. InvalidArgument, with the position in bytes, for bytes that are not a program. The program is not
// verified (VerifyLlo).
absl::StatusOr<LloProgram> DecodeLlo(absl::string_view bytes);

}  // namespace xlad::machine
