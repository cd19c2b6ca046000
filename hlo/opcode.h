// The kinds of instructions. hlo/opcode.def has one row for each.
#pragma once

#include <optional>

#include "absl/strings/string_view.h"

namespace xlad::hlo {

enum class Opcode {
#define XLAD_OPCODE(id, text, arity, flags) k##id,
#include "hlo/opcode.def"
#undef XLAD_OPCODE
};

// Flags of a row in opcode.def.
enum OpcodeFlags : int {
  kNone = 0,
  kElementwise = 1,      // Result element i depends on operands' element i only (scalar operands of clamp aside).
  kCollective = 2,       // Moves data between devices.
  kSideEffect = 4,       // Must run even where its result is unused.
  kCalls = 8,            // Has called computations.
};

constexpr int kVariadic = -1;

absl::string_view ToString(Opcode opcode);
std::optional<Opcode> ParseOpcode(absl::string_view name);
int Arity(Opcode opcode);  // Operand count or kVariadic.
int Flags(Opcode opcode);
inline bool IsElementwise(Opcode opcode) { return (Flags(opcode) & kElementwise) != 0; }
inline bool IsCollective(Opcode opcode) { return (Flags(opcode) & kCollective) != 0; }
int OpcodeCount();
// The position of an opcode in tables with OpcodeCount() entries.
constexpr int Index(Opcode opcode) { return static_cast<int>(opcode); }

}  // namespace xlad::hlo
