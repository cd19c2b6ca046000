#include "runtime/devices/cpu/half_rows.h"

#include <algorithm>
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
constexpr int64_t kHalfLanes = 8;

bool HasConversions() {
  static const bool has = __builtin_cpu_supports("avx") != 0 && __builtin_cpu_supports("f16c") != 0;
  return has;
}

__attribute__((target("avx,f16c"))) __m256 WidenVector(const uint16_t* from) {
  __m128i halves;
  std::memcpy(&halves, from, sizeof(halves));
  return _mm256_cvtph_ps(halves);
}

// The last vector of a row may be incomplete. Then it is copied to or from a complete one.
__attribute__((target("avx,f16c"))) void WidenVectors(const uint16_t* from, int64_t step, int64_t count, float* to) {
  for (int64_t i = 0; i < count; i += kHalfLanes) {
    const int64_t lanes = std::min(kHalfLanes, count - i);
    if (step == 1 && lanes == kHalfLanes) {
      _mm256_storeu_ps(to + i, WidenVector(from + i));
      continue;
    }
    uint16_t copies[kHalfLanes] = {};
    for (int64_t lane = 0; lane < lanes; ++lane) copies[lane] = from[(i + lane) * step];
    const __m256 floats = WidenVector(copies);
    if (lanes == kHalfLanes) {
      _mm256_storeu_ps(to + i, floats);
    } else {
      std::memcpy(to + i, &floats, lanes * sizeof(float));
    }
  }
}

__attribute__((target("avx,f16c"))) void NarrowVectors(const float* from, int64_t count, uint16_t* to) {
  int64_t i = 0;
  for (; i + kHalfLanes <= count; i += kHalfLanes) {
    const __m128i halves = _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT);
    std::memcpy(to + i, &halves, sizeof(halves));
  }
  if (i == count) return;
  const size_t rest = count - i;
  __m256 floats = _mm256_setzero_ps();
  std::memcpy(&floats, from + i, rest * sizeof(float));
  const __m128i halves = _mm256_cvtps_ph(floats, _MM_FROUND_TO_NEAREST_INT);
  std::memcpy(to + i, &halves, rest * sizeof(uint16_t));
}
#else
bool HasConversions() { return false; }
void WidenVectors(const uint16_t*, int64_t, int64_t, float*) {}
void NarrowVectors(const float*, int64_t, uint16_t*) {}
#endif

}  // namespace

void WidenHalf(const uint16_t* from, int64_t step, int64_t count, float* to) {
  if (HasConversions()) return WidenVectors(from, step, count, to);
  for (int64_t i = 0; i < count; ++i) to[i] = Widen(from[i * step]);
}

void NarrowHalf(const float* from, int64_t count, uint16_t* to) {
  if (HasConversions()) return NarrowVectors(from, count, to);
  for (int64_t i = 0; i < count; ++i) to[i] = Narrow(from[i]);
}

}  // namespace xlad::runtime
