#include "compiler/testing/random_control.h"

#include <algorithm>
#include <cmath>

#include "compiler/testing/loop_counter.h"

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

// The relative frequency of a family of instructions.
struct Weight {
  Family family;
  int weight;
};
constexpr Weight kFamilies[] = {{RandomElementwise, 4}, {RandomExact, 5},     {RandomShapeChange, 3},
                                {RandomSlice, 3},       {RandomIndexed, 2},   {RandomReduction, 3},
                                {RandomFold, 3},        {RandomContraction, 2}, {RandomOrder, 1}};

}  // namespace

RandomControl::RandomControl(hlo::Module* module, Random* random, Options options, ExtraFamily extra)
    : RandomValues(module, random, options), extra_(std::move(extra)), favorite_(RandomFamily()) {}

Family RandomControl::RandomFamily() {
  int total = 0;
  for (const Weight& row : kFamilies) total += row.weight;
  int pick = Below(total);
  for (const Weight& row : kFamilies) {
    if ((pick -= row.weight) < 0) return row.family;
  }
  return RandomElementwise;
}

void RandomControl::AddValues(Builder& builder, Pool* pool, int count, int depth) {
  for (int i = 0; i < count; ++i) {
    const Sample made = Normalize(builder, MakeValue(builder, *pool, depth));
    if (made) pool->push_back(made);
  }
}

Sample RandomControl::MakeValue(Builder& builder, const Pool& pool, int depth) {
  if (OneIn(3)) return favorite_(*this, builder, pool);
  switch (Below(12)) {
    case 0: return depth < 2 ? While(builder, pool, depth) : Sample();
    case 1: return depth < 2 ? Conditional(builder, pool, depth) : Sample();
    case 2: return depth < 2 && OneIn(3) ? Call(builder, pool, depth) : extra_(builder, pool);
    case 3: return options().library_calls && OneIn(4) ? RandomLinearAlgebra(*this, builder, pool)
                                                       : extra_(builder, pool);
    default: break;
  }
  return RandomFamily()(*this, builder, pool);
}

Sample RandomControl::FitSlot(Builder& builder, Sample value, const Sample& slot, Agreement agreement) {
  if (!slot.exact() && (!value.finite())) return {};
  if (slot.exact() && (!value.exact() || AgreementOf(value.array) > agreement)) return {};
  if (!slot.finite() && !value.exact()) return {};
  if (slot.finite() && !value.finite() && RoundingOf(slot.type()) > 0) return {};
  value = Fit(builder, value, slot.type(), slot.dims());
  if (value.array == slot.array || RoundingOf(value.type()) == 0 || !slot.finite()) return value;
  if (slot.exact()) {  // Rounds the value to the slot's grid and clamps it to the slot's bound.
    if (!value.exact()) return {};
    value.array = builder.Binary(Opcode::kMaximum, value.array, Splat(builder, value.array, -7));
    value.array = builder.Binary(Opcode::kMinimum, value.array, Splat(builder, value.array, 7));
    return {builder.Unary(Opcode::kFloor, value.array), 7, 0, 0};
  }
  const double most = std::max(value.error / slot.error, value.bound / slot.bound);
  if (most <= 1) return value;
  const double scale = std::ldexp(1.0, -static_cast<int>(std::ceil(std::log2(most))));
  value.array = builder.Binary(Opcode::kMultiply, value.array, Splat(builder, value.array, scale));
  return {value.array, slot.bound, 0, slot.error};
}

Pool RandomControl::Carried(Builder& builder, const Pool& pool) {
  Pool carried;
  for (int i = 1 + Below(4); i > 0; --i) {
    if (!carried.empty() && OneIn(3)) {  // The same array occurs twice.
      carried.push_back(carried[Below(std::ssize(carried))]);
      continue;
    }
    Sample slot = Pick(pool);
    const double unit = RoundingOf(slot.type());
    if (unit > 0 && slot.finite() && slot.exact() && !tensor::IsComplex(slot.type())) {
      slot.array = builder.Unary(Opcode::kFloor, slot.array);
      slot.array = builder.Binary(Opcode::kMaximum, slot.array, Splat(builder, slot.array, -7));
      slot.array = builder.Binary(Opcode::kMinimum, slot.array, Splat(builder, slot.array, 7));
      slot = {slot.array, 7, 0, 0};
    } else if (unit > 0 && slot.finite()) {
      slot.error = std::max(slot.error * 4, 64 * unit * std::max(slot.bound, 1.0));
      slot.bound = std::max(slot.bound, 1.0);
    }
    carried.push_back(slot);
  }
  return carried;
}

Pool RandomControl::OpenParameter(Builder& builder, const Shape& tuple, const Pool& like) {
  Instruction* parameter = builder.Parameter(0, tuple);
  Pool elements;
  for (size_t i = 0; i < like.size(); ++i) {
    elements.push_back(Like(like[i], builder.GetTupleElement(parameter, i)));
  }
  return elements;
}

// Makes a condition that also depends on the data.
Instruction* RandomControl::AndData(Builder& builder, Instruction* condition, const Sample& value) {
  if (uniform_control_ || !value.exact() || RoundingOf(value.type()) > 0) return condition;
  const Sample scalar = Fit(builder, value, ElementType::kS32, {});
  return builder.Binary(Opcode::kAnd, condition,
                        builder.Compare(hlo::Comparison::kLt, scalar.array, builder.Scalar(ElementType::kS32, 6)));
}

// The first carried element is the counter. In most loops, the step of the counter is a constant in the body. In other
// loops, it is the last carried element.
Sample RandomControl::While(Builder& builder, const Pool& pool, int depth) {
  const int values = 1 + Below(6);
  const LoopCounter counter = RandomLoopCounter(*this, depth == 0 && values < 3 && OneIn(3) ? 260 : 14);
  Pool slots = Carried(builder, pool);
  slots.insert(slots.begin(), {IntegerScalar(builder, counter.type, counter.init)});
  const bool carries_step = OneIn(6);
  if (carries_step) slots.push_back({IntegerScalar(builder, counter.type, counter.step)});
  std::vector<Agreement> agreements;
  for (const Sample& slot : slots) {
    const Agreement weakest = OneIn(3) ? Agreement::kMagnitudes : OneIn(2) ? Agreement::kNumbers : Agreement::kBits;
    const bool weakened = RoundingOf(slot.type()) > 0 && slot.exact();
    agreements.push_back(weakened ? std::max(AgreementOf(slot.array), weakest) : AgreementOf(slot.array));
  }
  const auto open = [&](Builder& inside, const Shape& shape) {
    Pool opened = OpenParameter(inside, shape, slots);
    for (size_t i = 0; i < opened.size(); ++i) SetAgreement(opened[i].array, agreements[i]);
    return opened;
  };
  Instruction* init = builder.Tuple(Arrays(slots));
  const Shape shape = init->shape();
  Computation* condition = module().Add(std::make_unique<Computation>("condition"));
  Builder test(condition);
  const Pool tested = open(test, shape);
  Instruction* more = counter.Condition(*this, test, tested[0].array);
  condition->set_root(OneIn(4) ? AndData(test, more, tested.back()) : more);
  Computation* body = module().Add(std::make_unique<Computation>("body"));
  Builder inside(body);
  const Pool old = open(inside, shape);
  Pool inner = old;
  AddValues(inside, &inner, values, depth + 1);
  Instruction* step = carries_step ? old.back().array : IntegerScalar(inside, counter.type, counter.step);
  std::vector<Instruction*> next = {counter.Next(*this, inside, old[0].array, step)};
  for (size_t i = 1; i < old.size(); ++i) {  // Some elements are unchanged, some are swapped, and some are new.
    const bool fixed = carries_step && i + 1 == old.size();
    const Sample value = fixed || OneIn(4) ? old[i] : FitSlot(inside, Pick(inner), old[i], agreements[i]);
    next.push_back(value ? value.array : old[i].array);
  }
  body->set_root(inside.Tuple(next));
  auto loop = std::make_unique<Instruction>(Opcode::kWhile, shape);
  loop->mutable_called() = {condition, body};
  Instruction* made = builder.computation()->Add(std::move(loop), {init});
  const int pick = OneIn(4) ? 0 : Below(std::ssize(old));
  Instruction* result = builder.GetTupleElement(made, pick);
  SetAgreement(result, agreements[pick]);
  return Like(slots[pick], result);
}

Sample RandomControl::Conditional(Builder& builder, const Pool& pool, int depth) {
  const Pool slots = Carried(builder, pool);
  Instruction* argument = builder.Tuple(Arrays(slots));
  const bool two = OneIn(2);
  const ElementType type = two ? ElementType::kPred : ElementType::kS32;
  const Sample chosen = PickExact(pool);
  Instruction* selector = chosen && !uniform_control_ ? Fit(builder, chosen, type, {}).array
                                                      : builder.Scalar(type, Below(2));
  auto conditional = std::make_unique<Instruction>(Opcode::kConditional, Shape());
  std::vector<Instruction*> operands = {selector};
  Sample results[2];
  Agreement agreements[2] = {Agreement::kBits, Agreement::kBits};
  for (int b = two ? 2 : 1 + Below(3); b > 0; --b) {
    Computation* branch = module().Add(std::make_unique<Computation>("branch"));
    Builder inside(branch);
    Pool inner = OpenParameter(inside, argument->shape(), slots);
    for (size_t i = 0; i < slots.size(); ++i) SetAgreement(inner[i].array, AgreementOf(slots[i].array));
    AddValues(inside, &inner, 1 + Below(4), depth + 1);
    std::vector<Instruction*> roots;
    for (int r = 0; r < 2; ++r) {
      Sample x = Pick(inner);
      if (results[r]) x = Fit(inside, x, results[r].type(), results[r].dims());
      results[r] = results[r] ? JoinOf(results[r], x, results[r].array) : x;
      if (!results[r].finite() && !results[r].exact()) return {};
      agreements[r] = std::max(agreements[r], AgreementOf(x.array));
      roots.push_back(x.array);
    }
    branch->set_root(inside.Tuple(roots));
    conditional->mutable_called().push_back(branch);
    operands.push_back(argument);
  }
  conditional->mutable_shape() = conditional->called()[0]->root()->shape();
  Instruction* made = builder.computation()->Add(std::move(conditional), operands);
  const int pick = Below(2);
  Instruction* result = builder.GetTupleElement(made, pick);
  SetAgreement(result, agreements[pick]);
  return Like(results[pick], result);
}

Sample RandomControl::Call(Builder& builder, const Pool& pool, int depth) {
  Computation* callee = module().Add(std::make_unique<Computation>("callee"));
  Builder inside(callee);
  Pool inner;
  std::vector<Instruction*> arguments;
  for (int p = 1 + Below(3); p > 0; --p) {
    const Sample argument = Pick(pool);
    inner.push_back(Like(argument, inside.Parameter(std::ssize(arguments), argument.array->shape())));
    SetAgreement(inner.back().array, AgreementOf(argument.array));
    arguments.push_back(argument.array);
  }
  AddValues(inside, &inner, 1 + Below(5), depth + 1);
  const Sample result = inner.back();
  callee->set_root(result.array);
  Instruction* made = builder.Call(callee, arguments);
  SetAgreement(made, AgreementOf(result.array));
  return Like(result, made);
}

}  // namespace xlad::compiler
