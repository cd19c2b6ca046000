// Rules of ops that rearrange dimensions: broadcast, reshape, transpose, concatenate, reverse. Also iota and constant.
#include <numeric>

#include "base/containers.h"
#include "sharding/rules/rules.h"
#include "tensor/indices.h"

namespace xlad::sharding {
namespace {

// dimensions[d] is the result dimension that operand dimension d becomes. The other dimensions of the result are new.
OpRule BroadcastRule(const hlo::Instruction& instruction) {
  RuleBuilder rule(instruction);
  for (const int64_t d : tensor::Indices(instruction.dimensions())) {
    const int64_t to = instruction.dimensions()[d];
    if (rule.operand_dims(0)[d] != rule.result_dims(0)[to]) continue;
    const int factor = rule.Add(rule.operand_dims(0)[d]);
    rule.Operand(0, d, factor);
    rule.Result(0, to, factor);
  }
  return rule.Finish(FactorKind::kPassThrough);
}

// Walks over the dimensions of both sides from major to minor and splits them into common factors. Each factor is the
// greatest common divisor of the remaining sizes of the two current dimensions, and these sizes are divided by it.
//
//   f32[6,4] -> f32[2,12]:  gcd(6,2) = 2, remaining 3 and 12: gcd 3, remaining 4 and 4: gcd 4.
//                           ([ij, k])->([i, jk]) {i=2, j=3, k=4}
//   f32[3,2] -> f32[2,3]:   3 and 2 have no common divisor, so nothing is shared until the products meet at 6:
//                           ([i, l])->([j, k]) {i=3, j=2, k=3, l=2} need_replication={i, j, k, l}
class ReshapeFactors {
 public:
  explicit ReshapeFactors(const hlo::Instruction& instruction)
      : rule_(instruction), from_(rule_.operand_dims(0)), to_(rule_.result_dims(0)) {}

  OpRule Run() {
    while (!from_.done() && !to_.done()) {
      const int64_t shared = std::gcd(from_.remaining(), to_.remaining());
      if (shared == 1) {
        SkipUnshared();
        continue;
      }
      const int factor = rule_.Add(shared);
      rule_.Operand(0, from_.Take(shared), factor);
      rule_.Result(0, to_.Take(shared), factor);
    }
    return rule_.Finish();
  }

 private:
  // One side's current dimension, and how much of its size has no factor yet. Dimensions of size 1 are skipped.
  class Cursor {
   public:
    explicit Cursor(const Dims& dims) : dims_(dims) { Load(); }
    bool done() const { return dim_ == std::ssize(dims_); }
    int64_t remaining() const { return remaining_; }
    // Takes a factor of `size` from the current dimension. Returns the dimension.
    int64_t Take(int64_t size) {
      const int64_t dim = dim_;
      remaining_ /= size;
      if (remaining_ == 1) {
        ++dim_;
        Load();
      }
      return dim;
    }

   private:
    void Load() {
      while (!done() && dims_[dim_] == 1) ++dim_;
      remaining_ = done() ? 1 : dims_[dim_];
    }

    const Dims dims_;
    int64_t dim_ = 0, remaining_ = 1;
  };

  // The remaining sizes of both dimensions are coprime. Adds unshared factors for them, and for further dimensions,
  // until the products of both sides are equal.
  void SkipUnshared() {
    int64_t from_product = 1, to_product = 1;
    do {
      const bool of_operand = from_product <= to_product;
      Cursor& side = of_operand ? from_ : to_;
      const int64_t size = side.remaining();
      const int factor = rule_.Add(size, FactorKind::kNeedReplication);
      if (of_operand) {
        from_product *= size;
        rule_.Operand(0, side.Take(size), factor);
      } else {
        to_product *= size;
        rule_.Result(0, side.Take(size), factor);
      }
    } while (from_product != to_product);
  }

  RuleBuilder rule_;
  Cursor from_, to_;
};

OpRule ReshapeRule(const hlo::Instruction& instruction) {
  if (instruction.shape().elements() == 0) return {};
  return ReshapeFactors(instruction).Run();
}

OpRule TransposeRule(const hlo::Instruction& instruction) {
  RuleBuilder rule(instruction);
  for (const int64_t d : tensor::Indices(instruction.dimensions())) {
    const int factor = rule.Add(rule.result_dims(0)[d]);
    rule.Operand(0, instruction.dimensions()[d], factor);
    rule.Result(0, d, factor);
  }
  return rule.Finish();
}

// iota and constant: any part of the result can be computed independently.
OpRule SourceRule(const hlo::Instruction& instruction) {
  return RuleBuilder(instruction).Finish(FactorKind::kPassThrough);
}

// A shard of an operand along the concatenated dimension is not at the same position in the result.
OpRule ConcatenateRule(const hlo::Instruction& instruction) {
  RuleBuilder rule(instruction);
  for (const int64_t d : tensor::Indices(rule.result_dims(0))) {
    rule.Everywhere(d, d == instruction.dimensions()[0] ? FactorKind::kNeedReplication : FactorKind::kPassThrough);
  }
  return rule.Finish();
}

OpRule ReverseRule(const hlo::Instruction& instruction) {
  RuleBuilder rule(instruction);
  for (const int64_t d : tensor::Indices(rule.result_dims(0))) {
    rule.Everywhere(d, Contains(instruction.dimensions(), d) ? FactorKind::kPermutation : FactorKind::kPassThrough);
  }
  return rule.Finish();
}

constexpr RuleRow kShapeRules[] = {
    {hlo::Opcode::kBroadcast, BroadcastRule}, {hlo::Opcode::kReshape, ReshapeRule},
    {hlo::Opcode::kTranspose, TransposeRule}, {hlo::Opcode::kIota, SourceRule},
    {hlo::Opcode::kConstant, SourceRule},     {hlo::Opcode::kConcatenate, ConcatenateRule},
    {hlo::Opcode::kReverse, ReverseRule},
};

}  // namespace

absl::Span<const RuleRow> ShapeRules() { return kShapeRules; }

}  // namespace xlad::sharding
