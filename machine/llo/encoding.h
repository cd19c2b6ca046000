// The binary form of programs of the LLO-like instruction set.
//
// After the four bytes "LLO1" come the parts of LloProgram in the order of its members. Numbers are in little-endian
// base 128 (LEB128, DWARF 5, section 7.6). Numbers that may be negative are zigzag-encoded: 0, -1, 1, -2 are stored as
// 0, 1, 2, 3. A double is stored as the integer that has its bits. A text or list is its length and its elements. A
// bundle is its number of instructions plus 1, and its instructions. A loop is 0, its counter in one byte, its trip
// count and its items. An instruction is its opcode in one byte, its registers in one byte each, and its other
// operands; a semaphore takes one byte.
#pragma once

#include <string>

#include "machine/llo/isa.h"

namespace xlad::machine {

// Assembles a program: PrintLlo(*DecodeLlo(EncodeLlo(p))) == PrintLlo(p).
std::string EncodeLlo(const LloProgram& program);

// Disassembles a program. InvalidArgument, with the position in bytes, if the bytes are not a program. Does not verify
// the program (see VerifyLlo).
absl::StatusOr<LloProgram> DecodeLlo(absl::string_view bytes);

}  // namespace xlad::machine
