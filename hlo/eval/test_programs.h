// Programs and constants from text, for tests of the evaluator.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "gtest/gtest.h"
#include "hlo/eval/evaluate.h"
#include "hlo/text/text.h"

namespace xlad::hlo::testing {

inline std::unique_ptr<Module> Program(const std::string& text) {
  auto module = ParseText(text);
  EXPECT_TRUE(module.ok()) << module.status() << "\n" << text;
  return module.ok() ? *std::move(module) : nullptr;
}

// Parses a value, such as "s32[3] {1, 2, 3}" or "f32[] 1.5".
inline Literal Constant(const std::string& shape_and_values) {
  const size_t space = shape_and_values.find(' ');
  const auto module = Program("HloModule m\nENTRY e { ROOT c = " + shape_and_values.substr(0, space) + " constant(" +
                              shape_and_values.substr(space + 1) + ") }");
  return module == nullptr ? Literal() : *module->entry()->root()->literal();
}

// A program of one instruction on constants:
// OneInstruction("s32[2]", "add", {"s32[2] {1, 2}", "s32[2] {3, 4}"}, ", attribute=...").
inline std::unique_ptr<Module> OneInstruction(const std::string& result, const std::string& opcode,
                                              const std::vector<std::string>& operands,
                                              const std::string& attributes = "",
                                              const std::string& computations = "") {
  std::string text = "HloModule m\n" + computations + "\nENTRY e {\n", names;
  for (size_t i = 0; i < operands.size(); ++i) {
    const size_t space = operands[i].find(' ');
    const std::string name = "c" + std::to_string(i);
    text += "  " + name + " = " + operands[i].substr(0, space) + " constant(" + operands[i].substr(space + 1) + ")\n";
    names += (i == 0 ? "" : ", ") + name;
  }
  return Program(text + "  ROOT r = " + result + " " + opcode + "(" + names + ")" + attributes + "\n}\n");
}

inline absl::StatusOr<Literal> Run(const Module& module) { return Evaluate(module, {}); }

// The array or tuple as text, for messages.
inline std::string Show(const Literal& literal) {
  if (literal.is_tuple) {
    std::string text = "(";
    for (const Literal& element : literal.tuple) text += Show(element) + ", ";
    return text + ")";
  }
  Instruction constant(Opcode::kConstant, literal.shape());
  constant.set_literal(std::make_shared<const Literal>(literal));
  return constant.ToString();
}

// Expects equal text: equal bits, except for the signs of NaN, which differ between machines.
inline void ExpectSame(const Literal& actual, const Literal& expected, const std::string& what) {
  const auto text = [](const Literal& literal) { return absl::StrReplaceAll(Show(literal), {{"-nan", "nan"}}); };
  EXPECT_EQ(text(actual), text(expected)) << what;
}

// An instruction on constants, and its result.
struct InstructionCase {
  const char* opcode;
  std::vector<std::string> operands;
  std::string expected;
  std::string attributes = "";
};
inline void PrintTo(const InstructionCase& row, std::ostream* out) { *out << row.opcode << " -> " << row.expected; }

// Evaluates the instruction and compares the result. `computations` is the text of the computations that its attributes
// name.
inline void CheckInstruction(const InstructionCase& row, const std::string& computations = "") {
  const auto module = OneInstruction(row.expected.substr(0, row.expected.find(' ')), row.opcode, row.operands,
                                     row.attributes.empty() ? "" : ", " + row.attributes, computations);
  ASSERT_NE(module, nullptr);
  const auto actual = Run(*module);
  ASSERT_TRUE(actual.ok()) << actual.status();
  ExpectSame(*actual, Constant(row.expected), row.opcode);
}

}  // namespace xlad::hlo::testing
