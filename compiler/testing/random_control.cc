#include "compiler/testing/random_control.h"

#include <algorithm>
#include <cmath>

namespace xlad::compiler {

using hlo::Builder;
using hlo::Computation;
using hlo::ElementType;
using hlo::Instruction;
using hlo::Opcode;
using hlo::Shape;

namespace {

std::vector<Instruction*> Arrays(const Pool& pool) {
  std::vector<Instruction*> arrays;
  for (const Sample& value : pool) arrays.push_back(value.array);
  return arrays;
}

}  // namespace

void RandomControl::Grow(Builder* builder, Pool* pool, int count, int depth) {
  for (int i = 0; i < count; ++i) {
    const Sample made = Settle(builder, One(builder, *pool, depth));
    if (made) pool->push_back(made);
  }
}

Sample RandomControl::One(Builder* builder, const Pool& pool, int depth) {
  switch (Below(16)) {
    case 0: case 1: return RandomShapeChange(builder, pool);
    case 2: return RandomSlice(builder, pool);
    case 3: return RandomIndexed(builder, pool);
    case 4: case 5: return RandomReduction(builder, pool);
    case 6: case 7: return RandomContraction(builder, pool);
    case 8: return RandomOrder(builder, pool);
    case 9: return depth < 2 ? While(builder, pool, depth) : Sample();
    case 10: return depth < 2 ? Conditional(builder, pool, depth) : Sample();
    case 11: return depth < 2 && OneIn(2) ? Call(builder, pool, depth) : extra_(builder, pool);
    case 12: return extra_(builder, pool);
    default: return RandomElementwise(builder, pool);
  }
}

Sample RandomControl::Contract(Builder* builder, Sample value, const Sample& slot) {
  if (RoundingOf(value.type()) == 0) return value;
  if (slot.exact()) {  // On the slot's grid and in its bounds.
    value.fraction = 100;
    value.bound = 0;
    value = Settle(builder, {builder->Binary(Opcode::kMaximum, value.array, Splat(builder, value.array, -7)), 7, 0, 0});
    value.array = builder->Binary(Opcode::kMinimum, value.array, Splat(builder, value.array, 7));
    value.array = builder->Unary(Opcode::kFloor, value.array);
    return {value.array, 7, 0, 0};
  }
  const double most = std::max(value.error / slot.error, value.bound / slot.bound);
  if (most <= 1) return value;
  const double scale = std::ldexp(1.0, -static_cast<int>(std::ceil(std::log2(most))));
  value.array = builder->Binary(Opcode::kMultiply, value.array, Splat(builder, value.array, scale));
  return {value.array, slot.bound, 0, slot.error};
}

// A counter and values of the pool, as they may be in every iteration.
Pool RandomControl::Carried(Builder* builder, const Pool& pool) {
  Pool carried = {{builder->Scalar(ElementType::kS32, 0)}};
  for (int i = 1 + Below(4); i > 0; --i) {
    Sample slot = Pick(pool);
    const double unit = RoundingOf(slot.type());
    if (unit > 0 && slot.exact() && !tensor::IsComplex(slot.type())) {
      slot = Contract(builder, slot, slot);
    } else if (unit > 0) {
      slot.error = std::max(slot.error * 4, 64 * unit * std::max(slot.bound, 1.0));
      slot.bound = std::max(slot.bound, 1.0);
    }
    carried.push_back(slot);
  }
  return carried;
}

Pool RandomControl::Open(Builder* builder, const Shape& tuple, const Pool& like) {
  Instruction* parameter = builder->Parameter(0, tuple);
  Pool elements;
  for (size_t i = 0; i < like.size(); ++i) {
    elements.push_back(Like(like[i], builder->GetTupleElement(parameter, i)));
  }
  return elements;
}

Computation* RandomControl::Condition(const Shape& shape, const Pool& slots) {
  Computation* condition = module().Add(std::make_unique<Computation>("condition"));
  Builder builder(condition);
  const Pool open = Open(&builder, shape, slots);
  Instruction* more = builder.Compare(hlo::Comparison::kLt, open[0].array,
                                      builder.Scalar(ElementType::kS32, OneIn(4) ? Below(13) : Below(5)));
  const Sample other = open.back();
  if (OneIn(4) && other.exact() && !constant_selectors_ && RoundingOf(other.type()) == 0) {  // Depends on data, too.
    const Sample scalar = Fit(&builder, other, ElementType::kS32, {});
    more = builder.Binary(Opcode::kAnd, more,
                          builder.Compare(hlo::Comparison::kLt, scalar.array, builder.Scalar(ElementType::kS32, 6)));
  }
  condition->set_root(more);
  return condition;
}

Sample RandomControl::While(Builder* builder, const Pool& pool, int depth) {
  const Pool slots = Carried(builder, pool);
  Instruction* init = builder->Tuple(Arrays(slots));
  const Shape shape = init->shape();
  Computation* condition = Condition(shape, slots);
  Computation* body = module().Add(std::make_unique<Computation>("body"));
  Builder inside(body);
  const Pool old = Open(&inside, shape, slots);
  Pool inner = old;
  Grow(&inside, &inner, 2 + Below(6), depth + 1);
  std::vector<Instruction*> next = {
      inside.Binary(Opcode::kAdd, old[0].array, inside.Scalar(ElementType::kS32, 1 + Below(3)))};
  for (size_t i = 1; i < old.size(); ++i) {
    // Some unchanged, some swapped, some new.
    Sample value = OneIn(4) ? old[i] : Pick(inner);
    if (old[i].exact() && !value.exact()) value = old[i];
    value = Fit(&inside, value, old[i].type(), old[i].dims());
    next.push_back(value.array == old[i].array ? value.array : Contract(&inside, value, old[i]).array);
  }
  body->set_root(inside.Tuple(next));
  auto loop = std::make_unique<Instruction>(Opcode::kWhile, shape);
  loop->mutable_called() = {condition, body};
  Instruction* made = builder->computation()->Add(std::move(loop), {init});
  const int pick = 1 + Below(std::ssize(old) - 1);
  return Like(slots[pick], builder->GetTupleElement(made, pick));
}

Sample RandomControl::Conditional(Builder* builder, const Pool& pool, int depth) {
  const Pool slots = Carried(builder, pool);
  Instruction* argument = builder->Tuple(Arrays(slots));
  const bool two = OneIn(2);
  const ElementType type = two ? ElementType::kPred : ElementType::kS32;
  const Sample chosen = PickExact(pool);
  Instruction* selector = chosen && !constant_selectors_ ? Fit(builder, chosen, type, {}).array
                                                         : builder->Scalar(type, Below(2));
  auto conditional = std::make_unique<Instruction>(Opcode::kConditional, Shape());
  std::vector<Instruction*> operands = {selector};
  Sample result, other;
  for (int b = two ? 2 : 1 + Below(3); b > 0; --b) {
    Computation* branch = module().Add(std::make_unique<Computation>("branch"));
    Builder inside(branch);
    Pool inner = Open(&inside, argument->shape(), slots);
    Grow(&inside, &inner, 1 + Below(4), depth + 1);
    Sample x = Pick(inner), y = Pick(inner);
    if (result) {
      x = Fit(&inside, x, result.type(), result.dims());
      y = Fit(&inside, y, other.type(), other.dims());
    } else {
      result = x;
      other = y;
    }
    result = {result.array, std::max(result.bound, x.bound), std::max(result.fraction, x.fraction),
              std::max(result.error, x.error)};
    branch->set_root(inside.Tuple({x.array, y.array}));
    conditional->mutable_called().push_back(branch);
    operands.push_back(argument);
  }
  conditional->mutable_shape() = conditional->called()[0]->root()->shape();
  Instruction* made = builder->computation()->Add(std::move(conditional), operands);
  return Like(result, builder->GetTupleElement(made, 0));
}

Sample RandomControl::Call(Builder* builder, const Pool& pool, int depth) {
  Computation* callee = module().Add(std::make_unique<Computation>("callee"));
  Builder inside(callee);
  Pool inner;
  std::vector<Instruction*> arguments;
  for (int p = 1 + Below(3); p > 0; --p) {
    const Sample argument = Pick(pool);
    inner.push_back(Like(argument, inside.Parameter(std::ssize(arguments), argument.array->shape())));
    arguments.push_back(argument.array);
  }
  Grow(&inside, &inner, 1 + Below(5), depth + 1);
  const Sample result = inner.back();
  callee->set_root(result.array);
  return Like(result, builder->Call(callee, arguments));
}

}  // namespace xlad::compiler
