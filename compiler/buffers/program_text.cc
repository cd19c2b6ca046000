// Programs for people.
#include "absl/strings/str_join.h"
#include "compiler/buffers/program.h"

namespace xlad::compiler {
namespace {

std::string Values(const Program& program, const std::vector<int>& values) {
  return absl::StrJoin(values, ", ", [&](std::string* out, int v) {
    absl::StrAppend(out, "v", v, "[", program.values[v].bytes, "]");
  });
}

void Append(const Program& program, const std::vector<Op>& ops, const std::string& indent, std::string* text) {
  for (const Op& op : ops) {
    absl::StrAppend(text, indent, op.kind == Op::Kind::kCopy ? "copy" : hlo::ToString(op.instruction->opcode()), " %",
                    op.instruction->name(), "(", Values(program, op.inputs), ") -> ", Values(program, op.outputs),
                    "\n");
    if (op.kind == Op::Kind::kWhile) {
      Append(program, op.condition, indent + "  ? ", text);
      absl::StrAppend(text, indent, "  while v", op.predicate, "\n");
    }
    for (const std::vector<Op>& body : op.bodies) Append(program, body, indent + "  | ", text);
  }
}

}  // namespace

std::string ToString(const Program& program) {
  std::string text = absl::StrCat("parameters ", Values(program, program.parameters), "\n");
  Append(program, program.ops, "", &text);
  absl::StrAppend(&text, "results ", Values(program, program.results), "\n");
  return text;
}

}  // namespace xlad::compiler
