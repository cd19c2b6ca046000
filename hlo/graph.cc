#include "hlo/graph.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "hlo/print.h"

namespace xlad::hlo {
namespace {

std::string Escape(absl::string_view text) {
  return absl::StrReplaceAll(text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}});
}

// What annotates the instruction's sharding, if anything does.
std::string ShardingText(const Instruction& instruction) {
  const auto found = instruction.frontend_attributes().find("xla.sdy.sharding");
  if (found != instruction.frontend_attributes().end()) return found->second;
  std::string text;
  if (instruction.sharding() != nullptr) AppendSharding(*instruction.sharding(), &text);
  return text;
}

std::string CallsText(const Instruction& instruction) {
  return absl::StrJoin(instruction.called(), ", ", [](std::string* out, const Computation* computation) {
    absl::StrAppend(out, computation->name());
  });
}

void AppendRow(const Instruction& instruction, std::string* out) {
  const std::string operands =
      absl::StrJoin(instruction.operands(), ", ", [](std::string* text, const Instruction* operand) {
        absl::StrAppend(text, "<a href=\"#", Escape(operand->name()), "\">", Escape(operand->name()), "</a>");
      });
  absl::StrAppend(out, "<tr id=\"", Escape(instruction.name()), "\"><td>", Escape(instruction.name()), "</td><td>",
                  Escape(instruction.shape().ToString(false)), "</td><td>", ToString(instruction.opcode()), "</td><td>",
                  operands, "</td><td>", Escape(CallsText(instruction)), "</td><td>",
                  Escape(ShardingText(instruction)), "</td><td>",
                  Escape(instruction.parent()->parent()->SourceOf(instruction)), "</td></tr>\n");
}

}  // namespace

std::string PrintDot(const Module& module) {
  std::string out = absl::StrCat("digraph \"", Escape(module.name()),
                                 "\" {\n  node [shape=box, fontname=\"monospace\", fontsize=10];\n");
  for (const auto& instruction : module.entry()->instructions()) {
    const std::string calls = CallsText(*instruction);
    const std::string sharding = ShardingText(*instruction);
    absl::StrAppend(&out, "  \"", instruction->name(), "\" [label=<<b>", ToString(instruction->opcode()), "</b><br/>",
                    Escape(instruction->name()), "<br/>", Escape(instruction->shape().ToString(false)),
                    calls.empty() ? "" : absl::StrCat("<br/>calls ", Escape(calls)),
                    sharding.empty() ? "" : absl::StrCat("<br/><i>", Escape(sharding), "</i>"), ">",
                    instruction.get() == module.entry()->root() ? ", style=bold" : "", "];\n");
    for (const Instruction* operand : instruction->operands()) {
      absl::StrAppend(&out, "  \"", operand->name(), "\" -> \"", instruction->name(), "\";\n");
    }
  }
  return out + "}\n";
}

std::string PrintHtml(const Module& module) {
  std::string out = absl::StrCat(
      "<!doctype html><meta charset=\"utf-8\"><title>", Escape(module.name()),
      "</title><style>body{font:13px sans-serif;margin:2em}table{border-collapse:collapse}td,th{padding:2px 8px;"
      "border-bottom:1px solid #ddd;font-family:monospace;text-align:left}tr:target{background:#ffc}"
      "summary{font-weight:bold;margin:1em 0}</style>\n<h1>", Escape(module.name()), "</h1>\n");
  for (auto it = module.computations().rbegin(); it != module.computations().rend(); ++it) {
    const Computation& computation = **it;
    absl::StrAppend(&out, "<details", &computation == module.entry() ? " open" : "", "><summary>",
                    Escape(computation.name()), " (", computation.instructions().size(),
                    " instructions)</summary>\n<table><tr><th>name<th>shape<th>opcode<th>operands<th>calls<th>sharding"
                    "<th>source</tr>\n");
    for (const auto& instruction : computation.instructions()) AppendRow(*instruction, &out);
    out += "</table></details>\n";
  }
  return out;
}

}  // namespace xlad::hlo
