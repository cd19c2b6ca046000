// Rows of f16 to f32 and back, by the machine's own conversions where it has them. xlad is built for the oldest
// machines, and there each conversion is a call.
#pragma once

#include <cstdint>

namespace xlad::runtime {

// to[i] = from[i * step].
void WidenHalf(const uint16_t* from, int64_t step, int64_t count, float* to);
// Rounded to nearest even.
void NarrowHalf(const float* from, int64_t count, uint16_t* to);

}  // namespace xlad::runtime
