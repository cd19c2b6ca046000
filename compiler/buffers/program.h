// The step computations flattened: operations over values, before values have memory.
//
// A value is what one buffer will hold: an array leaf. Most are written once. A value that a loop carries is written
// before the loop and again at the end of its body, a conditional's result once in every branch, and a donated
// parameter again when the result that takes its place is stored.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "compiler/analysis/donation.h"
#include "compiler/analysis/hlo_util.h"

namespace xlad::compiler {

struct Value {
  enum class Kind { kTemporary, kParameter, kResult, kConstant };
  Kind kind = Kind::kTemporary;
  int64_t bytes = 0;
  int64_t index = 0;        // Parameter leaf, result leaf, or constant number.
  bool is_writable = true;  // Not: constants, parameters that are not donated.
  std::string name;         // Of the instruction that makes it, for people.
};

struct Op {
  enum class Kind { kKernel, kLibrary, kCollective, kCopy, kWhile, kIf };
  Kind kind = Kind::kKernel;
  const Instruction* instruction = nullptr;  // Of a copy: what it is for.
  std::vector<int> inputs;                   // Value numbers; of kIf the selector.
  std::vector<int> outputs;
  std::vector<std::pair<int, int>> may_share;  // (position in outputs, position in inputs)
  std::vector<Op> condition;                   // kWhile
  int predicate = -1;
  std::vector<std::vector<Op>> bodies;  // kWhile: one; kIf: the branches.
};

struct Program {
  std::vector<Value> values;
  std::vector<Op> ops;
  std::vector<int> parameters;  // By entry leaf.
  std::vector<int> results;
  std::vector<const hlo::Literal*> constants;  // By constant number.
};

// Needs: every instruction is a parameter, constant, tuple, get-tuple-element, reshape, or becomes an op; program
// order is execution order. Unimplemented, naming the instruction, for what no op can do.
absl::StatusOr<Program> Lower(const Module& module, const Donation& donation);

// For people: one line an op.
std::string ToString(const Program& program);

}  // namespace xlad::compiler
