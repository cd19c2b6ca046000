#include "compiler/analysis/trip_count.h"

#include "absl/strings/numbers.h"
#include "compiler/analysis/hlo_util.h"

namespace xlad::compiler {
namespace {

// What tuple element `index` of a value is made from.
const Instruction* Element(const Instruction* value, int64_t index) {
  return value->opcode() == Opcode::kTuple ? value->operand(index) : nullptr;
}

// The tuple element of the computation's parameter that `value` is; -1 where it is none.
int64_t CarriedIndex(const Instruction* value) {
  if (value->opcode() != Opcode::kGetTupleElement) return -1;
  return value->operand(0)->opcode() == Opcode::kParameter ? value->number() : -1;
}

// The constant that the body adds to carried element `index` each round; 0 where it does something else.
int64_t Increment(const Computation& body, int64_t index) {
  const Instruction* next = Element(body.root(), index);
  if (next == nullptr || (next->opcode() != Opcode::kAdd && next->opcode() != Opcode::kSubtract)) return 0;
  const bool adds = next->opcode() == Opcode::kAdd;
  int64_t step = 0;
  if (CarriedIndex(next->operand(0)) == index && ConstantInteger(*next->operand(1), &step)) return adds ? step : -step;
  if (adds && CarriedIndex(next->operand(1)) == index && ConstantInteger(*next->operand(0), &step)) return step;
  return 0;
}

hlo::Comparison Swapped(hlo::Comparison comparison) {
  switch (comparison) {
    case hlo::Comparison::kLt:
      return hlo::Comparison::kGt;
    case hlo::Comparison::kGt:
      return hlo::Comparison::kLt;
    case hlo::Comparison::kLe:
      return hlo::Comparison::kGe;
    case hlo::Comparison::kGe:
      return hlo::Comparison::kLe;
    default:
      return comparison;
  }
}

// A counter: init, init + step, ... while `comparison` with `limit` holds.
struct Count {
  int64_t init, step, limit;
  hlo::Comparison comparison;
};

std::optional<int64_t> Rounds(Count count) {
  if (count.step < 0) {  // The mirror image.
    count = {-count.init, -count.step, -count.limit, Swapped(count.comparison)};
  }
  if (count.step <= 0) return std::nullopt;
  if (count.comparison == hlo::Comparison::kLe) {
    ++count.limit;
  } else if (count.comparison != hlo::Comparison::kLt) {
    return std::nullopt;
  }
  if (count.init >= count.limit) return 0;
  return (count.limit - count.init + count.step - 1) / count.step;
}

}  // namespace

std::optional<int64_t> TripCount(const Instruction& loop) {
  auto noted = loop.frontend_attributes().find(kTripCountAttribute);
  int64_t known = 0;
  if (noted != loop.frontend_attributes().end() && absl::SimpleAtoi(noted->second, &known)) return known;
  const Instruction* test = loop.called()[0]->root();
  if (test->opcode() != Opcode::kCompare) return std::nullopt;
  Count count{0, 0, 0, test->attributes().comparison};
  int64_t index = CarriedIndex(test->operand(0));
  const Instruction* bound = test->operand(1);
  if (index < 0) {
    index = CarriedIndex(test->operand(1));
    bound = test->operand(0);
    count.comparison = Swapped(count.comparison);
  }
  if (index < 0 || !tensor::IsInteger(bound->shape().type()) || !ConstantInteger(*bound, &count.limit)) {
    return std::nullopt;
  }
  const Instruction* init = Element(loop.operand(0), index);
  if (init == nullptr || !ConstantInteger(*init, &count.init)) return std::nullopt;
  count.step = Increment(*loop.called()[1], index);
  constexpr int64_t kBig = int64_t{1} << 40;  // Far from any overflow of the counter.
  if (std::abs(count.init) > kBig || std::abs(count.limit) > kBig || std::abs(count.step) > kBig) return std::nullopt;
  return Rounds(count);
}

}  // namespace xlad::compiler
