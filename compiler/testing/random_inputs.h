// Random arrays for parameters and constants.
#pragma once

#include <vector>

#include "base/random.h"
#include "hlo/module.h"
#include "tensor/array.h"

namespace xlad::compiler {

// An array of small values whose sums are exact: floats in [-2, 2] in steps of 1/8 (zeros of both signs), integers in
// [0, 7], wrapped to narrower types, pred 0 or 1. An element of any other type has the bits of an integer in [0, 7].
tensor::Array RandomArray(const tensor::Shape& shape, Random* random);

// An array of values for which simplification rules are often wrong, mixed with random bits. Floats: zeros of both
// signs, infinities, NaNs of both signs with payloads, the smallest and largest denormal and normal numbers. Integers:
// 0, 1, -1, other small numbers, and the smallest and largest values of the type.
tensor::Array RandomSpecialArray(const tensor::Shape& shape, Random* random);

// One array for each leaf of the entry's parameters. Leaf i is a RandomSpecialArray if special[i] is true. Leaves
// beyond the end of `special` are RandomArrays.
std::vector<tensor::Array> RandomInputs(const hlo::Module& module, Random* random,
                                        const std::vector<bool>& special = {});

}  // namespace xlad::compiler
