#include "tests/cuda_driver_double/race_checker.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "tests/cuda_driver_double/ptx_program.h"

namespace xlad::cuda_double {
namespace {

// Compares the checker with a comparison of all pairs of accesses, for random traces of a byte of memory.
TEST(RaceChecker, EveryRaceOfAPairIsFound) {
  struct Traced {
    uint32_t block, epoch, thread;
    RaceChecker::Access access;
  };
  // A store of the same value races only with loads.
  const auto conflict = [](const Traced& a, const Traced& b) {
    return b.access.keeps_value ? !a.access.is_store : a.access.is_store || b.access.is_store;
  };
  std::mt19937 random(7);
  const auto below = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
  int found = 0;
  for (int i = 0; i < 50'000; ++i) {
    RaceChecker checker;
    std::vector<Traced> trace;
    bool has_race = false, is_found = false;
    for (uint32_t block = 0; block < 2 && !has_race; ++block) {
      checker.BeginBlock(block);
      for (uint32_t epoch = 0; epoch < 2 && !has_race; ++epoch, checker.Barrier()) {
        for (uint32_t n = below(3); n > 0 && !has_race; --n) {
          const bool is_store = below(2) == 0;
          const Traced next = {block, epoch, below(3), {4096, 1, is_store, is_store && below(4) != 0}};
          for (const Traced& earlier : trace) {
            const bool is_ordered = earlier.block == block && (earlier.epoch != epoch || earlier.thread == next.thread);
            has_race = has_race || (!is_ordered && conflict(earlier, next));
          }
          trace.push_back(next);
          is_found = !checker.Check(next.access, next.thread);
          ASSERT_EQ(is_found, has_race) << i << ": " << checker.error();
        }
      }
    }
    found += is_found ? 1 : 0;
  }
  EXPECT_GT(found, 5'000);
  EXPECT_LT(found, 45'000);
}

TEST(RaceChecker, AnEqualStoreDoesNotHideAnEarlierOne) {
  RaceChecker races;
  races.BeginBlock(0);
  EXPECT_TRUE(races.Check({4096, 4, true}, 1));
  EXPECT_TRUE(races.Check({4096, 4, true, /*keeps_value=*/true}, 2));
  EXPECT_FALSE(races.Check({4096, 4, true}, 2)) << "thread 1 may store before or after it";
  EXPECT_EQ(races.error(),
            "race: thread 2 of block 0 stores to global memory at 4096, which another thread has stored to; expected a "
            "barrier between the two");
}

}  // namespace
}  // namespace xlad::cuda_double
