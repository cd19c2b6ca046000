// Leases, stops and the end of the task.
#include "runtime/task_gate.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace xlad::runtime {
namespace {

using Decision = TaskGate::Decision;

TEST(TaskGate, RunsUnderALeaseUntilTheEnd) {
  TaskGate gate(5, 8, 2);
  EXPECT_EQ(gate.finished_steps(), 5);
  gate.Lease(100);
  for (int64_t step = 5; step < 8; ++step) {
    EXPECT_EQ(gate.Begin(step), Decision::kRun);
    gate.FinishStep(0, step);
    EXPECT_EQ(gate.finished_steps(), step);
    gate.FinishStep(1, step);
    EXPECT_EQ(gate.finished_steps(), step + 1);
    EXPECT_EQ(gate.begun_steps(), step + 1);
  }
  EXPECT_EQ(gate.Begin(8), Decision::kDone);
}

TEST(TaskGate, WaitsForTheLease) {
  TaskGate gate(0, 10, 1);
  std::atomic<int> done = 0;
  std::thread device([&] {
    for (int64_t step = 0; gate.Begin(step) == Decision::kRun; ++step) {
      gate.FinishStep(0, step);
      ++done;
    }
  });
  gate.Lease(3);
  while (done < 3) std::this_thread::yield();
  EXPECT_EQ(gate.begun_steps(), 3);
  gate.Lease(1);  // A lease never gets shorter.
  gate.Lease(6);
  while (done < 6) std::this_thread::yield();
  gate.End();
  device.join();
  EXPECT_EQ(done, 6);
}

TEST(TaskGate, StopsAreForStepsThatHaveNotBegun) {
  TaskGate gate(0, 10, 2);
  gate.Lease(10);
  EXPECT_EQ(gate.Begin(0), Decision::kRun);
  EXPECT_FALSE(gate.StopAt(0));
  EXPECT_TRUE(gate.StopAt(1));
  EXPECT_EQ(gate.Begin(0), Decision::kRun) << "the other device may still run what has begun";
  EXPECT_EQ(gate.Begin(1), Decision::kStop);
  EXPECT_FALSE(gate.ReachStop(1));
  EXPECT_TRUE(gate.ReachStop(1));
  // Another worker had already begun step 1, so all devices continue and stop later.
  EXPECT_TRUE(gate.StopAt(2));
  gate.WaitWhileStopped(1);
  EXPECT_EQ(gate.Begin(1), Decision::kRun);
  EXPECT_FALSE(gate.ReachStop(1)) << "no longer where to stand";
  EXPECT_EQ(gate.Begin(2), Decision::kStop);
  EXPECT_FALSE(gate.ReachStop(2));
  EXPECT_TRUE(gate.ReachStop(2));
  gate.End();
  gate.WaitWhileStopped(2);
  EXPECT_EQ(gate.Begin(2), Decision::kEnd);
}

TEST(TaskGate, StopBeforeTheFirstLeaseAndAtTheEnd) {
  TaskGate gate(4, 6, 1);
  EXPECT_TRUE(gate.StopAt(4));
  EXPECT_EQ(gate.Begin(4), Decision::kStop);
  TaskGate last(4, 6, 1);
  last.Lease(6);
  EXPECT_TRUE(last.StopAt(6));
  EXPECT_EQ(last.Begin(6), Decision::kDone);
}

}  // namespace
}  // namespace xlad::runtime
