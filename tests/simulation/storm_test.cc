// Runs the real coordinator and its real log under many simulated faults. XLAD_STORM_SEEDS is the number of seeds
// (default 30). XLAD_STORM_SEED is the first seed, and the only one if XLAD_STORM_SEEDS is not set: this replays a
// failure. XLAD_STORM_TRACE=1 prints the events.
#include "tests/simulation/storm.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "base/log.h"
#include "base/testing/case_count.h"

namespace xlad::simulation {
namespace {

const bool kQuietStorm = (SetLogLevel(LogLevel::kError), true);

StormResult RunStormSeed(uint64_t seed) {
  return Storm({.seed = seed, .trace = NumberFrom("XLAD_STORM_TRACE", 0) != 0}).Run();
}

TEST(StormTest, NothingAcknowledgedIsLostAndEveryJobEnds) {
  constexpr uint64_t kDefaultSeeds = 30;
  const bool one = std::getenv("XLAD_STORM_SEED") != nullptr;
  const uint64_t first = NumberFrom("XLAD_STORM_SEED", 1);
  const uint64_t count = NumberFrom("XLAD_STORM_SEEDS", one ? 1 : kDefaultSeeds);
  const auto start = std::chrono::steady_clock::now();
  StormResult sum;
  int failed = 0;
  for (uint64_t seed = first; seed < first + count && failed < 5; ++seed) {
    const StormResult result = RunStormSeed(seed);
    for (const std::string& violation : result.violations) {
      ADD_FAILURE() << "seed " << seed << " (replay with XLAD_STORM_SEED=" << seed << "): " << violation;
    }
    failed += result.violations.empty() ? 0 : 1;
    sum.attempts += result.attempts;
    sum.checkpoints += result.checkpoints;
    sum.crashes += result.crashes;
    sum.disk_faults += result.disk_faults;
    sum.misreads += result.misreads;
    sum.virtual_ms += result.virtual_ms;
    for (const auto& [kind, count_of_kind] : result.records) sum.records[kind] += count_of_kind;
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::printf(
      "%llu seeds, %.1f per second: %lld attempts, %lld checkpoints, %lld crashes, %lld disk faults, %.0f "
      "virtual hours\n",
      static_cast<unsigned long long>(count), static_cast<double>(count) / seconds,
      static_cast<long long>(sum.attempts), static_cast<long long>(sum.checkpoints),
      static_cast<long long>(sum.crashes), static_cast<long long>(sum.disk_faults),
      static_cast<double>(sum.virtual_ms) / 3'600'000);
  if (count < 10) return;
  EXPECT_GT(sum.crashes, 0);
  EXPECT_GT(sum.disk_faults, 0);
  if (count >= 100) {  // These are rarer.
    EXPECT_GT(sum.misreads, static_cast<int64_t>(count) / 30);
    EXPECT_GT(sum.records["damaged"], static_cast<int64_t>(count) / 12);
    EXPECT_GT(sum.records["cut_link"], static_cast<int64_t>(count) / 12);
  }
  EXPECT_GT(sum.checkpoints, 0);
  // Checks that each kind of record occurred often.
  for (const char* kind : {"submitted", "built", "placed", "started", "adopted", "attempt_ended", "stopped", "resized",
                           "code_replaced", "not_optimized", "checkpoint", "checkpoint_failed", "dropped",
                           "drain_changed", "SUCCEEDED", "FAILED", "CANCELLED"}) {
    EXPECT_GT(sum.records[kind], static_cast<int64_t>(count) / 4) << kind;
  }
  EXPECT_GT(sum.records["SUCCEEDED"], 2 * static_cast<int64_t>(count)) << "of 6 jobs of each seed";
}

// XLAD_STORM_WORKERS is the number of workers (default 200).
TEST(StormTest, ManyWorkers) {
  const int workers = static_cast<int>(NumberFrom("XLAD_STORM_WORKERS", 200));
  const StormResult result = Storm({.seed = 1,
                                    .workers = workers,
                                    .jobs = 2 * workers / 20,
                                    .max_devices = 40,
                                    .storm_ms = 5000,
                                    .trace = NumberFrom("XLAD_STORM_TRACE", 0) != 0})
                                 .Run();
  for (const std::string& violation : result.violations) ADD_FAILURE() << violation;
  std::printf("%d workers: %lld attempts, %lld checkpoints, %lld events in %.1f virtual s, longest turn %.1f ms\n",
              workers, static_cast<long long>(result.attempts), static_cast<long long>(result.checkpoints),
              static_cast<long long>(result.events), static_cast<double>(result.virtual_ms) / 1000,
              result.longest_turn_ms);
  EXPECT_GE(result.attempts, 2 * workers / 20);
}

TEST(StormTest, ASeedReplaysExactly) { EXPECT_EQ(RunStormSeed(7).trace_hash, RunStormSeed(7).trace_hash); }

}  // namespace
}  // namespace xlad::simulation
