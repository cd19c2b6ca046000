// The inner loop that dot and convolution share.
#pragma once

#include <cstdint>

#include "hlo/eval/binary_ops.h"

namespace xlad::hlo::eval {

// row[i] += a * x[i]. The versions for float and double use the widest vectors of the machine, but not fused
// multiply-add, so that the bits are the same on all machines.
void AddScaledRow(float* row, const float* x, float a, int64_t n);
void AddScaledRow(double* row, const double* x, double a, int64_t n);

template <typename T>
void AddScaledRow(T* row, const T* x, T a, int64_t n) {
  for (int64_t i = 0; i < n; ++i) row[i] = Add::Apply(row[i], Multiply::Apply(a, x[i]));
}

}  // namespace xlad::hlo::eval
