#include "cli/values.h"

#include "hlo/build/builder.h"
#include "hlo/eval/evaluate.h"

namespace xlad::cli {

tensor::Array ConvertArray(const tensor::Array& array, tensor::ElementType type) {
  hlo::Module module("convert");
  hlo::Computation* computation = module.Add(std::make_unique<hlo::Computation>("main"));
  hlo::Builder builder(computation);
  const hlo::Instruction* convert = builder.Convert(type, builder.Parameter(0, hlo::Shape(array.shape())));
  const hlo::Literal operand(array);
  const auto result = hlo::EvaluateInstruction(*convert, {&operand});
  XLAD_CHECK(result.ok()) << result.status();
  return result->array;
}

}  // namespace xlad::cli
