// The kinds of instructions. `hlo/opcode.def` has one row per opcode.
#pragma once

#include <optional>

#include "absl/strings/string_view.h"

namespace xlad::hlo {

enum class Opcode {
#define XLAD_OPCODE(id, text, arity, flags) k##id,
#define XLAD_ELEMENTWISE(id, text, arity, types) k##id,
#include "hlo/opcode.def"
#undef XLAD_ELEMENTWISE
#undef XLAD_OPCODE
};

// Flags of a row in opcode.def.
enum OpcodeFlags : int {
  kNone = 0,
  // Result element i depends only on element i of each operand, and on scalar operands (clamp, select). Exception:
  // bitcast-convert may split elements or join them.
  kElementwise = 1,
  kCollective = 2,   // A collective or its -start. Send, recv and -done do not have the flag.
  kSideEffect = 4,   // Must run even if its result is unused.
  kCalls = 8,        // May have called computations.
};

// A set of kinds of element types.
enum TypeSet : int {
  kPreds = 1,
  kSigneds = 2,
  kUnsigneds = 4,
  kFloats = 8,
  kComplexes = 16,
  kIntegers = kSigneds | kUnsigneds,
  kFloatsAndComplexes = kFloats | kComplexes,
  kNumbers = kIntegers | kFloatsAndComplexes,
  kAnyType = kNumbers | kPreds,
};

constexpr int kVariadic = -1;

absl::string_view ToString(Opcode opcode);
std::optional<Opcode> ParseOpcode(absl::string_view name);
int Arity(Opcode opcode);  // The number of operands, or kVariadic.
int Flags(Opcode opcode);
// The element types that the operands of an elementwise opcode may have; kAnyType for other opcodes.
int OperandTypes(Opcode opcode);
inline bool IsElementwise(Opcode opcode) { return (Flags(opcode) & kElementwise) != 0; }
inline bool IsCollective(Opcode opcode) { return (Flags(opcode) & kCollective) != 0; }
int OpcodeCount();
// The position of an opcode in tables with OpcodeCount() entries.
constexpr int Index(Opcode opcode) { return static_cast<int>(opcode); }

}  // namespace xlad::hlo
