// Every algorithm is correct for every collective, number of ranks and number of slots.
#include "collectives/plan/check_all.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/testing/case_count.h"

namespace xlad::collectives {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(CheckAllPlans, EveryPlanRanksAndSlots) {
  CheckAllOptions options;
  options.most_ranks = static_cast<int>(CaseCount(20, 64));
  options.mutants = static_cast<int64_t>(CaseCount(2000, 20000));
  options.threads = 2;
  const absl::StatusOr<CheckAllCounts> counts = CheckAllPlans(options);
  ASSERT_TRUE(counts.ok()) << counts.status();
  EXPECT_GT(counts->plans, 30 * (options.most_ranks - 1));
  EXPECT_EQ(counts->checks, counts->plans * 8);
  EXPECT_GT(counts->executions, counts->plans) << "a send waits for a slot";
  EXPECT_EQ(counts->mutations.mutants, options.mutants);
  EXPECT_EQ(counts->mutations.mutants, counts->mutations.rejected + counts->mutations.equivalent);
  EXPECT_GT(counts->mutations.equivalent, 0);
  EXPECT_GT(counts->mutations.rejected, 5 * counts->mutations.equivalent);
}

TEST(CheckAllPlans, CountsDoNotDependOnThreads) {
  CheckAllOptions options;
  options.most_ranks = 4;
  options.mutants = 500;
  const absl::StatusOr<CheckAllCounts> one = CheckAllPlans(options);
  options.threads = 3;
  const absl::StatusOr<CheckAllCounts> three = CheckAllPlans(options);
  ASSERT_TRUE(one.ok() && three.ok()) << one.status() << three.status();
  EXPECT_EQ(one->executions, three->executions);
  EXPECT_EQ(one->mutations.rejected, three->mutations.rejected);
}

TEST(CheckAllPlans, OneAlgorithmAndTheCanonicalModeAreChecked) {
  CheckAllOptions options;
  options.most_ranks = 8;
  options.mutants = 200;
  const int64_t of_all = CheckAllPlans(options)->plans;
  options.algorithm = "direct";
  const absl::StatusOr<CheckAllCounts> direct = CheckAllPlans(options);
  ASSERT_TRUE(direct.ok()) << direct.status();
  EXPECT_LT(direct->plans, of_all);
  options.canonical = true;
  const absl::StatusOr<CheckAllCounts> canonical = CheckAllPlans(options);
  ASSERT_TRUE(canonical.ok()) << canonical.status();
  EXPECT_EQ(canonical->plans, 3 * 7) << "all_reduce, reduce_scatter and reduce over 2 to 8 ranks";
  EXPECT_EQ(canonical->mutations.mutants, 200);
  options.algorithm = "ring";
  EXPECT_THAT(std::string(CheckAllPlans(options).status().message()), HasSubstr("no canonical plan for 2 to 8 ranks"));
  options.algorithm = "rink";
  EXPECT_THAT(std::string(CheckAllPlans(options).status().message()), HasSubstr("rink"));
}

TEST(RunUntilError, StartsNoTaskAfterOneThatFailed) {
  std::vector<int64_t> started;
  const absl::Status status = RunUntilError(100, /*threads=*/1, [&](int64_t i) {
    started.push_back(i);
    return i < 3 ? absl::OkStatus() : absl::InternalError(absl::StrCat("task ", i));
  });
  EXPECT_EQ(status.message(), "task 3");
  EXPECT_THAT(started, ElementsAre(0, 1, 2, 3));
}

// Task 2 fails after task 5.
TEST(RunUntilError, ReturnsTheErrorOfTheLowestNumber) {
  std::promise<void> has_failed;
  const std::shared_future<void> failed = has_failed.get_future().share();
  const absl::Status status = RunUntilError(100, /*threads=*/3, [&](int64_t i) {
    if (i == 2) failed.wait();
    if (i == 5) has_failed.set_value();
    return i == 2 || i == 5 ? absl::InternalError(absl::StrCat("task ", i)) : absl::OkStatus();
  });
  EXPECT_EQ(status.message(), "task 2");
  EXPECT_TRUE(RunUntilError(10, 2, [](int64_t) { return absl::OkStatus(); }).ok());
}

}  // namespace
}  // namespace xlad::collectives
