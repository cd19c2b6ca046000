#include "runtime/devices/cpu/matrix_code.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <future>

namespace xlad::runtime {
namespace {

constexpr std::chrono::milliseconds kLong = std::chrono::hours(1);

TEST(MatrixCode, IsGeneratedForTheFirstProgramThatNeedsIt) {
  std::promise<void> generated;
  MatrixCode code([&] { generated.set_value(); }, kLong);  // A second call would throw.
  for (const bool needs_code : {false, true, true, false}) code.OnLoad(needs_code);
  generated.get_future().wait();
}

TEST(MatrixCode, IsNotGeneratedForAProgramThatDoesNotNeedIt) {
  std::atomic<int> count = 0;
  MatrixCode code([&] { ++count; }, kLong);
  code.OnLoad(false);
  // Code that is generated for every program would be generated before the process below has waited.
  std::promise<void> has_waited;
  const MatrixCode other([&] { has_waited.set_value(); }, std::chrono::milliseconds(10));
  has_waited.get_future().wait();
  EXPECT_EQ(count, 0);
}

TEST(MatrixCode, IsGeneratedWhileAProcessWaitsForAProgram) {
  std::promise<void> generated;
  const MatrixCode code([&] { generated.set_value(); }, std::chrono::milliseconds(1));
  generated.get_future().wait();
}

TEST(MatrixCode, IsSharedByAProcess) {
  const std::shared_ptr<MatrixCode> code = MatrixCodeOfProcess();
  EXPECT_EQ(MatrixCodeOfProcess(), code);
#if __has_feature(thread_sanitizer)
  GTEST_SKIP() << "under ThreadSanitizer, a child process of a process with threads cannot start threads";
#endif
  EXPECT_EXIT(_exit(MatrixCodeOfProcess() == code ? 1 : 0), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace xlad::runtime
