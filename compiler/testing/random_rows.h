// Random fusions in row form (compiler/analysis/row_form.h).
#pragma once

#include <cstdint>
#include <string>

#include "base/random.h"
#include "tensor/array.h"

namespace xlad::compiler {

// The text of a program whose entry is one fusion of its parameters. The fusion has arithmetic on full values, row
// values and columns, one or more reductions along the rows, broadcasts, slices, reversals, reshapes, iotas, and one
// to three results. The type is f32, f64, s32 or bf16. If the parameters are small integers, all results are exact for
// every order of the sums. Equal seeds make equal programs.
std::string RandomRowProgram(uint64_t seed);

// An array of integers between -8 and 8, of type f32, f64, s32 or bf16.
tensor::Array RandomIntegers(const tensor::Shape& shape, Random* random);

}  // namespace xlad::compiler
