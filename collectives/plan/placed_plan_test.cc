// Plans of groups on several hosts.
#include "collectives/plan/placed_plan.h"

#include <gtest/gtest.h>

#include "base/random.h"
#include "collectives/plan/check.h"
#include "collectives/plan/spec.h"

namespace xlad::collectives {
namespace {

CollectiveSpec Sum(int ranks, int64_t count) {
  CollectiveSpec spec;
  spec.reduction = Reduction::kSum;
  spec.ranks = ranks;
  spec.counts = {count};
  return spec;
}

std::vector<int> Hosts(int local, int hosts) {
  std::vector<int> all;
  for (int host = 0; host < hosts; ++host) all.insert(all.end(), local, 7 * host);
  return all;
}

// The checker accepts the plan of every grid of hosts, with one slot for each channel.
TEST(PlanOverHosts, IsAcceptedForEveryGridAndSize) {
  for (const int local : {2, 3, 4, 8}) {
    for (const int hosts : {2, 3, 5, 16}) {
      for (const int64_t count : {16384, 16385, 99991, 1 << 20}) {
        const CollectiveSpec spec = Sum(local * hosts, count);
        const auto plan = PlanOverHosts({.algorithm = "direct"}, spec, Hosts(local, hosts));
        ASSERT_TRUE(plan.has_value());
        const absl::Status status = CheckPlan(*plan, spec, {1});
        EXPECT_TRUE(status.ok()) << plan->ToString() << " " << spec.ToString() << ": " << status;
      }
    }
  }
}

// If each host has `local` ranks, direct sends `local` times the bytes of the new plan between two hosts.
TEST(PlanOverHosts, SendsEachByteOnceBetweenTwoHosts) {
  for (const int local : {2, 4}) {
    const CollectiveSpec spec = Sum(2 * local, 1 << 18);
    const CollectivePlan direct{.algorithm = "direct"};
    const auto crossing = [&](const CollectivePlan& plan) {
      int64_t elements = 0;
      const std::vector<Schedule> schedules = *BuildSchedules(plan, spec);
      for (const Schedule& schedule : schedules) {
        for (const ScheduleOp& op : schedule.ops) {
          const bool is_crossing = op.kind == OpKind::kSend && schedule.rank < local && op.peer >= local;
          if (is_crossing) elements += op.src.count;
        }
      }
      return elements;
    };
    EXPECT_EQ(crossing(*PlanOverHosts(direct, spec, Hosts(local, 2))), spec.counts[0]);
    EXPECT_EQ(crossing(direct), local * spec.counts[0]);
  }
}

TEST(PlanOverHosts, OtherCollectivesKeepTheirPlans) {
  const CollectivePlan direct{.algorithm = "direct"};
  const CollectiveSpec spec = Sum(8, 1 << 20);
  ASSERT_TRUE(PlanOverHosts(direct, spec, Hosts(4, 2)).has_value());
  EXPECT_FALSE(PlanOverHosts({.algorithm = "ring"}, spec, Hosts(4, 2)).has_value());
  EXPECT_FALSE(PlanOverHosts({.algorithm = "direct", .engine = "nccl"}, spec, Hosts(4, 2)).has_value());
  for (const std::vector<int>& hosts :
       {Hosts(8, 1), Hosts(1, 8), {0, 0, 0, 0, 0, 1, 1, 1}, {0, 1, 0, 1, 0, 1, 0, 1}, {0, 0, 1, 1, 0, 0, 1, 1}}) {
    EXPECT_FALSE(PlanOverHosts(direct, spec, hosts).has_value());
  }
  const auto changed = [&](auto change) {
    CollectiveSpec other = spec;
    change(&other);
    return PlanOverHosts(direct, other, Hosts(4, 2)).has_value();
  };
  EXPECT_TRUE(changed([](CollectiveSpec* other) { other->reduction = Reduction::kMax; }));
  EXPECT_TRUE(changed([](CollectiveSpec* other) { other->type = tensor::ElementType::kS8; }));
  EXPECT_TRUE(changed([](CollectiveSpec* other) { other->type = tensor::ElementType::kF64; }));
  EXPECT_FALSE(changed([](CollectiveSpec* other) { other->type = tensor::ElementType::kBF16; }));
  EXPECT_FALSE(changed([](CollectiveSpec* other) { other->type = tensor::ElementType::kF16; }));
  EXPECT_FALSE(changed([](CollectiveSpec* other) { other->reduction = Reduction::kAverage; }));
  EXPECT_FALSE(changed([](CollectiveSpec* other) { other->mode = ReductionMode::kFast; }));
  EXPECT_FALSE(changed([](CollectiveSpec* other) { other->mode = ReductionMode::kCanonical; }));
  EXPECT_FALSE(changed([](CollectiveSpec* other) { other->counts = {100}; }));
  EXPECT_FALSE(changed([](CollectiveSpec* other) { other->kind = CollectiveKind::kReduceScatter; }));
}

// No plan is made for hosts whose ranks are not consecutive, or that have different numbers of ranks.
TEST(PlanOverHosts, RandomPlacementsKeepTheOrderOfTheRanks) {
  const std::unique_ptr<Random> random = SeededRandom(3);
  int replaced = 0;
  for (int round = 0; round < 3000; ++round) {
    std::vector<int> hosts(4);
    for (int& host : hosts) host = static_cast<int>(random->Below(3));
    const bool pairs = hosts[0] == hosts[1] && hosts[2] == hosts[3] && hosts[0] != hosts[2];
    const CollectiveSpec spec = Sum(4, 1 << 20);
    const auto plan = PlanOverHosts({.algorithm = "direct"}, spec, hosts);
    EXPECT_EQ(plan.has_value(), pairs);
    replaced += pairs ? 1 : 0;
    if (plan.has_value()) EXPECT_EQ(plan->grid, (std::vector<int>{2, 2}));
  }
  EXPECT_GT(replaced, 100);
}

}  // namespace
}  // namespace xlad::collectives
