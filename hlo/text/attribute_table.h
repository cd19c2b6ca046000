// The attributes of HLO text: one row says how an attribute is called, where it may stand, how it is read and printed.
// Adding an attribute is a row in attribute_table.cc and two fields in the proto code.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "hlo/module.h"

namespace xlad::hlo {

class Parser;

struct AttributeRow {
  absl::string_view name;
  absl::Span<const Opcode> opcodes;  // Where it may stand; empty: everywhere.
  // Reads the value (behind "name=") into the instruction.
  bool (*parse)(Parser& parser, Instruction* instruction);
  // Appends the value; false (and nothing appended) where the instruction does not have the attribute.
  bool (*print)(const Instruction& instruction, std::string* out);
};

// The rows that `opcode` may have, in the order in which they are printed.
const std::vector<const AttributeRow*>& AttributeRows(Opcode opcode);

// Attributes that xlad keeps and prints but gives no meaning to (Attributes::other).
bool IsCarriedAttribute(absl::string_view name);

// Every name there is, for suggestions; and whether a row of that name exists for some opcode.
std::vector<absl::string_view> AttributeNames();

// The one of `names` that looks most like `name`, or nothing where none is close: `, did you mean "X"?`.
std::string Suggestion(absl::string_view name, absl::Span<const absl::string_view> names);

}  // namespace xlad::hlo
