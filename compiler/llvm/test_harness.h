// Compiles single instructions and runs them on the cpu device, for tests: compiled code against hlo::Evaluate.
#pragma once

#include <string>
#include <vector>

#include "base/random.h"
#include "hlo/eval/conformance.h"
#include "hlo/literal.h"
#include "hlo/module.h"

namespace xlad::compiler {

// The whole entry becomes one fusion; where it is one instruction on its parameters, that alone is the kernel.
absl::StatusOr<std::vector<tensor::Array>> RunCompiled(const hlo::Module& module,
                                                       const std::vector<tensor::Array>& inputs);

// By hlo::Evaluate; tuples flattened.
absl::StatusOr<std::vector<tensor::Array>> RunEvaluated(const hlo::Module& module,
                                                        const std::vector<tensor::Array>& inputs);

// Values for a parameter: small numbers of both signs, for floats with fractions; `specials` mixes in infinities,
// NaN, zeros of both signs and denormals.
tensor::Array RandomArray(Random& random, const tensor::Shape& shape, bool specials = false);
std::vector<tensor::Array> RandomInputs(Random& random, const hlo::Module& module, bool specials = false);

// Both ways on random inputs; a gtest failure that names the program where they differ.
void ExpectSame(const std::string& text, const hlo::Tolerance& tolerance = {}, bool specials = false,
                uint64_t seed = 1);
void ExpectSameOn(const std::string& text, const std::vector<tensor::Array>& inputs,
                  const hlo::Tolerance& tolerance = {});

}  // namespace xlad::compiler
