// Leases, stops and the end of the task.
#include "runtime/task_gate.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace xlad::runtime {
namespace {

using Decision = TaskGate::Decision;

TEST(TaskGate, RunsUnderALeaseUntilTheEnd) {
  TaskGate gate({.first_step = 5, .end_step = 8}, 2);
  EXPECT_EQ(gate.finished_steps(), 5);
  gate.Lease(100);
  for (int64_t step = 5; step < 8; ++step) {
    EXPECT_EQ(gate.Begin(0, step), Decision::kRun);
    gate.FinishStep(0, step);
    EXPECT_EQ(gate.finished_steps(), step);
    gate.FinishStep(1, step);
    EXPECT_EQ(gate.finished_steps(), step + 1);
    EXPECT_EQ(gate.begun_steps(), step + 1);
  }
  EXPECT_EQ(gate.Begin(0, 8), Decision::kDone);
}

// A task without devices fails, and reports the number of its finished steps with the error.
TEST(TaskGate, CountsNoStepsWithoutDevices) {
  TaskGate gate({.first_step = 5, .end_step = 8}, 0);
  EXPECT_EQ(gate.finished_steps(), 5);
  EXPECT_TRUE(gate.CheckpointAt(6));
  EXPECT_EQ(gate.begun_steps(), 5);
}

TEST(TaskGate, WaitsForTheLease) {
  TaskGate gate({.end_step = 10}, 1);
  std::atomic<int> done = 0;
  std::thread device([&] {
    for (int64_t step = 0; gate.Begin(0, step) == Decision::kRun; ++step) {
      gate.FinishStep(0, step);
      ++done;
    }
  });
  gate.Lease(3);
  while (done < 3) std::this_thread::yield();
  EXPECT_EQ(gate.begun_steps(), 3);
  gate.Lease(6);
  while (done < 6) std::this_thread::yield();
  gate.End();
  device.join();
  EXPECT_EQ(done, 6);
}

TEST(TaskGate, AShorterLeaseAppliesToStepsThatHaveNotBegun) {
  TaskGate gate({.end_step = 1000}, 1);
  gate.Lease(1000);
  EXPECT_EQ(gate.Begin(0, 0), Decision::kRun);
  gate.FinishStep(0, 0);
  gate.Lease(0);
  std::atomic<int> done = 0;
  std::thread device([&] {
    for (int64_t step = 1; gate.Begin(0, step) == Decision::kRun; ++step) {
      gate.FinishStep(0, step);
      ++done;
    }
  });
  gate.Lease(4);
  while (done < 3) std::this_thread::yield();
  gate.End();
  device.join();
  EXPECT_EQ(done, 3);
}

// Without collectives, devices run at their own pace.
TEST(TaskGate, ADeviceWaitsIfItIsFarAheadOfAnother) {
  TaskGate gate({.end_step = 1000}, 2);
  gate.Lease(1000);
  std::thread device([&] {
    for (int64_t step = 0; gate.Begin(0, step) == Decision::kRun; ++step) gate.FinishStep(0, step);
  });
  while (gate.begun_steps() < TaskGate::kMaxAhead) std::this_thread::yield();
  EXPECT_EQ(gate.Begin(1, 0), Decision::kRun);
  gate.FinishStep(1, 0);
  while (gate.begun_steps() < TaskGate::kMaxAhead + 1) std::this_thread::yield();
  gate.End();
  device.join();
  EXPECT_EQ(gate.begun_steps(), TaskGate::kMaxAhead + 1);
}

TEST(TaskGate, ASkippedSaveIsRepeatedOnlyForAStop) {
  TaskGate gate({.end_step = 10, .save_every = 2, .save_at_end = true}, 2);
  gate.Lease(10);
  for (int64_t step = 0; step < 2; ++step) EXPECT_EQ(gate.Begin(0, step), Decision::kRun);
  EXPECT_EQ(gate.Begin(0, 2), Decision::kSave);
  gate.SkipSave(0, 2);
  EXPECT_TRUE(gate.StopAt(2));
  EXPECT_EQ(gate.Begin(0, 2), Decision::kSave);
  EXPECT_EQ(gate.Begin(0, 2), Decision::kStop);
  EXPECT_TRUE(gate.StopAt(10));
  EXPECT_EQ(gate.Begin(1, 2), Decision::kSave) << "a device has saved it for the earlier stop";
  EXPECT_TRUE(gate.IsFinalState(2));
  EXPECT_EQ(gate.Begin(0, 2), Decision::kRun);
  EXPECT_EQ(gate.Begin(1, 2), Decision::kRun);
  EXPECT_EQ(gate.Begin(0, 4), Decision::kSave);
  EXPECT_EQ(gate.Begin(1, 10), Decision::kSave);
}

// The checkpoint writer waits until it has the parts of all devices.
TEST(TaskGate, AReplacedStopIsSavedByAllDevicesOrNone) {
  TaskGate gate({.end_step = 10}, 2);
  gate.Lease(10);
  for (const int device : {0, 1}) EXPECT_EQ(gate.Begin(device, 0), Decision::kRun);
  EXPECT_TRUE(gate.StopAt(1));
  EXPECT_TRUE(gate.StopAt(2));
  for (const int device : {0, 1}) EXPECT_EQ(gate.Begin(device, 1), Decision::kRun) << "no device had saved step 1";
  EXPECT_EQ(gate.Begin(0, 2), Decision::kSave);
  EXPECT_TRUE(gate.StopAt(3));
  EXPECT_EQ(gate.Begin(0, 2), Decision::kRun);
  EXPECT_EQ(gate.Begin(1, 2), Decision::kSave);
  EXPECT_TRUE(gate.IsFinalState(2)) << "both devices save it as a final state";
  EXPECT_EQ(gate.Begin(1, 2), Decision::kRun);
  for (const int device : {0, 1}) {
    EXPECT_EQ(gate.Begin(device, 3), Decision::kSave);
    EXPECT_EQ(gate.Begin(device, 3), Decision::kStop);
  }
}

TEST(TaskGate, ADeviceThatSkippedAStateNeedNotSaveItForOthers) {
  TaskGate gate({.end_step = 10, .save_every = 2}, 2);
  gate.Lease(10);
  EXPECT_EQ(gate.Begin(0, 2), Decision::kSave);
  gate.SkipSave(0, 2);
  EXPECT_TRUE(gate.StopAt(2));
  EXPECT_TRUE(gate.StopAt(4));
  for (const int device : {1, 0}) EXPECT_EQ(gate.Begin(device, 2), Decision::kRun);
}

TEST(TaskGate, AStateThatCouldNotBeStoredIsSavedAgainOnlyForAStop) {
  TaskGate gate({.end_step = 10, .save_every = 2}, 2);
  gate.Lease(2);
  for (const int device : {0, 1}) EXPECT_EQ(gate.Begin(device, 2), Decision::kSave);
  EXPECT_TRUE(gate.GiveUpSave(2));
  EXPECT_TRUE(gate.StopAt(2));
  for (const int device : {0, 1}) {
    EXPECT_EQ(gate.Begin(device, 2), Decision::kSave);
    EXPECT_EQ(gate.Begin(device, 2), Decision::kStop);
  }
  EXPECT_FALSE(gate.GiveUpSave(2)) << "it is the state of the stop";
  EXPECT_TRUE(gate.StopAt(4));
  EXPECT_TRUE(gate.GiveUpSave(2)) << "the stop was replaced, and the next state to save waits for the memory";
  gate.Lease(10);
  for (const int device : {0, 1}) EXPECT_EQ(gate.Begin(device, 2), Decision::kRun);
  TaskGate runs({.end_step = 10, .save_every = 2}, 1);
  runs.Lease(10);
  EXPECT_EQ(runs.Begin(0, 2), Decision::kSave);
  EXPECT_TRUE(runs.GiveUpSave(2));
  EXPECT_EQ(runs.Begin(0, 2), Decision::kRun);
}

TEST(TaskGate, StopsAreForStepsThatHaveNotBegun) {
  TaskGate gate({.end_step = 10}, 2);
  gate.Lease(10);
  EXPECT_EQ(gate.Begin(0, 0), Decision::kRun);
  EXPECT_FALSE(gate.StopAt(0));
  EXPECT_TRUE(gate.StopAt(1));
  EXPECT_EQ(gate.Begin(1, 0), Decision::kRun) << "the other device may still run a step that has begun";
  for (const int device : {0, 1}) {
    EXPECT_EQ(gate.Begin(device, 1), Decision::kSave);
    EXPECT_EQ(gate.Begin(device, 1), Decision::kStop);
    EXPECT_FALSE(gate.IsStoppedAt(1));
    EXPECT_EQ(gate.ReachStop(1), device == 1);
  }
  EXPECT_TRUE(gate.IsStoppedAt(1) && gate.IsFinalState(1));
  // Another worker had already begun step 1, so all devices continue and stop later.
  EXPECT_TRUE(gate.StopAt(2));
  gate.WaitWhileStopped(1);
  EXPECT_EQ(gate.Begin(0, 1), Decision::kRun);
  EXPECT_FALSE(gate.ReachStop(1)) << "the stop has moved to step 2";
  EXPECT_EQ(gate.Begin(0, 2), Decision::kSave);
  EXPECT_EQ(gate.Begin(0, 2), Decision::kStop);
  EXPECT_FALSE(gate.ReachStop(2));
  EXPECT_TRUE(gate.ReachStop(2));
  gate.End();
  gate.WaitWhileStopped(2);
  EXPECT_EQ(gate.Begin(0, 2), Decision::kEnd);
}

TEST(TaskGate, StopBeforeTheFirstLeaseAndAtTheEnd) {
  TaskGate gate({.first_step = 4, .end_step = 6}, 1);
  EXPECT_TRUE(gate.StopAt(4));
  EXPECT_EQ(gate.Begin(0, 4), Decision::kSave);
  EXPECT_EQ(gate.Begin(0, 4), Decision::kStop);
  TaskGate last({.first_step = 4, .end_step = 6, .save_at_end = true}, 1);
  last.Lease(6);
  EXPECT_TRUE(last.StopAt(6));
  EXPECT_EQ(last.Begin(0, 6), Decision::kSave);
  EXPECT_EQ(last.Begin(0, 6), Decision::kDone);
}

TEST(TaskGate, SavesByThePolicyAndByRequest) {
  TaskGate gate({.first_step = 10, .end_step = 40, .save_every = 10}, 2);
  gate.Lease(100);
  EXPECT_TRUE(gate.CheckpointAt(13));
  std::vector<int64_t> saved;
  for (int64_t step = 10; step < 30;) {
    const Decision decision = gate.Begin(0, step);
    if (decision == Decision::kSave) {
      saved.push_back(step);
      continue;
    }
    ASSERT_EQ(decision, Decision::kRun);
    gate.FinishStep(0, step++);
  }
  EXPECT_EQ(saved, (std::vector<int64_t>{13, 20})) << "the state at step 10 is the one from which the task started";
  EXPECT_TRUE(gate.CheckpointAt(13)) << "the first device has begun later steps, but it has saved this one";
  EXPECT_FALSE(gate.CheckpointAt(29)) << "step 29 has begun";
  EXPECT_TRUE(gate.CheckpointAt(30));
  EXPECT_FALSE(gate.IsFinalState(30));
  for (int64_t step = 10; step < 13; ++step) EXPECT_EQ(gate.Begin(1, step), Decision::kRun);
  EXPECT_EQ(gate.Begin(1, 13), Decision::kSave) << "this device has not saved step 13 yet";
}

TEST(TaskGate, ARepeatedRequestIsRefusedIfTheSaveWasSkipped) {
  TaskGate gate({.end_step = 40}, 1);
  gate.Lease(40);
  EXPECT_TRUE(gate.CheckpointAt(13));
  EXPECT_EQ(gate.Begin(0, 13), Decision::kSave);
  gate.SkipSave(0, 13);
  EXPECT_EQ(gate.Begin(0, 13), Decision::kRun);
  EXPECT_FALSE(gate.CheckpointAt(13)) << "no device saves this state";
}

TEST(TaskGate, ACheckpointReachesADeviceThatWaitsForItsLease) {
  TaskGate gate({.end_step = 10}, 1);
  std::atomic<bool> saves = false;
  std::thread device([&] { saves = gate.Begin(0, 0) == Decision::kSave; });
  EXPECT_TRUE(gate.CheckpointAt(0));
  device.join();
  EXPECT_TRUE(saves);
}

}  // namespace
}  // namespace xlad::runtime
