#include "runtime/devices/cpu/half_rows.h"

#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace xlad::runtime {
namespace {

float Widen(uint16_t bits) {
  _Float16 value;
  std::memcpy(&value, &bits, sizeof(value));
  return static_cast<float>(value);
}

uint16_t Narrow(float value) {
  const _Float16 half = static_cast<_Float16>(value);
  uint16_t bits;
  std::memcpy(&bits, &half, sizeof(bits));
  return bits;
}

#if defined(__x86_64__)
constexpr int64_t kLanes = 8;

bool HasConversions() {
  static const bool has = __builtin_cpu_supports("avx") != 0 && __builtin_cpu_supports("f16c") != 0;
  return has;
}

// Both functions convert only full vectors and return the number of converted elements.
__attribute__((target("avx,f16c"))) int64_t WidenVectors(const uint16_t* from, int64_t step, int64_t count, float* to) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    uint16_t lanes[kLanes];
    if (step == 1) {
      std::memcpy(lanes, from + i, sizeof(lanes));
    } else {
      for (int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] = from[(i + lane) * step];
    }
    __m128i halves;
    std::memcpy(&halves, lanes, sizeof(halves));
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(halves));
  }
  return i;
}

__attribute__((target("avx,f16c"))) int64_t NarrowVectors(const float* from, int64_t count, uint16_t* to) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const __m128i halves = _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT);
    std::memcpy(to + i, &halves, sizeof(halves));
  }
  return i;
}
#else
bool HasConversions() { return false; }
int64_t WidenVectors(const uint16_t*, int64_t, int64_t, float*) { return 0; }
int64_t NarrowVectors(const float*, int64_t, uint16_t*) { return 0; }
#endif

}  // namespace

void WidenHalf(const uint16_t* from, int64_t step, int64_t count, float* to) {
  int64_t i = HasConversions() ? WidenVectors(from, step, count, to) : 0;
  for (; i < count; ++i) to[i] = Widen(from[i * step]);
}

void NarrowHalf(const float* from, int64_t count, uint16_t* to) {
  int64_t i = HasConversions() ? NarrowVectors(from, count, to) : 0;
  for (; i < count; ++i) to[i] = Narrow(from[i]);
}

}  // namespace xlad::runtime
