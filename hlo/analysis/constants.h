// Queries about constants: whether the value of a constant is known, and which constant an instruction repeats.
//
// A dump may leave out the values of large constants ("{...}"). Such a constant is called elided. Its value is unknown,
// so the functions that return a value treat it as an instruction that is not constant.
#pragma once

#include <cstdint>
#include <optional>

#include "hlo/module.h"

namespace xlad::hlo {

// Returns true if the instruction is a constant whose values are missing from the text that was parsed.
bool IsElided(const Instruction& instruction);

// The literal of a constant array whose values are known, or null if the instruction is not such a constant.
const Literal* KnownLiteral(const Instruction& instruction);

// Returns true if the array has elements and all of them have the same bits.
bool IsSplat(const tensor::Array& array);

// Follows broadcasts, reshapes and copies to the instruction whose elements they repeat. Example: returns %zero for
// %b in
//   %zero = f32[] constant(0)
//   %b = f32[8,4] broadcast(%zero), dimensions={}
const Instruction* RepeatedValue(const Instruction* instruction);

// If RepeatedValue(instruction) is a constant whose value is known and whose elements all have the same bits, returns
// its literal, which may have more than one element. Otherwise returns null.
const Literal* SplatLiteral(const Instruction& instruction);

// The value of SplatLiteral as a double, or nullopt if there is no such constant or if a double cannot hold its type
// (complex and 64-bit integer types).
std::optional<double> SplatValue(const Instruction& instruction);

// The value of an integer or pred scalar that is a constant or repeats one. Nullopt for any other instruction, and for
// a value beyond the range of int64_t.
std::optional<int64_t> ConstantInteger(const Instruction& instruction);

// Returns true if the array `instruction` is a constant, possibly repeated, whose bits are all zero. A floating-point
// -0 is therefore not zero.
bool IsZero(const Instruction& instruction);

}  // namespace xlad::hlo
