// Random small programs and inputs, from a seed.
#pragma once

#include <memory>
#include <vector>

#include "base/random.h"
#include "hlo/module.h"
#include "tensor/array.h"

namespace xlad::compiler {

// An entry of a few parameters and `instructions` random instructions (elementwise, shape changes, reductions,
// dots, dynamic slices, loops, branches, and with devices > 1 collectives), some results aliased to parameters.
std::unique_ptr<hlo::Module> RandomProgram(uint64_t seed, int instructions, int devices);

// An array with values in a small range: floats in [-2, 2] in steps of 1/8, integers in [0, 7], pred 0 or 1.
tensor::Array RandomArray(const tensor::Shape& shape, Random* random);
// The entry's parameters' leaves.
std::vector<tensor::Array> RandomInputs(const hlo::Module& module, Random* random);

}  // namespace xlad::compiler
