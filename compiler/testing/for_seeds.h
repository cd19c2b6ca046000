// The loop of tests that try random programs.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "base/testing/case_count.h"

namespace xlad::compiler {

// Calls `run` for `count` seeds, beginning with `first`, until the number of failures of the current test reaches
// XLAD_FAILURES (default 1). XLAD_SEED and XLAD_RANDOM_PROGRAMS override `first` and `count`. A failure prints the
// variables that repeat it.
//
// Returns whether the test has not failed and has tried at least the seeds of the arguments. Only then may it expect
// that its programs have certain properties.
template <typename F>
bool ForSeeds(uint64_t first, uint64_t count, F&& run) {
  const testing::TestInfo& test = *testing::UnitTest::GetInstance()->current_test_info();
  const uint64_t begin = NumberFrom("XLAD_SEED", first), tries = NumberFrom("XLAD_RANDOM_PROGRAMS", count);
  const uint64_t most = NumberFrom("XLAD_FAILURES", 1);
  uint64_t failures = 0;
  for (uint64_t seed = begin; seed < begin + tries && failures < most; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed, "; to repeat: XLAD_RANDOM_PROGRAMS=1 XLAD_SEED=", seed,
                              " with --gtest_filter=", test.test_suite_name(), ".", test.name()));
    run(seed);
    failures = 0;
    for (int p = 0; p < test.result()->total_part_count(); ++p) {
      failures += test.result()->GetTestPartResult(p).failed() ? 1 : 0;
    }
  }
  return failures == 0 && begin == first && tries >= count;
}

}  // namespace xlad::compiler
