#include "compiler/testing/loop_counter.h"

#include <utility>

namespace xlad::compiler {
namespace {

using hlo::Builder;
using hlo::Comparison;
using hlo::ElementType;
using hlo::Instruction;
using hlo::Opcode;

uint64_t Mask(ElementType type) { return ~uint64_t{0} >> (64 - tensor::BitWidth(type)); }

// Maps the bits of a value to a number. The unsigned order of these numbers is the order of the type.
uint64_t Place(ElementType type, uint64_t bits) {
  return tensor::IsSigned(type) ? bits ^ (uint64_t{1} << (tensor::BitWidth(type) - 1)) : bits;
}

bool Holds(Comparison comparison, uint64_t x, uint64_t y) {
  switch (comparison) {
    case Comparison::kEq: return x == y;
    case Comparison::kNe: return x != y;
    case Comparison::kGe: return x >= y;
    case Comparison::kGt: return x > y;
    case Comparison::kLe: return x <= y;
    case Comparison::kLt: return x < y;
  }
  return false;
}

// The comparison of y with x that is equivalent to `comparison` of x with y.
Comparison Mirrored(Comparison comparison) {
  switch (comparison) {
    case Comparison::kGe: return Comparison::kLe;
    case Comparison::kGt: return Comparison::kLt;
    case Comparison::kLe: return Comparison::kGe;
    case Comparison::kLt: return Comparison::kGt;
    default: return comparison;
  }
}

// A random number: small, near an end of the type's range, or any number. Returns its bits.
uint64_t RandomBound(RandomValues& random, ElementType type) {
  const uint64_t largest = Mask(type) >> (tensor::IsSigned(type) ? 1 : 0);
  switch (random.Below(5)) {
    case 0:
    case 1: return random.Below(9);
    case 2: return (largest - random.Below(9)) & Mask(type);
    case 3: return (largest + 1 + random.Below(9)) & Mask(type);  // Wraps around to the smallest values.
    default: return random.random().Next() & Mask(type);
  }
}

uint64_t RandomStep(RandomValues& random, ElementType type) {
  switch (random.Below(4)) {
    case 0: return 1 + random.Below(3);
    case 1: return (uint64_t{0} - 1 - random.Below(3)) & Mask(type);
    default: return random.random().Next() & Mask(type);
  }
}

}  // namespace

int64_t LoopCounter::TripCount(int64_t most) const {
  uint64_t i = init;
  for (int64_t trips = 0; trips <= most; ++trips) {
    if (!Holds(comparison, Place(type, i), Place(type, limit))) return trips;
    i = (subtracts ? i - step : i + step) & Mask(type);
  }
  return -1;
}

Instruction* LoopCounter::Condition(RandomValues& random, Builder& builder, Instruction* counter) const {
  Instruction* end = IntegerScalar(builder, type, limit);
  return random.OneIn(3) ? builder.Compare(Mirrored(comparison), end, counter)
                         : builder.Compare(comparison, counter, end);
}

Instruction* LoopCounter::Next(RandomValues& random, Builder& builder, Instruction* counter, Instruction* step) const {
  if (subtracts) return builder.Binary(Opcode::kSubtract, counter, step);
  return random.OneIn(3) ? builder.Binary(Opcode::kAdd, step, counter) : builder.Binary(Opcode::kAdd, counter, step);
}

LoopCounter RandomLoopCounter(RandomValues& random, int64_t most) {
  static constexpr Comparison kComparisons[] = {Comparison::kLt, Comparison::kLt, Comparison::kLe, Comparison::kGt,
                                                Comparison::kGe, Comparison::kNe, Comparison::kEq};
  LoopCounter counter;
  if (random.OneIn(3)) {  // This is the form that frameworks emit.
    counter.limit = random.OneIn(4) ? random.Below(13) : random.Below(5);
    counter.step = 1 + random.Below(3);
    return counter;
  }
  const bool runs = !random.OneIn(5);  // Most random counters have no iterations.
  for (int tries = 0; tries < 40; ++tries) {
    LoopCounter tried;
    tried.type = random.RandomInteger();
    tried.init = RandomBound(random, tried.type);
    tried.limit = RandomBound(random, tried.type);
    tried.step = RandomStep(random, tried.type);
    tried.comparison = random.OneOf(kComparisons);
    tried.subtracts = random.OneIn(4);
    const int64_t trips = tried.TripCount(most);
    if (trips >= (runs ? 1 : 0)) return tried;
  }
  return counter;
}

}  // namespace xlad::compiler
