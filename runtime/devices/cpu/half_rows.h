// Converts rows of f16 to f32 and back, with the CPU's conversion instructions if it has them. In other code, the
// compiler makes each conversion a function call, because xlad is compiled for CPUs without these instructions.
#pragma once

#include <cstdint>

namespace xlad::runtime {

// to[i] = from[i * step].
void WidenHalf(const uint16_t* from, int64_t step, int64_t count, float* to);
// Rounds to nearest even.
void NarrowHalf(const float* from, int64_t count, uint16_t* to);

}  // namespace xlad::runtime
