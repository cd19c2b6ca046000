// Random programs with control flow around the random instructions of RandomValues.
#pragma once

#include <functional>

#include "compiler/testing/random_values.h"

namespace xlad::compiler {

class RandomControl : public RandomValues {
 public:
  // One more family, which the caller brings: collectives, annotations. May return an empty value.
  using ExtraFamily = std::function<Sample(hlo::Builder&, const Pool&)>;
  RandomControl(hlo::Module* module, Random* random, Options options, ExtraFamily extra);

  // With uniform control, all devices take the same branches and run as many iterations: required if there are
  // collectives inside.
  void set_uniform_control(bool uniform) { uniform_control_ = uniform; }

  // Appends about `count` random values to the pool. `depth` counts the computations around the builder's one.
  void AddValues(hlo::Builder& builder, Pool* pool, int count, int depth);

 private:
  Family RandomFamily();
  Sample MakeValue(hlo::Builder& builder, const Pool& pool, int depth);
  Sample While(hlo::Builder& builder, const Pool& pool, int depth);
  Sample Conditional(hlo::Builder& builder, const Pool& pool, int depth);
  Sample Call(hlo::Builder& builder, const Pool& pool, int depth);
  // Values of the pool as a loop or a branch may take them; some of them twice.
  Pool Carried(hlo::Builder& builder, const Pool& pool);
  // `value` in a form that the slot may take in the next iteration: its error and bound are no more than the slot's. An
  // empty value if there is none.
  Sample FitSlot(hlo::Builder& builder, Sample value, const Sample& slot, Agreement agreement);
  // The elements of a computation's only parameter.
  Pool OpenParameter(hlo::Builder& builder, const hlo::Shape& tuple, const Pool& like);
  hlo::Instruction* AndData(hlo::Builder& builder, hlo::Instruction* condition, const Sample& value);

  ExtraFamily extra_;
  // Every third value is of this family, so that programs differ (swarm testing, Groce et al. 2012).
  const Family favorite_;
  bool uniform_control_ = false;
};

}  // namespace xlad::compiler
