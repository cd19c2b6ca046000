#include "hlo/analysis/trip_count.h"

#include <cstring>

#include "hlo/analysis/constants.h"

namespace xlad::hlo {
namespace {

// Holds a residue modulo 2^bits for up to 64 bits, or the product of two such residues.
using Wide = unsigned __int128;

// A part of a loop's state is identified by the number of a tuple element, or by kWhole for the complete state.
// kNotCarried means that a value is not part of the state.
constexpr int64_t kWhole = -1, kNotCarried = -2;

// Looks through copies, and through get-tuple-elements whose operand is a tuple instruction.
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

// Returns which part of the computation's parameter `x` is, or kNotCarried.
int64_t CarriedElement(const Instruction* x, const Computation& computation) {
  x = Resolve(x);
  if (x == computation.parameter(0)) return kWhole;
  const bool carried = x->opcode() == Opcode::kGetTupleElement && Resolve(x->operand(0)) == computation.parameter(0);
  return carried ? x->number() : kNotCarried;
}

// The instruction that computes one element of a loop's state, or null if `state` is not built by a tuple instruction.
const Instruction* ElementOf(const Instruction* state, int64_t element) {
  state = Resolve(state);
  if (element == kWhole) return state;
  return state->opcode() == Opcode::kTuple ? Resolve(state->operand(element)) : nullptr;
}

// Counts the iterations of one loop. All values are residues modulo `modulus_` = 2^bits, where the type of the
// induction variable has that many bits.
class Counter {
 public:
  explicit Counter(const Instruction& loop)
      : init_(loop.operand(0)), condition_(*loop.called()[0]), body_(*loop.called()[1]) {}

  std::optional<CountedLoop> Count();

 private:
  // The residue of `x` if it is the same constant in every iteration, otherwise nullopt. `computation` is the condition
  // or the body, whichever contains `x`.
  std::optional<Wide> Constant(const Instruction* x, const Computation& computation) const;
  std::optional<Wide> ConstantBits(const Instruction* x) const;
  // The residue that the body adds to the induction variable.
  std::optional<Wide> Step() const;
  int64_t Number(Wide residue) const;
  std::optional<int64_t> CountFrom(Wide init, Wide step, Comparison comparison, Wide bound) const;

  const Instruction* init_;
  const Computation& condition_;
  const Computation& body_;
  int64_t element_ = kNotCarried;  // The induction variable.
  tensor::ElementType type_ = tensor::ElementType::kInvalid;
  Wide modulus_ = 0;
};

std::optional<Wide> Counter::ConstantBits(const Instruction* x) const {
  const Literal* literal = x->shape().is_scalar() && x->shape().type() == type_ ? SplatLiteral(*x) : nullptr;
  if (literal == nullptr) return std::nullopt;
  uint64_t bits = 0;
  std::memcpy(&bits, literal->array.bytes().data(), tensor::ByteWidth(type_));
  return Wide{bits} % modulus_;
}

std::optional<Wide> Counter::Constant(const Instruction* x, const Computation& computation) const {
  const int64_t element = CarriedElement(x, computation);
  if (element == kNotCarried) return ConstantBits(Resolve(x));
  const Instruction* next = ElementOf(body_.root(), element);
  if (next == nullptr || CarriedElement(next, body_) != element) return std::nullopt;
  const Instruction* init = ElementOf(init_, element);
  return init == nullptr ? std::nullopt : ConstantBits(init);
}

std::optional<Wide> Counter::Step() const {
  const Instruction* next = ElementOf(body_.root(), element_);
  if (next == nullptr) return std::nullopt;
  const bool subtracts = next->opcode() == Opcode::kSubtract;
  if (next->opcode() != Opcode::kAdd && !subtracts) return std::nullopt;
  for (int64_t side = 0; side < (subtracts ? 1 : 2); ++side) {
    if (CarriedElement(next->operand(side), body_) != element_) continue;
    const std::optional<Wide> step = Constant(next->operand(1 - side), body_);
    if (step) return subtracts ? (modulus_ - *step) % modulus_ : *step;
  }
  return std::nullopt;
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

Wide CeilDivide(Wide a, Wide b) { return (a + b - 1) / b; }

// The smallest k with first <= k * step mod modulus <= last, for 0 <= first <= last < modulus and 0 <= step < modulus,
// or nullopt if there is none. This is Euclid's algorithm on (step, modulus). If a multiple of `step` below `modulus`
// is in the range, it determines k. Otherwise k follows from y, the smallest number of wrap-arounds for which a
// multiple of `step` is in [first + y * modulus, last + y * modulus]. Finding y is the same problem modulo `step`.
std::optional<Wide> FirstMultipleIn(Wide step, Wide modulus, Wide first, Wide last) {
  if (first == 0) return 0;
  if (step == 0) return std::nullopt;
  if (2 * step > modulus) return FirstMultipleIn(modulus - step, modulus, modulus - last, modulus - first);
  const Wide k = CeilDivide(first, step);
  if (k * step <= last) return k;
  const std::optional<Wide> wraps =
      FirstMultipleIn((step - modulus % step) % step, step, first % step, last % step);
  if (!wraps) return std::nullopt;
  return CeilDivide(first + *wraps * modulus, step);
}

// The loop stops at the first value in a range of consecutive residues, which may wrap around from the largest value
// to the smallest.
std::optional<int64_t> Counter::CountFrom(Wide init, Wide step, Comparison comparison, Wide bound) const {
  const Wide smallest = tensor::IsSigned(type_) ? modulus_ / 2 : 0;
  Wide first = 0, size = 0;  // The range is [first, first + size) modulo modulus_.
  const auto from_to = [&](Wide from, Wide end) {  // `end` is excluded. If from == end, the range has all residues.
    first = from % modulus_;
    size = (end + modulus_ - first) % modulus_;
    if (size == 0) size = modulus_;
  };
  switch (comparison) {
    case Comparison::kEq: from_to(bound + 1, bound); break;
    case Comparison::kNe: from_to(bound, bound + 1); break;
    case Comparison::kLt: from_to(bound, smallest); break;
    case Comparison::kGe:
      if (bound == smallest) return std::nullopt;
      from_to(smallest, bound);
      break;
    case Comparison::kGt: from_to(smallest, bound + 1); break;
    case Comparison::kLe:
      if ((bound + 1) % modulus_ == smallest) return std::nullopt;
      from_to(bound + 1, smallest);
      break;
  }
  const Wide distance = (first + modulus_ - init) % modulus_;  // The distance from `init` up to `first`.
  if (distance + size > modulus_ || distance == 0) return 0;   // `init` is in the range.
  const std::optional<Wide> count = FirstMultipleIn(step, modulus_, distance, distance + size - 1);
  if (!count || *count > Wide{INT64_MAX}) return std::nullopt;
  return *count;
}

// The residue as a number of the induction variable's type.
int64_t Counter::Number(Wide residue) const {
  const bool negative = tensor::IsSigned(type_) && residue >= modulus_ / 2;
  return negative ? residue - modulus_ : residue;
}

std::optional<CountedLoop> Counter::Count() {
  const Instruction* compare = Resolve(condition_.root());
  if (compare->opcode() != Opcode::kCompare) return std::nullopt;
  type_ = compare->operand(0)->shape().type();
  if (!compare->operand(0)->shape().is_scalar() || !tensor::IsInteger(type_)) return std::nullopt;
  modulus_ = Wide{1} << tensor::BitWidth(type_);
  for (int64_t side = 0; side < 2; ++side) {
    element_ = CarriedElement(compare->operand(side), condition_);
    const std::optional<Wide> bound = Constant(compare->operand(1 - side), condition_);
    if (element_ == kNotCarried || !bound) continue;
    const Instruction* start = ElementOf(init_, element_);
    const std::optional<Wide> init = start == nullptr ? std::nullopt : ConstantBits(start), step = Step();
    if (!init || !step) continue;
    const Comparison comparison = compare->attributes().comparison;
    const std::optional<int64_t> trips =
        CountFrom(*init, *step, side == 0 ? comparison : Mirrored(comparison), *bound);
    if (!trips) return std::nullopt;
    // A step of more than half the modulus counts down.
    const Wide down = modulus_ - *step;
    const int64_t signed_step = *step > modulus_ / 2 ? -down : *step;
    return CountedLoop{element_, Number(*init), signed_step, *trips};
  }
  return std::nullopt;
}

}  // namespace

std::optional<CountedLoop> FindCountedLoop(const Instruction& loop) {
  if (loop.opcode() != Opcode::kWhile || loop.called().size() != 2) return std::nullopt;
  return Counter(loop).Count();
}

std::optional<int64_t> TripCount(const Instruction& loop) {
  const std::optional<CountedLoop> counted = FindCountedLoop(loop);
  return counted.has_value() ? std::optional<int64_t>(counted->trips) : std::nullopt;
}

int64_t TripCountOrAssumed(const Instruction& loop) { return TripCount(loop).value_or(kAssumedTripCount); }

}  // namespace xlad::hlo
