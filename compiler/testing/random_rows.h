// Random fusions in row form (compiler/analysis/row_form.h).
#pragma once

#include <cstdint>
#include <string>

#include "base/random.h"
#include "tensor/array.h"

namespace xlad::compiler {

// The text of a program whose entry is one fusion of its parameters: arithmetic on full values, row values and columns,
// reductions along the rows in any number and order, broadcasts, slices, reversals, reshapes, iotas, one to three
// results. The type is f32, f64, s32 or bf16. If the parameters are small integers, all results are exact, whatever the
// order of the sums. Equal seeds make equal programs.
std::string RandomRowProgram(uint64_t seed);

// Integers between -8 and 8, of the type f32, f64, s32 or bf16.
tensor::Array RandomIntegers(const tensor::Shape& shape, Random* random);

}  // namespace xlad::compiler
