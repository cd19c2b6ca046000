// Facts about constants that several folders need: what value an instruction repeats, and whether it is known.
//
// A dump may leave out the values of large constants ("{...}"). Such a constant is called elided. Its value is unknown,
// so every function below treats it as an instruction that is not constant.
#pragma once

#include <cstdint>
#include <optional>

#include "hlo/module.h"

namespace xlad::hlo {

// Returns true if the instruction is a constant whose values are missing from the text that was parsed.
bool IsElided(const Instruction& instruction);

// The literal of a constant array whose values are known, or null if the instruction is not such a constant.
const Literal* KnownLiteral(const Instruction& instruction);

// Returns true if all elements have the same bits. An array without elements has no such value.
bool IsSplat(const tensor::Array& array);

// Follows broadcasts, reshapes and copies to the instruction whose elements they repeat. Example: returns %zero for
// %b in
//   %zero = f32[] constant(0)
//   %b = f32[8,4] broadcast(%zero), dimensions={}
const Instruction* RepeatedValue(const Instruction* instruction);

// The constant of which every element of the array `instruction` is a copy, or null if there is none. The literal may
// have more than one element; then all of them have the same bits.
const Literal* SplatLiteral(const Instruction& instruction);

// The value of SplatLiteral as a double, or nullopt if there is no such constant or if a double cannot hold its type
// (complex and 64-bit integer types).
std::optional<double> SplatValue(const Instruction& instruction);

// The value of a scalar constant of an integer type or of type pred, or nullopt if the instruction is not such a
// constant or if the value exceeds the range of int64_t.
std::optional<int64_t> ConstantInteger(const Instruction& instruction);

// Returns true if the array `instruction` is a constant, possibly repeated, whose bits are all zero. A floating-point
// -0 is therefore not zero.
bool IsZero(const Instruction& instruction);

}  // namespace xlad::hlo
