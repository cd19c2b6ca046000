// Random sorts, top-k, random bits and optimization barriers.
#include <cmath>

#include "compiler/testing/random_values.h"

namespace xlad::compiler {

namespace {

Sample Sort(RandomValues& random, Builder& builder, Sample x, const Pool& pool) {
  if (x.ndim() == 0 || tensor::IsComplex(x.type()) || x.type() == ElementType::kPred) return {};
  // NaNs, and zeros of different signs, are ordered only by the total order, which depends on all bits.
  const bool total = tensor::IsFloating(x.type()) && random.HasCertainBits(x) && (!x.finite() || random.OneIn(3));
  if (!x.exact() || (!x.finite() && !total)) return {};
  const int64_t along = random.Below(x.ndim());
  const Sample y = random.Fit(builder, random.Pick(pool), random.RandomType(), x.dims());
  const bool two = random.OneIn(2);
  auto sort = std::make_unique<Instruction>(Opcode::kSort, x.array->shape());
  sort->set_dimensions({along});
  sort->mutable_attributes().is_stable = true;
  Computation* less = random.module().Add(std::make_unique<Computation>("less"));
  Builder in(less);
  Instruction* a = in.Parameter(0, Shape(x.type(), {}));
  Instruction* b = in.Parameter(1, Shape(x.type(), {}));
  if (two) {
    in.Parameter(2, Shape(y.type(), {}));
    in.Parameter(3, Shape(y.type(), {}));
  }
  const int64_t order = random.Below(4);  // Both directions, each with the elements in both orders.
  const hlo::Comparison direction = order % 2 == 0 ? hlo::Comparison::kLt : hlo::Comparison::kGt;
  Instruction* before = order < 2 ? in.Compare(direction, a, b) : in.Compare(direction, b, a);
  if (total) before->mutable_attributes().comparison_type = hlo::ComparisonType::kFloatTotalOrder;
  less->set_root(before);
  sort->mutable_called() = {less};
  if (!two) return Like(x, Append(builder, std::move(sort), {x.array}));
  Instruction* made = Append(builder, std::move(sort), {x.array, y.array});
  if (made == nullptr) return {};
  return random.OneIn(3) ? Like(x, builder.GetTupleElement(made, 0)) : Like(y, builder.GetTupleElement(made, 1));
}

Sample TopK(RandomValues& random, Builder& builder, Sample x) {
  // topk uses the total order, so signs of zeros must be certain.
  if (!random.HasCertainBits(x) || !x.finite() || x.ndim() == 0 || x.type() != ElementType::kF32) return {};
  if (x.array->shape().elements() == 0) return {};
  auto top = std::make_unique<Instruction>(Opcode::kTopk, Shape());
  top->mutable_attributes().k = 1 + random.Below(x.dims().back());
  top->mutable_attributes().largest = random.OneIn(2);
  top->mutable_attributes().is_stable = true;
  Instruction* made = Append(builder, std::move(top), {x.array});
  if (made == nullptr) return {};
  if (random.OneIn(2)) return Like(x, builder.GetTupleElement(made, 0));
  return {builder.GetTupleElement(made, 1)};
}

Sample RandomBits(RandomValues& random, Builder& builder, const Pool& pool) {
  static constexpr ElementType kTypes[] = {ElementType::kU32, ElementType::kU32, ElementType::kU64, ElementType::kU8,
                                           ElementType::kU16};
  const Sample key = random.PickExact(pool);
  if (!key) return {};
  const bool philox = random.OneIn(3);
  const Sample state = random.Fit(builder, key, ElementType::kU64, {philox ? 3 : 2});
  const Shape shape = Shape::Tuple({state.array->shape(), Shape(kTypes[random.Below(5)], random.RandomDims(3))});
  auto bits = std::make_unique<Instruction>(Opcode::kRngBitGenerator, shape);
  bits->mutable_attributes().rng_algorithm = philox ? "rng_philox" : random.OneIn(2) ? "rng_three_fry" : "rng_default";
  Instruction* made = Append(builder, std::move(bits), {state.array});
  if (made == nullptr) return {};
  return {builder.GetTupleElement(made, random.OneIn(5) ? 0 : 1)};
}

}  // namespace

Sample RandomOrder(RandomValues& random, Builder& builder, const Pool& pool) {
  const Sample x = random.Pick(pool);
  switch (random.Below(5)) {
    case 0: return TopK(random, builder, x);
    case 1: return RandomBits(random, builder, pool);
    case 2: {
      const Sample y = random.Pick(pool);
      Instruction* both = builder.Tuple({x.array, y.array});
      auto barrier = std::make_unique<Instruction>(Opcode::kOptBarrier, both->shape());
      return Like(x, builder.GetTupleElement(Append(builder, std::move(barrier), {both}), 0));
    }
    default: return Sort(random, builder, x, pool);
  }
}

}  // namespace xlad::compiler
