// How the files of this folder write and register op rules.
//
// A file holds one family of ops: a function for each rule, and the table of the opcodes that have these rules.
#pragma once

#include "absl/types/span.h"
#include "hlo/analysis/leaves.h"
#include "sharding/rules/op_rule.h"

namespace xlad::sharding {

// Builds the rule of one instruction. The rule of a transpose, for example:
//
//   RuleBuilder rule(instruction);
//   for (const int64_t d : tensor::Indices(instruction.dimensions())) {
//     const int factor = rule.Add(rule.result_dims(0)[d]);
//     rule.Operand(0, instruction.dimensions()[d], factor);
//     rule.Result(0, d, factor);
//   }
//   return rule.Finish();
class RuleBuilder {
 public:
  explicit RuleBuilder(const hlo::Instruction& instruction);

  // The dimensions of array leaf `leaf` of the operands or of the result.
  const Dims& operand_dims(int64_t leaf) const { return operand_dims_[leaf]; }
  const Dims& result_dims(int64_t leaf) const { return result_dims_[leaf]; }
  int64_t operand_count() const { return std::ssize(operand_dims_); }
  int64_t result_count() const { return std::ssize(result_dims_); }

  // Adds a factor and returns its number.
  int Add(int64_t size, FactorKind kind = FactorKind::kPassThrough, bool blocked = false);
  Factor& factor(int f) { return rule_.factors[f]; }
  // Appends a factor to a dimension, as its most minor one.
  void Operand(int64_t leaf, int64_t dim, int factor);
  void Result(int64_t leaf, int64_t dim, int factor);
  // Adds one factor that dimension `dim` has in every result leaf, and in every operand leaf with as many dimensions as
  // the result.
  void Everywhere(int64_t dim, FactorKind kind, bool blocked = false);

  // Returns the rule. Every dimension without a factor gets one of its own. The kind of this factor is kPassThrough if
  // the dimension has size 1. Otherwise it is kNeedReplication for an operand, and the argument `results` for a result:
  // pass kPassThrough if any part of the result can be computed independently.
  OpRule Finish(FactorKind results = FactorKind::kNeedReplication);

 private:
  std::vector<Dims> operand_dims_, result_dims_;
  OpRule rule_;
};

// The opcode of a reducer that applies one binary opcode to two scalars. For any other reducer it is kReduce: only the
// instruction's own computation can then combine partial results.
hlo::Opcode ReductionOf(const hlo::Computation& reducer);

// Rules that several files use.
OpRule ElementwiseRule(const hlo::Instruction& instruction);  // elementwise.cc
OpRule TopkRule(const hlo::Instruction& instruction);         // sort.cc

struct RuleRow {
  hlo::Opcode opcode;
  OpRule (*rule)(const hlo::Instruction&);
};

// The tables of the families, each defined in the file that has the family's name.
absl::Span<const RuleRow> DotRules();
absl::Span<const RuleRow> ElementwiseRules();
absl::Span<const RuleRow> GatherScatterRules();
absl::Span<const RuleRow> OtherRules();
absl::Span<const RuleRow> ReduceRules();
absl::Span<const RuleRow> ShapeRules();
absl::Span<const RuleRow> SliceRules();
absl::Span<const RuleRow> SortRules();
absl::Span<const RuleRow> WindowRules();

inline constexpr absl::Span<const RuleRow> (*kRuleFamilies[])() = {
    DotRules,   ElementwiseRules, GatherScatterRules, OtherRules,  ReduceRules,
    ShapeRules, SliceRules,       SortRules,          WindowRules,
};

}  // namespace xlad::sharding
