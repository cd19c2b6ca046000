// The attributes of HLO text. A row has the name of an attribute, the opcodes that may have it, and the functions that
// parse and print its value. To add an attribute, add a row to attribute_table.cc and the field to the proto code in
// hlo/wire.
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
  absl::Span<const Opcode> opcodes;  // The opcodes that may have the attribute, or empty for all opcodes.
  // Parses the value after "name=" into the instruction.
  bool (*parse)(Parser& parser, Instruction* instruction);
  // Appends the value. Returns false and appends nothing if the instruction does not have the attribute.
  bool (*print)(const Instruction& instruction, std::string* out);
};

// The rows of the attributes that `opcode` may have, in the order in which they are printed.
const std::vector<const AttributeRow*>& AttributeRows(Opcode opcode);

// Returns true for an attribute without a meaning in xlad: it is stored as text (Attributes::other) and printed again.
bool IsCarriedAttribute(absl::string_view name);

// All names of attributes.
std::vector<absl::string_view> AttributeNames();

// For error messages: `, did you mean "X"?` with the most similar one of `names`, or "" if none is similar.
std::string Suggestion(absl::string_view name, absl::Span<const absl::string_view> names);

}  // namespace xlad::hlo
