// The opcode table: the rows of `hlo/opcode.def` as an array.
#include "hlo/opcode.h"

#include <array>
#include <cstddef>

#include "absl/container/flat_hash_map.h"

namespace xlad::hlo {
namespace {

struct Row {
  absl::string_view text;
  int arity;
  int flags;
  int types;
};

constexpr std::array kRows = {
#define XLAD_OPCODE(id, text, arity, flags) Row{text, arity, flags, kAnyType},
#define XLAD_ELEMENTWISE(id, text, arity, types) Row{text, arity, kElementwise, types},
#include "hlo/opcode.def"
#undef XLAD_ELEMENTWISE
#undef XLAD_OPCODE
};

const Row& RowOf(Opcode opcode) { return kRows[Index(opcode)]; }

}  // namespace

absl::string_view ToString(Opcode opcode) { return RowOf(opcode).text; }
int Arity(Opcode opcode) { return RowOf(opcode).arity; }
int Flags(Opcode opcode) { return RowOf(opcode).flags; }
int OperandTypes(Opcode opcode) { return RowOf(opcode).types; }
int OpcodeCount() { return std::ssize(kRows); }

std::optional<Opcode> ParseOpcode(absl::string_view name) {
  // The map is never destroyed, so that it is valid until the process ends.
  static const auto* const by_name = [] {
    auto* const map = new absl::flat_hash_map<absl::string_view, Opcode>();
    for (size_t i = 0; i < kRows.size(); ++i) map->emplace(kRows[i].text, static_cast<Opcode>(i));
    return map;
  }();
  const auto found = by_name->find(name);
  if (found == by_name->end()) return std::nullopt;
  return found->second;
}

}  // namespace xlad::hlo
