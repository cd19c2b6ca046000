// AddScaledRow for f32 and f64. It is compiled once per instruction set, and the program chooses a version when it
// starts.
#include "hlo/eval/dot.h"

// Sanitizers get only one version, because their runtime is not initialized yet when the program chooses a version.
#if defined(__x86_64__) && !__has_feature(address_sanitizer) && !__has_feature(thread_sanitizer)
#define XLAD_VECTOR_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define XLAD_VECTOR_CLONES
#endif

#pragma STDC FP_CONTRACT OFF

namespace xlad::hlo::eval {

XLAD_VECTOR_CLONES
void AddScaledRow(float* row, const float* x, float a, int64_t n) {
  for (int64_t i = 0; i < n; ++i) row[i] += a * x[i];
}

XLAD_VECTOR_CLONES
void AddScaledRow(double* row, const double* x, double a, int64_t n) {
  for (int64_t i = 0; i < n; ++i) row[i] += a * x[i];
}

}  // namespace xlad::hlo::eval
