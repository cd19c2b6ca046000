// Random reductions whose result depends on the order of the elements or on the initial value.
//
// The evaluator combines elements in row-major order, beginning with the initial value. The reducers of this file are
// not commutative (the last element, the first of equal ones, composition of affine maps) or not associative
// (subtraction), return several results, or begin with a value that is not their identity.
#include <algorithm>
#include <cmath>

#include "compiler/testing/random_values.h"

namespace xlad::compiler {

namespace {

Dims SomeDimensions(RandomValues& random, int64_t ndim) {
  Dims some;
  for (int64_t d = 0; d < ndim; ++d) {
    if (random.OneIn(2)) some.push_back(d);
  }
  if (some.empty()) some.push_back(random.Below(ndim));
  return some;
}

Instruction* FirstOf(RandomValues& random, Builder& builder, Instruction* tuple, Sample* second) {
  Instruction* results[] = {builder.GetTupleElement(tuple, 0), builder.GetTupleElement(tuple, 1)};
  const int pick = random.Below(2);
  second->array = results[1 - pick];
  return results[pick];
}

// Reduces two arrays by `reducer`. Returns one of the two results or, if both are integers of one type, possibly the
// xor of both.
Sample ReducePair(RandomValues& random, Builder& builder, Computation* reducer, const Dims& dimensions,
                  const std::vector<Instruction*>& operands) {
  auto reduce = std::make_unique<Instruction>(Opcode::kReduce, Shape());
  reduce->set_dimensions(dimensions);
  reduce->mutable_called() = {reducer};
  Instruction* made = Append(builder, std::move(reduce), operands);
  if (made == nullptr) return {};
  Sample second;
  Instruction* first = FirstOf(random, builder, made, &second);
  if (first->shape().type() == second.type() && tensor::IsInteger(second.type()) && random.OneIn(2)) {
    return {builder.Binary(Opcode::kXor, first, second.array)};
  }
  return {first};
}

// A random scalar integer: either a small number or a special value of the type.
Instruction* Initial(RandomValues& random, Builder& builder, ElementType type) {
  return random.OneIn(3) ? random.SpecialConstant(builder, type, {})
                         : IntegerScalar(builder, type, random.Below(12));
}

// The tuple `yes` if the condition is true, otherwise `no`, by a conditional whose branches return their operands.
Instruction* ChosenTuple(RandomValues& random, Builder& builder, Instruction* condition, Instruction* yes,
                         Instruction* no) {
  Computation* same = random.module().Add(std::make_unique<Computation>("same"));
  Builder in(same);
  same->set_root(in.Parameter(0, yes->shape()));
  auto conditional = std::make_unique<Instruction>(Opcode::kConditional, yes->shape());
  conditional->mutable_called() = {same, same};
  return builder.computation()->Add(std::move(conditional), {condition, yes, no});
}

// Reduces to the best value and its index. The comparison determines whether the first or the last of equal values is
// the result. The initial value may be the best.
Sample BestWithIndex(RandomValues& random, Builder& builder, const Sample& x) {
  static constexpr hlo::Comparison kComparisons[] = {hlo::Comparison::kGe, hlo::Comparison::kGt, hlo::Comparison::kLe,
                                                     hlo::Comparison::kLt};
  Computation* reducer = random.module().Add(std::make_unique<Computation>("best"));
  Builder in(reducer);
  const Shape value(x.type(), {}), index(ElementType::kS32, {});
  Instruction* a = in.Parameter(0, value);
  Instruction* i = in.Parameter(1, index);
  Instruction* b = in.Parameter(2, value);
  Instruction* j = in.Parameter(3, index);
  const hlo::Comparison comparison = random.OneOf(kComparisons);
  Instruction* keep = in.Compare(comparison, a, b);
  reducer->set_root(random.OneIn(4) ? ChosenTuple(random, in, keep, in.Tuple({a, i}), in.Tuple({b, j}))
                                    : in.Tuple({in.Select(keep, a, b), in.Select(keep, i, j)}));
  const Dims dimensions = random.OneIn(2) ? Dims{random.Below(x.ndim())} : SomeDimensions(random, x.ndim());
  Instruction* numbers = builder.Iota(Shape(ElementType::kS32, x.dims()), dimensions.back());
  const bool up = comparison == hlo::Comparison::kGe || comparison == hlo::Comparison::kGt;
  const double worst = !up ? 100 : tensor::IsUnsigned(x.type()) ? 0 : -100;
  Instruction* init = random.OneIn(3) ? builder.Scalar(x.type(), 1) : builder.Scalar(x.type(), worst);
  Instruction* none = builder.Scalar(ElementType::kS32, random.OneIn(2) ? -1 : 0);
  Sample result = ReducePair(random, builder, reducer, dimensions, {x.array, numbers, init, none});
  if (result && tensor::IsFloating(result.type())) {
    result.bound = std::max(x.bound, 100.0);
    result.fraction = x.fraction;
  }
  return result;
}

// Composes maps x -> a x + b. Composition is associative, not commutative, and exact in integers that wrap around.
Sample AffineMaps(RandomValues& random, Builder& builder, const Sample& x, const Pool& pool) {
  Computation* reducer = random.module().Add(std::make_unique<Computation>("compose"));
  Builder in(reducer);
  const Shape scalar(x.type(), {});
  Instruction* a = in.Parameter(0, scalar);
  Instruction* b = in.Parameter(1, scalar);
  Instruction* c = in.Parameter(2, scalar);
  Instruction* d = in.Parameter(3, scalar);
  reducer->set_root(in.Tuple({in.Binary(Opcode::kMultiply, a, c),
                              in.Binary(Opcode::kAdd, in.Binary(Opcode::kMultiply, b, c), d)}));
  const Sample y = random.FiniteOperand(builder, pool, x.type(), x.dims());
  return ReducePair(random, builder, reducer, SomeDimensions(random, x.ndim()),
                    {x.array, y.array, Initial(random, builder, x.type()), Initial(random, builder, x.type())});
}

// Two independent reductions by one reducer: a sum and a maximum, a product and a sum, ...
Sample TwoAtOnce(RandomValues& random, Builder& builder, const Sample& x, const Pool& pool) {
  static constexpr Opcode kOpcodes[] = {Opcode::kAdd, Opcode::kMultiply, Opcode::kMaximum, Opcode::kMinimum,
                                        Opcode::kXor, Opcode::kAnd, Opcode::kOr};
  const Sample y = random.FiniteOperand(builder, pool, random.OneIn(2) ? x.type() : random.RandomInteger(), x.dims());
  Computation* reducer = random.module().Add(std::make_unique<Computation>("two"));
  Builder in(reducer);
  Instruction* a = in.Parameter(0, Shape(x.type(), {}));
  Instruction* b = in.Parameter(1, Shape(y.type(), {}));
  Instruction* c = in.Parameter(2, Shape(x.type(), {}));
  Instruction* d = in.Parameter(3, Shape(y.type(), {}));
  reducer->set_root(in.Tuple({in.Binary(random.OneOf(kOpcodes), a, c), in.Binary(random.OneOf(kOpcodes), b, d)}));
  return ReducePair(random, builder, reducer, SomeDimensions(random, x.ndim()),
                    {x.array, y.array, Initial(random, builder, x.type()), Initial(random, builder, y.type())});
}

// Element i along one dimension combines the elements up to i, or from i on. The padding of the windows has the initial
// value.
Instruction* CumulativeWindow(RandomValues& random, Builder& builder, const Sample& x, Instruction* init,
                              Computation* reducer) {
  hlo::Window window(x.dims().size());
  const int64_t d = random.Below(x.ndim());
  hlo::WindowDimension& along = window[d];
  along.size = x.dims()[d];
  (random.OneIn(2) ? along.padding_low : along.padding_high) = along.size - 1;
  auto reduce = std::make_unique<Instruction>(Opcode::kReduceWindow, Shape(x.type(), {}));
  reduce->mutable_attributes().window = window;
  reduce->mutable_called() = {reducer};
  return Append(builder, std::move(reduce), {x.array, init});
}

// Reduces one integer array: by subtraction, to its last element, or by a commutative reducer with any initial value.
Sample InOrder(RandomValues& random, Builder& builder, const Sample& x) {
  Computation* reducer = nullptr;
  const int kind = random.Below(3);
  if (kind == 0) {
    reducer = hlo::ScalarReducer(&random.module(), Opcode::kSubtract, x.type());
  } else if (kind == 1) {
    reducer = random.module().Add(std::make_unique<Computation>("last"));
    Builder in(reducer);
    in.Parameter(0, Shape(x.type(), {}));
    reducer->set_root(in.Parameter(1, Shape(x.type(), {})));
  } else {
    static constexpr Opcode kOpcodes[] = {Opcode::kAdd, Opcode::kMultiply, Opcode::kMaximum,
                                          Opcode::kMinimum, Opcode::kXor, Opcode::kAnd};
    reducer = hlo::ScalarReducer(&random.module(), random.OneOf(kOpcodes), x.type());
  }
  Instruction* init = Initial(random, builder, x.type());
  if (random.OneIn(3) && x.array->shape().elements() > 0) {
    return {CumulativeWindow(random, builder, x, init, reducer)};
  }
  return {builder.Reduce(x.array, init, SomeDimensions(random, x.ndim()), reducer)};
}

// Reduces over dimensions of size 1, so each element is combined only with the initial value. The result is exact for
// any operation and any values.
Sample OverUnitDimensions(RandomValues& random, Builder& builder, const Pool& pool) {
  static constexpr Opcode kOpcodes[] = {Opcode::kAdd,    Opcode::kAdd,     Opcode::kSubtract, Opcode::kMultiply,
                                        Opcode::kDivide, Opcode::kMaximum, Opcode::kMinimum};
  Sample x = random.Pick(pool);
  if (x.type() == ElementType::kPred || tensor::IsComplex(x.type()) || !random.HasCertainBits(x)) return {};
  Dims units;
  for (int64_t d = 0; d < x.ndim(); ++d) {
    if (x.dims()[d] == 1 && !random.OneIn(4)) units.push_back(d);
  }
  if (units.empty()) {
    Dims sizes = x.dims();
    units.push_back(random.Below(x.ndim() + 1));
    sizes.insert(sizes.begin() + units[0], 1);
    x.array = builder.Reshape(x.array, sizes);
  }
  const Opcode opcode = random.OneOf(kOpcodes);
  Computation* reducer = nullptr;
  if (random.OneIn(2)) {
    reducer = hlo::ScalarReducer(&random.module(), opcode, x.type());
  } else {  // The reducer swaps the operands of the operation.
    reducer = random.module().Add(std::make_unique<Computation>("swapped"));
    Builder in(reducer);
    Instruction* a = in.Parameter(0, Shape(x.type(), {}));
    reducer->set_root(in.Binary(opcode, in.Parameter(1, Shape(x.type(), {})), a));
  }
  static constexpr double kInits[] = {0.0, 0.0, -0.0, 1.0, 5.0};
  Instruction* init = random.options().specials && random.OneIn(4) ? random.SpecialConstant(builder, x.type(), {})
                                                                   : builder.Scalar(x.type(), random.OneOf(kInits));
  return {builder.Reduce(x.array, init, units, reducer), kUnbounded, 0, 0};
}

}  // namespace

Sample RandomFold(RandomValues& random, Builder& builder, const Pool& pool) {
  if (random.OneIn(2)) return OverUnitDimensions(random, builder, pool);
  const Sample x = random.PickExact(pool);
  if (!x || x.ndim() == 0 || tensor::IsComplex(x.type()) || x.type() == ElementType::kPred) return {};
  if (tensor::IsFloating(x.type()) || random.OneIn(3)) return BestWithIndex(random, builder, x);
  switch (random.Below(3)) {
    case 0: return AffineMaps(random, builder, x, pool);
    case 1: return TwoAtOnce(random, builder, x, pool);
    default: return InOrder(random, builder, x);
  }
}

}  // namespace xlad::compiler
