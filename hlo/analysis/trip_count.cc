#include "hlo/analysis/trip_count.h"

#include <cstring>

namespace xlad::hlo {
namespace {

using hlo::Comparison;
using hlo::Instruction;
using hlo::Opcode;
using tensor::ElementType;

// Looks through copies and elements taken out of tuples that are built in the same computation.
const Instruction* Resolve(const Instruction* x) {
  for (;;) {
    if (x->opcode() == Opcode::kCopy) {
      x = x->operand(0);
    } else if (x->opcode() == Opcode::kGetTupleElement && x->operand(0)->opcode() == Opcode::kTuple) {
      x = x->operand(0)->operand(x->number());
    } else {
      return x;
    }
  }
}

std::optional<int64_t> IntegerConstant(const Instruction* x) {
  x = Resolve(x);
  if (x->opcode() != Opcode::kConstant || !x->shape().is_scalar() || x->literal()->elided) return std::nullopt;
  if (!tensor::IsInteger(x->shape().type())) return std::nullopt;
  const auto bytes = x->literal()->array.bytes();
  uint64_t raw = 0;
  std::memcpy(&raw, bytes.data(), bytes.size());
  const int unused = 64 - 8 * static_cast<int>(bytes.size());
  if (tensor::IsSigned(x->shape().type())) return static_cast<int64_t>(raw << unused) >> unused;
  return raw > static_cast<uint64_t>(INT64_MAX) ? std::nullopt : std::optional(static_cast<int64_t>(raw));
}

// The element of the computation's tuple parameter that x is, or -1.
int64_t CarriedIndex(const Instruction* x, const hlo::Computation& computation) {
  x = Resolve(x);
  const bool carried = x->opcode() == Opcode::kGetTupleElement && x->operand(0) == computation.parameter(0);
  return carried ? x->number() : -1;
}

Comparison Mirrored(Comparison comparison) {
  switch (comparison) {
    case Comparison::kLt: return Comparison::kGt;
    case Comparison::kLe: return Comparison::kGe;
    case Comparison::kGt: return Comparison::kLt;
    case Comparison::kGe: return Comparison::kLe;
    default: return comparison;
  }
}

// The step that the body adds to element `index`, if it is a constant.
std::optional<int64_t> StepOf(const hlo::Computation& body, int64_t index) {
  const Instruction* root = Resolve(body.root());
  if (root->opcode() != Opcode::kTuple) return std::nullopt;
  const Instruction* next = Resolve(root->operand(index));
  const bool subtracts = next->opcode() == Opcode::kSubtract;
  if (next->opcode() != Opcode::kAdd && !subtracts) return std::nullopt;
  for (int64_t side = 0; side < (subtracts ? 1 : 2); ++side) {
    if (CarriedIndex(next->operand(side), body) != index) continue;
    const std::optional<int64_t> step = IntegerConstant(next->operand(1 - side));
    if (step) return subtracts ? -*step : *step;
  }
  return std::nullopt;
}

std::optional<int64_t> Count(int64_t from, int64_t to, int64_t step, Comparison comparison) {
  if (comparison == Comparison::kLe) ++to;
  if (comparison == Comparison::kGe) --to;
  const bool up = comparison == Comparison::kLt || comparison == Comparison::kLe;
  const bool down = comparison == Comparison::kGt || comparison == Comparison::kGe;
  if (up) return from >= to ? std::optional<int64_t>(0) : step > 0 ? std::optional((to - from + step - 1) / step)
                                                                   : std::nullopt;
  if (down) return from <= to ? std::optional<int64_t>(0) : step < 0 ? std::optional((from - to - step - 1) / -step)
                                                                     : std::nullopt;
  if (comparison != Comparison::kNe || step == 0 || (to - from) % step != 0 || (to - from) / step < 0) {
    return std::nullopt;
  }
  return (to - from) / step;
}

}  // namespace

std::optional<int64_t> TripCount(const Instruction& loop) {
  if (loop.opcode() != Opcode::kWhile || loop.called().size() != 2) return std::nullopt;
  const hlo::Computation& condition = *loop.called()[0];
  const Instruction* compare = Resolve(condition.root());
  if (compare->opcode() != Opcode::kCompare) return std::nullopt;
  for (int64_t side = 0; side < 2; ++side) {
    const int64_t index = CarriedIndex(compare->operand(side), condition);
    const std::optional<int64_t> bound = IntegerConstant(compare->operand(1 - side));
    if (index < 0 || !bound) continue;
    const Instruction* init = Resolve(loop.operand(0));
    if (init->opcode() != Opcode::kTuple) return std::nullopt;
    const std::optional<int64_t> from = IntegerConstant(init->operand(index));
    const std::optional<int64_t> step = StepOf(*loop.called()[1], index);
    if (!from || !step) return std::nullopt;
    const Comparison comparison = compare->attributes().comparison;
    return Count(*from, *bound, *step, side == 0 ? comparison : Mirrored(comparison));
  }
  return std::nullopt;
}

}  // namespace xlad::hlo
