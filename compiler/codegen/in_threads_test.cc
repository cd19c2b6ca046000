// ForEachInThreads: every item once, the first error, and no more threads than usable cores.
#include "compiler/codegen/in_threads.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/process/cores.h"

namespace xlad::compiler {
namespace {

TEST(ForEachInThreads, EachItemIsProcessedOnceAndTheFirstErrorIsReturned) {
  for (const size_t count : {size_t{0}, size_t{1}, size_t{2}, size_t{7}, size_t{300}}) {
    std::vector<std::atomic<int>> calls(count);
    const absl::Status status = ForEachInThreads(count, [&](size_t i) {
      ++calls[i];
      return i % 5 == 3 ? absl::InternalError(std::to_string(i)) : absl::OkStatus();
    });
    EXPECT_EQ(status, count > 3 ? absl::InternalError("3") : absl::OkStatus());
    for (const std::atomic<int>& of_item : calls) EXPECT_EQ(of_item, 1);
  }
}

std::set<std::thread::id> ThreadsThatWork(size_t count) {
  std::mutex mutex;
  std::set<std::thread::id> threads;
  EXPECT_TRUE(ForEachInThreads(count, [&](size_t) {
                const std::lock_guard lock(mutex);
                threads.insert(std::this_thread::get_id());
                return absl::OkStatus();
              }).ok());
  return threads;
}

TEST(ForEachInThreads, ThereAreNoMoreThreadsThanUsableCores) {
  EXPECT_LE(ThreadsThatWork(1000).size(), static_cast<size_t>(UsableThreads()));
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  CPU_ZERO(&one);
  CPU_SET(sched_getcpu(), &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  EXPECT_EQ(ThreadsThatWork(1000), std::set<std::thread::id>{std::this_thread::get_id()});
  ASSERT_EQ(sched_setaffinity(0, sizeof(before), &before), 0);
}

}  // namespace
}  // namespace xlad::compiler
