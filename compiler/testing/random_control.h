// Random programs with control flow around the random instructions of RandomValues.
#pragma once

#include <functional>

#include "compiler/testing/random_program.h"

namespace xlad::compiler {

class RandomControl : public RandomValues {
 public:
  // One more kind of instruction, for a caller's own: collectives, annotations. May return an empty value.
  using Extra = std::function<Sample(hlo::Builder*, const Pool&)>;
  RandomControl(hlo::Module* module, Random* random, Extra extra)
      : RandomValues(module, random), extra_(std::move(extra)) {}

  // Branches of conditionals may be taken by some devices only: collectives inside need a selector that is the same
  // everywhere.
  void set_constant_selectors(bool constant) { constant_selectors_ = constant; }

  void Grow(hlo::Builder* builder, Pool* pool, int count, int depth);
  // The value in a form that a loop may carry: its error and bound are no more than `slot`'s.
  Sample Contract(hlo::Builder* builder, Sample value, const Sample& slot);

 private:
  Sample One(hlo::Builder* builder, const Pool& pool, int depth);
  Sample While(hlo::Builder* builder, const Pool& pool, int depth);
  Sample Conditional(hlo::Builder* builder, const Pool& pool, int depth);
  Sample Call(hlo::Builder* builder, const Pool& pool, int depth);
  Pool Carried(hlo::Builder* builder, const Pool& pool);
  Pool Open(hlo::Builder* builder, const hlo::Shape& tuple, const Pool& like);
  hlo::Computation* Condition(const hlo::Shape& shape, const Pool& slots);

  Extra extra_;
  bool constant_selectors_ = false;
};

}  // namespace xlad::compiler
