// Which algebraic laws a reducer obeys that no collective knows: a computation of any kind, over any number of arrays.
#pragma once

#include "hlo/module.h"

namespace xlad::sharding {

// For a reducer f over tuples with initial values e, the constants that the reduce starts from.
struct ReducerLaws {
  // Parts may be reduced from e each, and their results once more from e, in order:
  //   f(f(a, b), c) = f(a, f(b, c)),  f(f(e, a), f(e, b)) = f(f(e, a), b),  f(f(e, a), e) = f(e, a).
  // The maximum with its index obeys this. A sum that starts from 5 and a difference do not.
  bool combines_parts = false;
  bool commutes = false;  // f(a, b) = f(b, a)
};

// Evaluates the laws on samples: pairs and triples of values that include zeros of both signs, infinities, NaN and the
// initial values. Comparison is exact up to the rounding of floats. No law holds if an initial value is not a
// constant, or the reducer cannot be evaluated.
ReducerLaws LawsOf(const hlo::Instruction& reduce);

}  // namespace xlad::sharding
