// Op rules that rearrange dimensions: broadcast, reshape, transpose, iota, concatenate, reverse.
#include <algorithm>
#include <numeric>

#include "sharding/rules/rules.h"

namespace xlad::sharding {

// dimensions[d] is where operand dimension d goes; the others are new and belong to the result alone.
OpRule BroadcastRule(const hlo::Instruction& instruction) {
  RuleBuilder rule(instruction);
  for (size_t d = 0; d < instruction.dimensions().size(); ++d) {
    const int64_t to = instruction.dimensions()[d];
    if (rule.operand_dims(0)[d] != rule.result_dims(0)[to]) continue;
    const int factor = rule.Add(rule.operand_dims(0)[d]);
    rule.Operand(0, static_cast<int64_t>(d), factor);
    rule.Result(0, to, factor);
  }
  return rule.Finish(FactorKind::kPassThrough);
}

namespace {

// Walks the dimensions of both sides from major to minor, always with the same number of elements left on both.
class ReshapeFactors {
 public:
  explicit ReshapeFactors(const hlo::Instruction& instruction)
      : rule_(instruction), from_(rule_.operand_dims(0)), to_(rule_.result_dims(0)) {}

  OpRule Run() {
    Load();
    while (i_ < from_.size() && j_ < to_.size()) {
      const int64_t shared = std::gcd(from_left_, to_left_);
      if (shared == 1) {
        SkipDiverged();
        continue;
      }
      const int factor = rule_.Add(shared);
      rule_.Operand(0, static_cast<int64_t>(i_), factor);
      rule_.Result(0, static_cast<int64_t>(j_), factor);
      TakeFrom(shared);
      TakeTo(shared);
    }
    return rule_.Finish();
  }

 private:
  // Stands on the next dimensions that are not 1; those of size 1 get a factor of their own from Finish.
  void Load() {
    while (i_ < from_.size() && from_[i_] == 1) ++i_;
    while (j_ < to_.size() && to_[j_] == 1) ++j_;
    from_left_ = i_ < from_.size() ? from_[i_] : 1;
    to_left_ = j_ < to_.size() ? to_[j_] : 1;
  }
  void TakeFrom(int64_t size) {
    from_left_ /= size;
    if (from_left_ > 1) return;
    while (++i_ < from_.size() && from_[i_] == 1) {
    }
    if (i_ < from_.size()) from_left_ = from_[i_];
  }
  void TakeTo(int64_t size) {
    to_left_ /= size;
    if (to_left_ > 1) return;
    while (++j_ < to_.size() && to_[j_] == 1) {
    }
    if (j_ < to_.size()) to_left_ = to_[j_];
  }
  // Coprime sizes (3x2 -> 2x3): what is left of both dimensions, and further ones until the products meet, is not
  // shared.
  void SkipDiverged() {
    int64_t from_product = 1, to_product = 1;
    do {
      if (from_product <= to_product) {
        from_product *= from_left_;
        const size_t dim = i_;
        const int64_t size = from_left_;
        TakeFrom(size);
        rule_.Operand(0, static_cast<int64_t>(dim), rule_.Add(size, FactorKind::kNeedReplication));
      } else {
        to_product *= to_left_;
        const size_t dim = j_;
        const int64_t size = to_left_;
        TakeTo(size);
        rule_.Result(0, static_cast<int64_t>(dim), rule_.Add(size, FactorKind::kNeedReplication));
      }
    } while (from_product != to_product);
  }

  RuleBuilder rule_;
  const Dims from_, to_;
  size_t i_ = 0, j_ = 0;
  int64_t from_left_ = 1, to_left_ = 1;
};

}  // namespace

OpRule ReshapeRule(const hlo::Instruction& instruction) {
  if (instruction.shape().elements() == 0) return {};
  return ReshapeFactors(instruction).Run();
}

OpRule TransposeRule(const hlo::Instruction& instruction) {
  RuleBuilder rule(instruction);
  for (size_t d = 0; d < instruction.dimensions().size(); ++d) {
    const int factor = rule.Add(rule.result_dims(0)[d]);
    rule.Operand(0, instruction.dimensions()[d], factor);
    rule.Result(0, static_cast<int64_t>(d), factor);
  }
  return rule.Finish();
}

OpRule IotaRule(const hlo::Instruction& instruction) {
  return RuleBuilder(instruction).Finish(FactorKind::kPassThrough);
}

// Shards of the concatenated dimension lie elsewhere in the result than in the operands.
OpRule ConcatenateRule(const hlo::Instruction& instruction) {
  RuleBuilder rule(instruction);
  const int64_t along = instruction.dimensions()[0];
  for (int64_t d = 0; d < std::ssize(rule.result_dims(0)); ++d) {
    rule.Everywhere(d, d == along ? FactorKind::kNeedReplication : FactorKind::kPassThrough);
  }
  return rule.Finish();
}

OpRule ReverseRule(const hlo::Instruction& instruction) {
  RuleBuilder rule(instruction);
  const Dims& reversed = instruction.dimensions();
  for (int64_t d = 0; d < std::ssize(rule.result_dims(0)); ++d) {
    const bool moves = std::find(reversed.begin(), reversed.end(), d) != reversed.end();
    rule.Everywhere(d, moves ? FactorKind::kPermutation : FactorKind::kPassThrough);
  }
  return rule.Finish();
}

}  // namespace xlad::sharding
