// Compares the checker's results for short random traces with a comparison of all pairs of accesses.
#include "runtime/devices/gpu_sim/access_checker.h"

#include <gtest/gtest.h>

#include <cstring>

#include "absl/strings/match.h"
#include "base/random.h"

namespace xlad::runtime {
namespace {

// The functions that checked code calls.
struct Hooks {
  void (*buffer)(int32_t argument, const void* address, int64_t bytes, int32_t role);
  void (*part)(const char* kernel, int64_t tile, int64_t part);
  void* (*access)(void* address, int64_t bytes, int32_t is_store, int32_t argument, int64_t thread);

  Hooks() {
    const absl::Span<const ProvidedFunction> functions = AccessChecker::Functions();
    std::memcpy(&buffer, &functions[0].address, sizeof(buffer));
    std::memcpy(&part, &functions[1].address, sizeof(part));
    std::memcpy(&access, &functions[2].address, sizeof(access));
  }
};
constexpr int32_t kOperand = 0, kResult = 1, kScratch = 2, kShared = 3;

struct Access {
  int64_t tile, part, thread, at, bytes;
  bool is_store;
};

// Whether two accesses race: they access the same byte, at least one is a store, and they are not ordered.
bool Race(const Access& a, const Access& b, bool is_shared) {
  const bool overlap = a.at < b.at + b.bytes && b.at < a.at + a.bytes;
  if (!overlap || !(a.is_store || b.is_store)) return false;
  if (a.tile != b.tile) return !is_shared;
  return a.part == b.part && a.thread != b.thread;
}

std::vector<Access> RandomTrace(Random& random, int64_t bytes) {
  std::vector<Access> trace;
  for (int64_t tile = 0; tile < 3; ++tile) {
    for (int64_t part = 0; part < 3; ++part) {
      for (int64_t thread = 0; thread < 3; ++thread) {
        for (int64_t n = random.Below(3); n > 0; --n) {
          const int64_t width = int64_t{1} << random.Below(3);
          const auto at = static_cast<int64_t>(random.Below(static_cast<uint64_t>(bytes - width + 1)));
          trace.push_back({tile, part, thread, at, width, random.Below(4) == 0});
        }
      }
    }
  }
  return trace;
}

LaunchReport Replay(const std::vector<Access>& trace, absl::Span<std::byte> memory, int32_t role) {
  const Hooks hooks;
  AccessChecker checker;
  checker.Begin();
  hooks.buffer(0, memory.data(), std::ssize(memory), role);
  for (const Access& a : trace) {
    hooks.part("k", a.tile, a.part);
    EXPECT_EQ(hooks.access(&memory[a.at], a.bytes, a.is_store ? 1 : 0, 0, a.thread), &memory[a.at]);
  }
  return checker.End();
}

TEST(AccessChecker, FindsTheRacesOfAllPairs) {
  const auto random = SeededRandom(3);
  std::vector<std::byte> memory(64);
  int races = 0;
  for (int i = 0; i < 20000; ++i) {
    std::vector<Access> trace = RandomTrace(*random, std::ssize(memory));
    // The traces have different lengths, because races are rare in a short trace and common in a long one.
    trace.resize(std::min<size_t>(trace.size(), 2 + random->Below(24)));
    bool has_race = false;
    for (const Access& a : trace) {
      for (const Access& b : trace) has_race = has_race || (&a < &b && Race(a, b, false));
    }
    races += has_race ? 1 : 0;
    ASSERT_EQ(Replay(trace, absl::MakeSpan(memory), kOperand).error == AccessError::kRace, has_race) << i;
  }
  EXPECT_GT(races, 2000);
  EXPECT_LT(races, 18000);
}

TEST(AccessChecker, FindsReadsOfUnwrittenMemory) {
  const auto random = SeededRandom(4);
  std::vector<std::byte> memory(16);
  for (const int32_t role : {kShared, kScratch, kResult}) {
    int found = 0;
    for (int i = 0; i < 5000; ++i) {
      std::vector<Access> trace = RandomTrace(*random, std::ssize(memory));
      // All accesses are by one thread, so races do not hide these reads. Most of them are stores, which makes many
      // reads valid.
      for (Access& a : trace) a.thread = 0;
      for (Access& a : trace) a.is_store = random->Below(8) != 0;
      if (role != kShared) {
        for (Access& a : trace) a.tile = 0;
      }
      bool is_uninitialized = false;
      for (size_t r = 0; r < trace.size(); ++r) {
        if (trace[r].is_store) continue;
        for (int64_t byte = trace[r].at; byte < trace[r].at + trace[r].bytes; ++byte) {
          bool is_written = false;
          for (size_t w = 0; w < r; ++w) {
            const Access& a = trace[w];
            const bool covers = a.is_store && a.at <= byte && byte < a.at + a.bytes && a.tile == trace[r].tile;
            is_written = is_written || covers;
          }
          is_uninitialized = is_uninitialized || !is_written;
        }
      }
      found += is_uninitialized ? 1 : 0;
      const AccessError error = Replay(trace, absl::MakeSpan(memory), role).error;
      ASSERT_EQ(error == AccessError::kUninitialized, is_uninitialized) << role << " " << i;
    }
    EXPECT_GT(found, 500);
    EXPECT_LT(found, 4900);
  }
}

TEST(AccessChecker, ResultsMustBeWritten) {
  const Hooks hooks;
  std::vector<std::byte> memory(64);
  const auto run = [&](bool in_place, int64_t written) {
    AccessChecker checker;
    checker.Begin();
    hooks.buffer(0, in_place ? &memory[32] : &memory[0], 32, kOperand);
    hooks.buffer(1, &memory[32], 32, kResult);
    hooks.part("k", 0, 0);
    hooks.access(&memory[32], written, 1, 1, 0);
    return checker.End();
  };
  EXPECT_EQ(run(false, 32).message, "");
  EXPECT_EQ(run(true, 8).message, "");
  const LaunchReport report = run(false, 31);
  EXPECT_EQ(report.error, AccessError::kUnwritten);
  EXPECT_EQ(report.message, "kernel k: byte 31 of result 0 is not written, expected all of its 32 bytes");
}

TEST(AccessChecker, AccessesOutsideOfBuffersAreRedirected) {
  const Hooks hooks;
  std::vector<std::byte> memory(64);
  for (const int64_t at : {-4, 30, 32, 60}) {
    for (const int32_t argument : {1, -1}) {
      AccessChecker checker;
      checker.Begin();
      hooks.buffer(1, memory.data() + 4, 32, kOperand);
      hooks.part("k", 2, 0);
      std::byte* const wanted = memory.data() + 4 + at;
      EXPECT_NE(hooks.access(wanted, 4, 0, argument, 3), wanted);
      const LaunchReport report = checker.End();
      EXPECT_EQ(report.error, AccessError::kOutside);
      EXPECT_TRUE(absl::StrContains(report.message, "kernel k: block 2, thread 3 reads 4 bytes")) << report.message;
    }
  }
}

}  // namespace
}  // namespace xlad::runtime
