// Tasks whose devices are of two kinds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/testing/task_cluster.h"

namespace xlad::runtime {
namespace {

using ::testing::HasSubstr;

TEST(MixedTask, DevicesOfTwoKindsTrainOneProgram) {
  const Executable other = MakeOtherExecutable();
  for (const auto& placement : kPlacements) {
    JobSpec spec = MakeSpec();
    spec.mutable_checkpoint()->set_every_steps(5);
    TaskCluster cluster(placement, MakeExecutable(), spec, nullptr, &other);
    cluster.ForAll([](TaskExecutor& task, TestListener&) { task.Lease(kSteps); });
    std::vector<float> losses;
    std::map<std::string, int64_t> launches, collectives;
    cluster.ForAll([&](TaskExecutor&, TestListener& listener) {
      listener.WaitForEnd();
      EXPECT_TRUE(listener.finished) << listener.failure.status;
      losses.insert(losses.end(), listener.losses.begin(), listener.losses.end());
      for (const auto& [kind, count] : listener.report.launches()) launches[kind] += count;
      for (const auto& [medium, count] : listener.report.collectives()) collectives[medium] += count;
    });
    EXPECT_EQ(losses, Reference(kSteps).losses);
    EXPECT_EQ(launches, (std::map<std::string, int64_t>{{"test", 2 * 2 * kSteps}, {"other", 2 * 2 * kSteps}}))
        << "two kernels in each step of each device";
    EXPECT_EQ(collectives, (std::map<std::string, int64_t>{{"host memory", 4 * kSteps}}));
    for (int64_t step = 5; step <= kSteps; step += 5) CheckState(&cluster.store, step);
  }
}

// The shards of the first kind fit into the limit. The shards of the other kind do not: they have one more allocation.
TEST(MixedTask, TheMemoryLimitIsForTheShardsOfEachKind) {
  JobSpec spec = MakeSpec();
  spec.set_devices(2);
  spec.mutable_compile()->set_memory_limit_bytes(200);
  const Executable other = MakeOtherExecutable();
  TaskCluster cluster({{1, 2, 3, 0}}, MakeExecutable(), spec, nullptr, &other);
  cluster.listeners[0]->WaitFor([&] { return cluster.listeners[0]->ready; });
  EXPECT_THAT(std::string(cluster.listeners[0]->failure.status.message()),
              HasSubstr("found 2 logical shards on a device that need 136 bytes each, expected at most 200 together"));
}

TEST(MixedTask, ExecutablesOfAnotherProgramAreRefused) {
  const auto failure = [](const Executable& other) {
    TaskCluster cluster({{0, 1, 2, 3}}, MakeExecutable(), MakeSpec(), nullptr, &other);
    cluster.listeners[0]->WaitForEnd();
    return std::string(cluster.listeners[0]->failure.status.message());
  };
  Executable other = MakeOtherExecutable();
  other.mutable_collectives(0)->set_counts(0, 2);
  EXPECT_THAT(failure(other),
              HasSubstr("found collectives that differ from those of the executable for other, expected the same "
                        "program"));
  other = MakeOtherExecutable();
  other.mutable_parameters(1)->mutable_boxes()->SwapElements(0, 1);
  EXPECT_THAT(failure(other), HasSubstr("(\"v\") divided differently than in"));
  other = MakeOtherExecutable();
  other.mutable_target()->set_device_kind("third");
  EXPECT_THAT(failure(other), HasSubstr("found a target of kind third, expected one of this worker's: test, other"));
}

}  // namespace
}  // namespace xlad::runtime
