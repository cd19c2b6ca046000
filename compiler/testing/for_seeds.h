// The loop of tests that try random programs.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>

#include "base/testing/case_count.h"

namespace xlad::compiler {

// Calls `run` for `count` seeds, beginning with `first`, until the number of failures of the current test reaches
// XLAD_FAILURES (default 1). XLAD_SEED and XLAD_RANDOM_PROGRAMS override `first` and `count`.
template <typename F>
void ForSeeds(uint64_t first, uint64_t count, F&& run) {
  first = NumberFrom("XLAD_SEED", first);
  const uint64_t end = first + NumberFrom("XLAD_RANDOM_PROGRAMS", count), most = NumberFrom("XLAD_FAILURES", 1);
  uint64_t failures = 0;
  for (uint64_t seed = first; seed < end && failures < most; ++seed) {
    run(seed);
    const testing::TestResult* result = testing::UnitTest::GetInstance()->current_test_info()->result();
    failures = 0;
    for (int p = 0; p < result->total_part_count(); ++p) failures += result->GetTestPartResult(p).failed() ? 1 : 0;
  }
}

}  // namespace xlad::compiler
