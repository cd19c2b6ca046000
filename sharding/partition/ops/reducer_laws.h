// Finds the algebraic laws of a reducer that collectives do not support. The reducer can be any computation over any
// number of arrays.
#pragma once

#include "hlo/module.h"

namespace xlad::sharding {

// The laws of a reducer f over tuples of scalars. The tuple e has the initial values, which must be constants.
struct ReducerLaws {
  // Each part may be reduced starting from e, and the results of the parts may then be reduced in order, starting from
  // e:
  //   f(f(a, b), c) = f(a, f(b, c)),  f(f(e, a), f(e, b)) = f(f(e, a), b),  f(f(e, a), e) = f(e, a).
  // A maximum together with its index obeys these laws. A sum that starts from 5 and a difference do not.
  bool combines_parts = false;
  bool commutes = false;  // f(a, b) = f(b, a). Has no meaning unless combines_parts is true.
};

// Evaluates the laws on samples, which do not prove them: random triples of the initial values and numbers from -1000
// to 1000, among them the constants of the reducer and their neighbors, because a reducer with a threshold or a bound
// behaves differently there. For floats, the samples include zeros of both signs, infinities and NaN, and all triples
// of these. Comparison is exact, except that f32 and f64 values may differ by rounding, by the sign of a zero and by
// the payload of a NaN.
// `combines_parts` is false if an initial value is not a constant or if the reducer cannot be evaluated.
ReducerLaws LawsOf(const hlo::Instruction& reduce);

}  // namespace xlad::sharding
