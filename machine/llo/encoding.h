// The binary form of programs of the LLO-like instruction set.
//
// A program consists of the four bytes "LLO1" and the members of LloProgram in their order:
//   number        little-endian base 128 (LEB128, DWARF 5, section 7.6); a number that may be negative is first
//                 zigzag-encoded: 0, -1, 1, -2 become 0, 1, 2, 3
//   double        the integer with the same bits
//   text or list  the length, then the elements
//   bundle        the number of instructions plus 1, then the instructions
//   loop          0, the counter in one byte, the trip count, then the items
//   instruction   the opcode in one byte, the registers in one byte each, then the other operands; a semaphore takes
//                 one byte
#pragma once

#include <string>

#include "machine/llo/isa.h"

namespace xlad::machine {

// Assembles a verified program with at most 64 nested loops: PrintLlo(*DecodeLlo(EncodeLlo(p))) == PrintLlo(p).
std::string EncodeLlo(const LloProgram& program);

// Disassembles a program. InvalidArgument, with the position in bytes, if the bytes are not a program. Does not verify
// the program (see VerifyLlo).
absl::StatusOr<LloProgram> DecodeLlo(absl::string_view bytes);

}  // namespace xlad::machine
