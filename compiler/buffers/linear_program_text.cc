// The text form of a LinearProgram.
#include "absl/strings/str_join.h"
#include "compiler/buffers/linear_program.h"

namespace xlad::compiler {
namespace {

std::string ValuesText(const LinearProgram& program, const std::vector<int>& values) {
  return absl::StrJoin(
      values, ", ", [&](std::string* out, int v) { absl::StrAppend(out, "v", v, "[", program.values[v].bytes, "]"); });
}

std::string NameOf(const LinearOp& op) {
  if (op.kind == LinearOp::Kind::kCopy) return "copy";
  if (op.kind == LinearOp::Kind::kReserve) return "reserve";
  const absl::string_view opcode = hlo::ToString(op.instruction->opcode());
  if (op.is_repeated) return absl::StrCat(opcode, " again");
  if (op.request == 0) return std::string(opcode);
  const bool starts = op.kind == LinearOp::Kind::kCollective;
  return absl::StrCat(opcode, starts ? "-start #" : "-done #", op.request);
}

void Append(const LinearProgram& program, const std::vector<LinearOp>& ops, const std::string& indent,
            std::string* text) {
  for (const LinearOp& op : ops) {
    absl::StrAppend(text, indent, NameOf(op), " %", op.instruction->name(), "(", ValuesText(program, op.inputs),
                    ") -> ", ValuesText(program, op.outputs), "\n");
    if (op.kind == LinearOp::Kind::kWhile) {
      Append(program, op.condition, indent + "  ? ", text);
      absl::StrAppend(text, indent, "  while v", op.predicate, "\n");
    }
    for (const std::vector<LinearOp>& body : op.bodies) Append(program, body, indent + "  | ", text);
  }
}

}  // namespace

std::string ToString(const LinearProgram& program) {
  std::string text = absl::StrCat("parameters ", ValuesText(program, program.parameters), "\n");
  Append(program, program.ops, "", &text);
  absl::StrAppend(&text, "results ", ValuesText(program, program.results), "\n");
  return text;
}

}  // namespace xlad::compiler
