// The families of op rules (internal to sharding/): one small function each, entered in op_rule.cc's table.
#pragma once

#include "sharding/rules/op_rule.h"

namespace xlad::sharding {

// Collects a rule. Dimensions that stay without a factor at the end get one of their own.
class RuleBuilder {
 public:
  explicit RuleBuilder(const hlo::Instruction& instruction);

  const Dims& operand_dims(int64_t leaf) const { return operand_shapes_[leaf]; }
  const Dims& result_dims(int64_t leaf) const { return result_shapes_[leaf]; }
  int64_t operand_count() const { return std::ssize(operand_shapes_); }
  int64_t result_count() const { return std::ssize(result_shapes_); }

  // A new factor.
  int Add(int64_t size, FactorKind kind = FactorKind::kPassThrough, bool blocked = false);
  Factor& factor(int f) { return rule_.factors[f]; }
  // Appends a factor to a dimension (the next more minor one).
  void Operand(int64_t leaf, int64_t dim, int factor);
  void Result(int64_t leaf, int64_t dim, int factor);
  // The same dimension of every result leaf, and of every operand leaf of the same number of dimensions, gets one
  // factor of this kind.
  void Everywhere(int64_t dim, FactorKind kind, bool blocked = false);

  // Dimensions without a factor get one that nothing shares: it must be whole, except that those of results are
  // `results` (pass-through where any part of a result can be computed alone) and size 1 is always whole.
  OpRule Finish(FactorKind results = FactorKind::kNeedReplication);

 private:
  std::vector<Dims> operand_shapes_, result_shapes_;
  OpRule rule_;
};

// The array leaves of a shape, depth first.
std::vector<const hlo::Shape*> ArrayLeaves(const hlo::Shape& shape);

// Two-parameter scalar reducers that are one binary opcode; kReduce where it is something else, which means that
// partial results can only be combined by the instruction's own computation.
hlo::Opcode ReductionOf(const hlo::Computation& reducer);

// rules_elementwise.cc
OpRule ElementwiseRule(const hlo::Instruction& instruction);
OpRule BitcastConvertRule(const hlo::Instruction& instruction);
OpRule BatchNormRule(const hlo::Instruction& instruction);
OpRule RngRule(const hlo::Instruction& instruction);
OpRule RngBitGeneratorRule(const hlo::Instruction& instruction);

// rules_shape.cc
OpRule BroadcastRule(const hlo::Instruction& instruction);
OpRule ReshapeRule(const hlo::Instruction& instruction);
OpRule TransposeRule(const hlo::Instruction& instruction);
OpRule IotaRule(const hlo::Instruction& instruction);
OpRule ConcatenateRule(const hlo::Instruction& instruction);
OpRule ReverseRule(const hlo::Instruction& instruction);

// rules_slice.cc
OpRule SliceRule(const hlo::Instruction& instruction);
OpRule PadRule(const hlo::Instruction& instruction);
OpRule DynamicSliceRule(const hlo::Instruction& instruction);
OpRule DynamicUpdateSliceRule(const hlo::Instruction& instruction);

// rules_dot.cc
OpRule DotRule(const hlo::Instruction& instruction);
OpRule RaggedDotRule(const hlo::Instruction& instruction);

// rules_reduce.cc
OpRule ReduceRule(const hlo::Instruction& instruction);
OpRule ScanRule(const hlo::Instruction& instruction);

// rules_gather_scatter.cc
OpRule GatherRule(const hlo::Instruction& instruction);
OpRule ScatterRule(const hlo::Instruction& instruction);

// rules_window.cc
OpRule ReduceWindowRule(const hlo::Instruction& instruction);
OpRule SelectAndScatterRule(const hlo::Instruction& instruction);
OpRule ConvolutionRule(const hlo::Instruction& instruction);

// rules_sort.cc
OpRule SortRule(const hlo::Instruction& instruction);
OpRule TopkRule(const hlo::Instruction& instruction);
OpRule FftRule(const hlo::Instruction& instruction);
OpRule MatrixRule(const hlo::Instruction& instruction);  // cholesky, triangular-solve

// rules_other.cc
OpRule CollectiveRule(const hlo::Instruction& instruction);
OpRule CustomCallRule(const hlo::Instruction& instruction);

}  // namespace xlad::sharding
