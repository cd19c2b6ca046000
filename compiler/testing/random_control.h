// Random programs with control flow around the random instructions of RandomValues.
#pragma once

#include <functional>

#include "compiler/testing/random_values.h"

namespace xlad::compiler {

class RandomControl : public RandomValues {
 public:
  // An additional family of values from the caller, such as collectives or annotations. It may return an empty value.
  using ExtraFamily = std::function<Sample(hlo::Builder&, const Pool&)>;
  RandomControl(hlo::Module* module, Random* random, Options options, ExtraFamily extra);

  // With uniform control, all devices take the same branches and run the same number of iterations. This is required if
  // branches or loops contain collectives.
  void set_uniform_control(bool uniform) { uniform_control_ = uniform; }

  // Appends about `count` random values to the pool. `depth` is the nesting depth of the builder's computation; the
  // entry computation has depth 0.
  void AddValues(hlo::Builder& builder, Pool* pool, int count, int depth);

 private:
  Family RandomFamily();
  Sample MakeValue(hlo::Builder& builder, const Pool& pool, int depth);
  Sample While(hlo::Builder& builder, const Pool& pool, int depth);
  Sample Conditional(hlo::Builder& builder, const Pool& pool, int depth);
  Sample Call(hlo::Builder& builder, const Pool& pool, int depth);
  // Picks values of the pool for a loop or a branch, and adapts them so that they can be carried. Some values are
  // picked twice.
  Pool Carried(hlo::Builder& builder, const Pool& pool);
  // Adapts `value` so that the slot may hold it in the next iteration: its error and bound are at most those of the
  // slot. Returns an empty value if that is not possible.
  Sample FitSlot(hlo::Builder& builder, Sample value, const Sample& slot, Agreement agreement);
  // The elements of a computation's only parameter.
  Pool OpenParameter(hlo::Builder& builder, const hlo::Shape& tuple, const Pool& like);
  hlo::Instruction* AndData(hlo::Builder& builder, hlo::Instruction* condition, const Sample& value);

  ExtraFamily extra_;
  // About a third of the values are of this family, so that programs differ more (swarm testing, Groce et al. 2012).
  const Family favorite_;
  bool uniform_control_ = false;
};

}  // namespace xlad::compiler
