// Converts arrays of any element type to f64 and back, for printing and comparing.
#pragma once

#include "tensor/array.h"

namespace xlad::cli {

// Converts like HLO's convert: rounds to nearest even, saturates to integers, takes the real part of complex values.
tensor::Array ConvertArray(const tensor::Array& array, tensor::ElementType type);

}  // namespace xlad::cli
