// Complete tasks (runtime/testing/task_cluster.h) that end or fail.
#include "runtime/task_executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "runtime/checkpoint_writer.h"
#include "runtime/testing/task_cluster.h"

namespace xlad::runtime {
namespace {

using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(TaskExecutor, TrainsToTheEnd) {
  for (const auto& placement : kPlacements) {
    TaskCluster cluster(placement);
    cluster.ForAll([](TaskExecutor& task, TestListener& listener) {
      listener.WaitFor([&] { return listener.ready; });
      EXPECT_EQ(listener.failed_at, -1) << listener.failure.status;
      EXPECT_EQ(task.begun_steps(), 0) << "no step before the lease";
      task.Lease(kSteps);
    });
    cluster.ForAll([](TaskExecutor& task, TestListener& listener) {
      listener.WaitForEnd();
      EXPECT_TRUE(listener.finished) << listener.failure.status;
      EXPECT_EQ(task.finished_steps(), kSteps);
    });
    std::vector<float> losses;
    cluster.ForAll([&](TaskExecutor&, TestListener& listener) {
      losses.insert(losses.end(), listener.losses.begin(), listener.losses.end());
    });
    EXPECT_EQ(losses, Reference(kSteps).losses) << "from the worker with device 0 alone";
    CheckState(&cluster.store, kSteps);
    EXPECT_EQ(cluster.store.writes, 1 + kDevices) << "each box of the state once";
  }
}

TEST(TaskExecutor, RecordsStepsAndReceivesMessagesAfterTheyWereSent) {
  for (const auto& placement : kPlacements) {
    TaskCluster cluster(placement);
    cluster.ForAll([](TaskExecutor& task, TestListener&) { task.Lease(kSteps); });
    std::multiset<std::pair<int, int64_t>> steps;
    std::map<uint64_t, int64_t> sent, received;
    cluster.ForAll([&](TaskExecutor&, TestListener& listener) {
      listener.WaitForEnd();
      for (const TaskTrace& trace : listener.traces) {
        const TracedStep& step = trace.steps(0);
        steps.emplace(step.device(), step.step());
        for (int m = 0; m < step.message_key_size(); ++m) {
          auto& times = step.message_sent(m) ? sent : received;
          EXPECT_TRUE(times.emplace(step.message_key(m), step.begin_ns() + step.message_ns(m)).second);
        }
      }
    });
    for (int64_t i = 0, step = 0; i < kSteps * kDevices; step = ++i / kDevices) {
      EXPECT_EQ(steps.count({i % kDevices, step}), IsTraced(step) ? 1u : 0u) << step;
    }
    ASSERT_EQ(sent.size(), received.size());
    for (const auto& [key, ns] : sent) EXPECT_GE(received.at(key), ns);
  }
}

// The description of a program of many steps takes longer than the steps of the other devices.
TEST(TaskExecutor, TheFirstTraceHasTheProgram) {
  Executable executable = MakeExecutable();
  for (int i = 0; i < 5000; ++i) *executable.add_steps() = KernelOn(executable, "gradient", {kX, kStep, kGradient});
  JobSpec spec = MakeSpec();
  spec.set_steps(1);
  spec.set_keep_final_state(false);
  TaskCluster cluster({{0, 1, 2, 3}}, executable, spec);
  cluster.tasks[0]->Lease(1);
  cluster.listeners[0]->WaitForEnd();
  ASSERT_TRUE(cluster.listeners[0]->finished) << cluster.listeners[0]->failure.status;
  std::vector<bool> have_program;
  for (const TaskTrace& trace : cluster.listeners[0]->traces) have_program.push_back(trace.has_program());
  EXPECT_THAT(have_program, ElementsAre(true, false, false, false));
}

TEST(TaskExecutor, StopsWithItsStateAndContinues) {
  for (const auto& placement : kPlacements) {
    TaskCluster cluster(placement);
    cluster.ForAll([](TaskExecutor& task, TestListener&) {
      EXPECT_TRUE(task.StopAt(7));
      task.Lease(1000);
    });
    cluster.ForAll([](TaskExecutor& task, TestListener& listener) {
      listener.WaitFor([&] { return listener.stopped_at == 7; });
      EXPECT_EQ(task.finished_steps(), 7) << listener.failure.status;
      EXPECT_FALSE(task.StopAt(6));
    });
    CheckState(&cluster.store, 7);
    cluster.ForAll([](TaskExecutor& task, TestListener&) { EXPECT_TRUE(task.StopAt(kSteps)); });
    cluster.ForAll([](TaskExecutor&, TestListener& listener) { listener.WaitForEnd(); });
    CheckState(&cluster.store, kSteps);
  }
}

TEST(TaskExecutor, DroppingAStoppedTaskCausesNoFailure) {
  TaskCluster cluster({{0, 1}, {2, 3}});
  cluster.ForAll([](TaskExecutor& task, TestListener&) {
    task.StopAt(3);
    task.Lease(1000);
  });
  cluster.ForAll(
      [](TaskExecutor&, TestListener& listener) { listener.WaitFor([&] { return listener.stopped_at == 3; }); });
  cluster.Drop();
  EXPECT_EQ(cluster.listeners[0]->failed_at, -1) << cluster.listeners[0]->failure.status;
  EXPECT_EQ(cluster.listeners[1]->failed_at, -1) << cluster.listeners[1]->failure.status;
}

TEST(TaskExecutor, AnAbortReachesEveryWorkerWithItsReason) {
  for (const auto& placement : kPlacements) {
    TaskCluster cluster(placement);
    cluster.ForAll([](TaskExecutor& task, TestListener& listener) {
      listener.WaitFor([&] { return listener.ready; });
      task.Lease(5);
    });
    cluster.tasks[0]->Abort({absl::CancelledError("canceled by its owner"), "w7"});
    cluster.ForAll([](TaskExecutor&, TestListener& listener) {
      listener.WaitForEnd();
      EXPECT_THAT(std::string(listener.failure.status.message()), HasSubstr("canceled by its owner"));
      EXPECT_EQ(listener.failure.suspect_worker, "w7");
    });
  }
}

// The request may come before or after the task has failed, depending on the timing of threads. The test therefore runs
// many tasks.
TEST(TaskExecutor, ATaskWithoutDevicesFailsAndReplacesNoCode) {
  for (int i = 0; i < 100; ++i) {
    TaskCluster cluster(std::vector<std::vector<int>>(1));
    cluster.store.Put("new", MakeExecutable().SerializeAsString());
    cluster.tasks[0]->ReplaceCode("new");
    cluster.listeners[0]->WaitForEnd();
    EXPECT_FALSE(cluster.listeners[0]->finished);
    EXPECT_THAT(std::string(cluster.listeners[0]->failure.status.message()), HasSubstr("a task without devices"));
  }
}

TEST(TaskExecutor, AMissingPeerIsAnErrorThatNamesWhatWaits) {
  ManualClock clock;
  TaskCluster cluster({{0, 1}, {2, 3}}, MakeExecutable(), MakeSpec(), &clock);
  cluster.tasks[0]->Lease(6);
  cluster.tasks[1]->Lease(5);
  for (const auto& task : cluster.tasks) {
    while (task->finished_steps() < 5) std::this_thread::yield();
  }
  TestListener& listener = *cluster.listeners[0];
  std::atomic<bool> ended = false;
  std::thread time([&] {
    while (!ended) {
      clock.Advance(1001 * kNsPerMs);
      std::this_thread::yield();
    }
  });
  listener.WaitForEnd();
  ended = true;
  time.join();
  EXPECT_EQ(listener.failure.status.code(), absl::StatusCode::kDeadlineExceeded);
  const std::string text(listener.failure.status.message());
  for (const char* words :
       {"no progress for more than 1000 ms", "because dot.1: contracting dimension 0", "(model.py:12)"}) {
    EXPECT_THAT(text, HasSubstr(words));
  }
  // The worker's other device may not have reached the collective yet.
  EXPECT_THAT(text, AnyOf(HasSubstr("device 0: all-reduce.1, step 5, rank 0 of 4"),
                          HasSubstr("device 1: all-reduce.1, step 5, rank 1 of 4")));
}

TEST(TaskExecutor, DroppingWhileLoadingOrConnectingEnds) {
  // The second worker may end before it has connected. The devices of the first worker then wait for it.
  TaskCluster cluster({{0, 1, 2}, {3}});
  cluster.tasks[1].reset();
  cluster.tasks[0].reset();
}

TEST(TaskExecutor, SavesCheckpointsWhileItTrains) {
  for (const auto& placement : kPlacements) {
    JobSpec spec = MakeSpec();
    spec.mutable_checkpoint()->set_every_steps(4);
    TaskCluster cluster(placement, MakeExecutable(), spec);
    cluster.ForAll([](TaskExecutor& task, TestListener&) { EXPECT_TRUE(task.CheckpointAt(3)); });
    cluster.ForAll([](TaskExecutor& task, TestListener&) { task.Lease(kSteps); });
    cluster.ForAll([](TaskExecutor&, TestListener& listener) {
      listener.WaitForEnd();
      EXPECT_TRUE(listener.finished) << listener.failure.status;
      std::vector<int64_t> expected = {3};
      for (int64_t step = 4; step < kSteps; step += 4) expected.push_back(step);
      expected.push_back(kSteps);
      EXPECT_EQ(listener.shards, expected);
    });
    for (int64_t step = 4; step < kSteps; step += 4) CheckState(&cluster.store, step);
    CheckState(&cluster.store, 3);
    CheckState(&cluster.store, kSteps);
  }
}

TEST(TaskExecutor, StepsDoNotWaitForACoordinatorThatCannotBeReached) {
  for (const auto& placement : kPlacements) {
    JobSpec spec = MakeSpec();
    spec.mutable_checkpoint()->set_every_steps(4);
    TaskCluster cluster(placement, MakeExecutable(), spec);
    cluster.store.cut_off = true;
    cluster.ForAll([](TaskExecutor& task, TestListener&) { task.Lease(kSteps); });
    cluster.ForAll([](TaskExecutor& task, TestListener&) {
      while (task.finished_steps() < kSteps) std::this_thread::yield();
    });
    cluster.store.cut_off = false;
    cluster.ForAll([](TaskExecutor&, TestListener& listener) {
      listener.WaitForEnd();
      EXPECT_TRUE(listener.finished) << listener.failure.status;
      EXPECT_EQ(listener.shards, (std::vector<int64_t>{4, kSteps})) << "the others were skipped";
    });
    CheckState(&cluster.store, 4);
    CheckState(&cluster.store, kSteps);
  }
}

TEST(TaskExecutor, ALossThatIsNotFiniteStopsWithItsNameAndTheFirstTensor) {
  for (const bool stops : {false, true}) {
    JobSpec spec = MakeSpec();
    spec.set_stop_when_not_finite(stops);
    spec.mutable_results(2)->set_name("loss");
    nan_step = 5;
    TaskCluster cluster({{0, 1}, {2, 3}}, MakeExecutable(), spec);
    cluster.ForAll([](TaskExecutor& task, TestListener&) { task.Lease(kSteps); });
    cluster.ForAll([](TaskExecutor&, TestListener& listener) { listener.WaitForEnd(); });
    nan_step = INT_MAX;
    const TestListener& listener = *cluster.listeners[0];
    EXPECT_EQ(listener.finished, !stops);
    if (!stops) continue;
    EXPECT_EQ(listener.failure.status.code(), absl::StatusCode::kOutOfRange);
    for (const char* words : {"step 5: found loss = nan", "in the state after the step: w (on device 0)"}) {
      EXPECT_THAT(std::string(listener.failure.status.message()), HasSubstr(words));
    }
    EXPECT_EQ(listener.losses.size(), 5);
  }
}

// The coordinator starts another attempt after an error that may be temporary, and gives up after an error of the
// program.
TEST(TaskExecutor, AnErrorOfTheDiskIsNotAnErrorOfTheProgram) {
  for (const std::string fault : {"unopenable", "unreadable"}) {
    for (const bool is_state : {true, false}) {
      JobSpec spec = MakeSpec();
      if (is_state) spec.set_state_blob(fault + "/state");
      if (!is_state) spec.set_data_blob(fault + "/data");
      TaskCluster cluster({{0, 1, 2, 3}}, MakeExecutable(), spec);
      cluster.tasks[0]->Lease(kSteps);
      TestListener& listener = *cluster.listeners[0];
      listener.WaitForEnd();
      EXPECT_TRUE(absl::IsUnavailable(listener.failure.status)) << listener.failure.status;
      EXPECT_THAT(std::string(listener.failure.status.message()), HasSubstr("Input/output error"));
    }
  }
}

// Another attempt on the same device would most likely fail as well.
TEST(TaskExecutor, AnErrorOfTheDeviceIsNotAnErrorOfTheDisk) {
  copies_fail = true;
  TaskCluster cluster({{0, 1, 2, 3}});
  TestListener& listener = *cluster.listeners[0];
  listener.WaitForEnd();
  copies_fail = false;
  EXPECT_TRUE(absl::IsInternal(listener.failure.status)) << listener.failure.status;
  EXPECT_THAT(std::string(listener.failure.status.message()), HasSubstr("the device cannot be written"));
}

TEST(TaskExecutor, AFullDiskCostsACheckpointButNotTheLastState) {
  JobSpec spec = MakeSpec();
  spec.mutable_checkpoint()->set_every_steps(4);
  TaskCluster cluster({{0, 1, 2, 3}}, MakeExecutable(), spec);
  cluster.store.failures = 1;
  cluster.tasks[0]->Lease(kSteps - 1);
  TestListener& listener = *cluster.listeners[0];
  while (cluster.tasks[0]->finished_steps() < kSteps - 1) std::this_thread::yield();
  {
    std::lock_guard<std::mutex> lock(cluster.store.mutex);
    cluster.store.failures = 1;  // The write of the last state is repeated.
  }
  cluster.tasks[0]->Lease(kSteps);
  listener.WaitForEnd();
  EXPECT_TRUE(listener.finished) << listener.failure.status;
  EXPECT_FALSE(cluster.store.written.contains({4, "w"}));
  CheckState(&cluster.store, kSteps);
}

// The stop is requested after the checkpoint of its step has failed, or while it is being written.
TEST(TaskExecutor, AStopAtACheckpointThatFailsHasItsState) {
  for (const bool has_failed : {true, false}) {
    JobSpec spec = MakeSpec();
    spec.mutable_checkpoint()->set_every_steps(4);
    TaskCluster cluster({{0, 1, 2, 3}}, MakeExecutable(), spec);
    TaskExecutor& task = *cluster.tasks[0];
    TestListener& listener = *cluster.listeners[0];
    cluster.store.failures = 1;
    cluster.store.cut_off = !has_failed;
    task.Lease(4);
    if (has_failed) listener.WaitFor([&] { return listener.shard_failures > 0; });
    while (cluster.store.calls == 0) std::this_thread::yield();
    EXPECT_TRUE(task.StopAt(4));
    cluster.store.cut_off = false;
    listener.WaitFor([&] { return listener.stopped_at == 4; });
    EXPECT_EQ(listener.shard_failures, 1);
    CheckState(&cluster.store, 4);
  }
}

// While the disk is full, the copy of the state at a stop delays the next save only until the stop is replaced.
TEST(TaskExecutor, AReplacedStopWhoseStateCannotBeStoredDoesNotHoldTheDevices) {
  JobSpec spec = MakeSpec();
  spec.mutable_checkpoint()->set_every_steps(4);
  TaskCluster cluster({{0, 1, 2, 3}}, MakeExecutable(), spec);
  TaskExecutor& task = *cluster.tasks[0];
  TestListener& listener = *cluster.listeners[0];
  cluster.store.failures = 1 << 20;
  EXPECT_TRUE(task.StopAt(2));
  task.Lease(kSteps);
  listener.WaitFor([&] { return listener.stopped_at == 2 || listener.shard_failures > 0; });
  EXPECT_TRUE(task.StopAt(6));
  while (task.finished_steps() < 6) std::this_thread::yield();
  {
    std::lock_guard<std::mutex> lock(cluster.store.mutex);
    cluster.store.failures = 0;
  }
  listener.WaitFor([&] { return listener.stopped_at == 6; });
  CheckState(&cluster.store, 6);
}

TEST(TaskExecutor, TheTriesToStoreAStateBecomeRarer) {
  const std::vector<int64_t> pauses_ms = {1000, 2000, 4000, 8000, 16'000, 30'000, 30'000};
  for (size_t i = 0; i < pauses_ms.size(); ++i) {
    EXPECT_EQ(PauseAfterFailures(static_cast<int>(i) + 1).count(), pauses_ms[i]);
  }
}

TEST(TaskExecutor, ATaskThatKeepsItsLastStateCanBeDropped) {
  TaskCluster cluster({{0, 1}, {2, 3}});
  cluster.store.failures = 1 << 20;
  cluster.ForAll([](TaskExecutor& task, TestListener&) { task.Lease(kSteps); });
  for (auto& task : cluster.tasks) {
    while (task->finished_steps() < kSteps) std::this_thread::yield();
  }
  cluster.Drop();
  for (const auto& listener : cluster.listeners) EXPECT_FALSE(listener->finished) << "its state is not stored";
}

std::string FailureOf(const Executable& executable, const JobSpec& spec) {
  TaskCluster cluster({{0, 1}, {2, 3}}, executable, spec);
  cluster.ForAll([](TaskExecutor& task, TestListener&) { task.Lease(kSteps); });
  cluster.ForAll([](TaskExecutor&, TestListener& listener) { listener.WaitForEnd(); });
  return std::string(cluster.listeners[0]->failure.status.message());
}

TEST(TaskExecutor, ErrorsNameWhatIsInconsistent) {
  Executable executable = MakeExecutable();
  executable.mutable_steps(0)->mutable_kernel()->set_symbol("missing");
  EXPECT_THAT(FailureOf(executable, MakeSpec()), HasSubstr("no kernel missing"));
  executable = MakeExecutable();
  executable.mutable_parameters(1)->mutable_boxes(2)->set_hi(0, 9);
  EXPECT_THAT(FailureOf(executable, MakeSpec()),
              HasSubstr("parameter 1 (\"v\"): found box [4:9], expected one inside f32[7]"));
  executable = MakeExecutable();
  executable.mutable_parameters(1)->mutable_boxes()->RemoveLast();
  EXPECT_THAT(FailureOf(executable, MakeSpec()), HasSubstr("found 3 boxes, expected 1 or 4"));
  executable = MakeExecutable();  // Its boxes of v are inside the stored tensor.
  for (EntryValue* v : {executable.mutable_parameters(1), executable.mutable_results(1)}) {
    v->mutable_global()->set_dims(0, 6);
    v->mutable_boxes(3)->set_hi(0, 6);
  }
  EXPECT_THAT(FailureOf(executable, MakeSpec()), HasSubstr("\"v\": found f32[7], expected f32[6]"));
  JobSpec spec = MakeSpec();
  spec.mutable_results(0)->set_kind(JobSpec::Result::METRIC);
  EXPECT_THAT(FailureOf(MakeExecutable(), spec), HasSubstr("result 0 (\"\"): found f32[4] for a loss or metric"));
  spec = MakeSpec();
  spec.mutable_parameters(0)->set_kind(JobSpec::Parameter::STEP);
  EXPECT_THAT(FailureOf(MakeExecutable(), spec), HasSubstr("that it feeds parameter 0"));
  for (const int64_t feeds : {int64_t{3}, int64_t{4}, int64_t{1} << 32, (int64_t{1} << 32) + 1, INT64_MAX}) {
    spec = MakeSpec();
    spec.mutable_results(0)->set_feeds(feeds);
    EXPECT_THAT(FailureOf(MakeExecutable(), spec), HasSubstr(absl::StrCat("that it feeds parameter ", feeds)));
  }
}

Executable QuickExecutable() {
  Executable executable = MakeExecutable();
  executable.set_quick(true);
  return executable;
}

// Adds an executable to the store and returns its digest.
std::string Add(const Executable& executable, TaskCluster* cluster) {
  const std::string bytes = executable.SerializeAsString();
  const std::string digest = Sha256Hex(bytes);
  cluster->store.Put(digest, bytes);
  return digest;
}

JobSpec LongSpec() {
  JobSpec spec = MakeSpec();
  spec.set_steps(1'000'000);
  return spec;
}

// The new code is requested after each of the first steps. The step in which device 0 first runs it depends on the
// timing of threads. The task therefore runs until this step, and then three more steps.
TEST(TaskExecutor, NewCodeComputesTheSameStates) {
  for (const auto& placement : kPlacements) {
    for (int64_t requested = 0; requested < 6; ++requested) {
      TaskCluster cluster(placement, QuickExecutable(), LongSpec());
      const std::string digest = Add(MakeExecutable(), &cluster);
      TestListener* first = nullptr;
      cluster.ForAll([&](TaskExecutor&, TestListener& listener) {
        listener.WaitFor([&] { return listener.ready; });
        ASSERT_EQ(listener.failed_at, -1) << listener.failure.status;
      });
      for (size_t w = 0; w < placement.size(); ++w) {
        for (const int device : placement[w]) first = device == 0 ? cluster.listeners[w].get() : first;
      }
      int64_t lease = requested;
      const auto run = [&] {
        cluster.ForAll([&](TaskExecutor& task, TestListener&) { task.Lease(lease); });
        first->WaitFor([&] { return std::ssize(first->losses) >= lease; });
        ASSERT_EQ(first->failed_at, -1) << first->failure.status;
      };
      run();
      for (int repeated = 0; repeated < 2; ++repeated) {
        cluster.ForAll([&](TaskExecutor& task, TestListener&) { task.ReplaceCode(digest); });
      }
      do {
        ++lease;
        run();
      } while (first->quick_code.back());
      const int64_t stop = lease + 3;
      cluster.ForAll([&](TaskExecutor& task, TestListener&) {
        EXPECT_TRUE(task.StopAt(stop));
        task.Lease(stop + 1);
      });
      cluster.ForAll([&](TaskExecutor&, TestListener& listener) {
        listener.WaitFor([&] { return listener.stopped_at == stop; });
      });
      for (int64_t step = 0; step < stop; ++step) {
        const bool is_quick = first->quick_code[step];
        if (step < requested) EXPECT_TRUE(is_quick) << step;
        if (step > 0 && is_quick) EXPECT_TRUE(first->quick_code[step - 1]) << step;
      }
      EXPECT_EQ(first->losses, Reference(stop).losses);
      CheckState(&cluster.store, stop);
    }
  }
}

TEST(TaskExecutor, AProgramThatDiffersIsRefusedAndTheStepsContinue) {
  std::vector<Executable> others(5, MakeExecutable());
  others[0].mutable_steps()->SwapElements(0, 2);
  others[1].mutable_allocations(0)->set_bytes(32);
  others[2].mutable_collectives(0)->set_reduction(xlad::CollectiveSpec::MAX);
  others[3].mutable_steps(0)->mutable_kernel()->set_symbol("update");
  others[4].set_program_hash("another");
  for (size_t i = 0; i <= others.size() + 1; ++i) {
    TaskCluster cluster({{0, 1}, {2, 3}}, QuickExecutable());
    std::string digest = i < others.size() ? Add(others[i], &cluster) : "missing";
    if (i > others.size()) {
      digest = Add(MakeExecutable(), &cluster);
      cluster.store.Put(digest, "damaged");
    }
    cluster.ForAll([&](TaskExecutor& task, TestListener& listener) {
      listener.WaitFor([&] { return listener.ready; });
      task.ReplaceCode(digest);
    });
    cluster.ForAll([](TaskExecutor& task, TestListener&) { task.Lease(kSteps); });
    cluster.ForAll([](TaskExecutor&, TestListener& listener) {
      listener.WaitForEnd();
      EXPECT_TRUE(listener.finished) << listener.failure.status;
      for (const bool is_quick : listener.quick_code) EXPECT_TRUE(is_quick);
    });
    CheckState(&cluster.store, kSteps);
  }
}

TEST(TaskExecutor, NewCodeCanBeRequestedAgainAfterAnError) {
  for (const bool is_damaged : {false, true}) {
    TaskCluster cluster({{0, 1, 2, 3}}, QuickExecutable(), LongSpec());
    const std::string digest = Add(MakeExecutable(), &cluster);
    TestListener& listener = *cluster.listeners[0];
    listener.WaitFor([&] { return listener.ready; });
    cluster.store.Put("damaged", "damaged");
    cluster.ForAll([&](TaskExecutor& task, TestListener&) { task.ReplaceCode(is_damaged ? "damaged" : "missing"); });
    int64_t lease = 0;
    do {
      ++lease;
      cluster.ForAll([&](TaskExecutor& task, TestListener&) {
        task.ReplaceCode(digest);
        task.Lease(lease);
      });
      listener.WaitFor([&] { return std::ssize(listener.losses) >= lease; });
      ASSERT_EQ(listener.failed_at, -1) << listener.failure.status;
    } while (listener.quick_code.back());
    EXPECT_EQ(listener.losses, Reference(lease).losses);
  }
}

// A task that ends while it reads the new code does not wait for it.
TEST(TaskExecutor, TheEndOfATaskEndsTheReplacement) {
  TaskCluster cluster({{0, 1, 2, 3}}, QuickExecutable());
  cluster.store.Block("blocked");
  cluster.ForAll([](TaskExecutor& task, TestListener& listener) {
    listener.WaitFor([&] { return listener.ready; });
    task.ReplaceCode("blocked");
    task.Lease(kSteps);
    listener.WaitForEnd();
    EXPECT_TRUE(listener.finished) << listener.failure.status;
    task.ReplaceCode("blocked");
  });
  CheckState(&cluster.store, kSteps);
}

}  // namespace
}  // namespace xlad::runtime
