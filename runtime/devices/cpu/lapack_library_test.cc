#include "runtime/devices/cpu/lapack_library.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "base/random.h"

namespace xlad::runtime {
namespace {

// Several devices of a process call the library at once. A build that does not lock its buffers can return wrong
// results.
TEST(LapackLibrary, SeveralThreadsCallItAtOnce) {
  constexpr int32_t kSize = 12;
  constexpr int kThreads = 4, kCalls = 20'000;
  const auto library = LoadLapack<float>();
  ASSERT_TRUE(library.ok()) << library.status();
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      const auto random = SeededRandom(static_cast<uint64_t>(t));
      std::vector<float> triangle(kSize * kSize), right(kSize * kSize), first;
      for (float& x : triangle) x = static_cast<float>(random->Unit());
      for (int32_t i = 0; i < kSize; ++i) triangle[static_cast<size_t>(i * (kSize + 1))] += kSize;
      for (float& x : right) x = static_cast<float>(random->Unit());
      const float one = 1;
      for (int call = 0; call < kCalls; ++call) {
        std::vector<float> x = right;
        (*library)->trsm("L", "L", "N", "N", &kSize, &kSize, &one, triangle.data(), &kSize, x.data(), &kSize, 1, 1, 1,
                         1);
        if (first.empty()) first = x;
        if (x != first) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace xlad::runtime
