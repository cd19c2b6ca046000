// The time budget of the calibration, with a group of one rank whose operations take no time.
#include "collectives/exec/group/calibrator.h"

#include <gtest/gtest.h>

#include <cstring>

namespace xlad::collectives {
namespace {

constexpr int64_t kSize = 1 << 10;

class InstantGroup {
 public:
  struct Operation {
    int64_t bytes = 0;
  };
  int ranks() const { return 1; }
  absl::Status Barrier() { return absl::OkStatus(); }
  absl::Status Run(Operation& operation, const void* input, void* output) {
    std::memcpy(output, input, operation.bytes);
    return absl::OkStatus();
  }
};

// Calibrates with one plan for each kind. Each plan takes `ms_per_plan` to find.
struct Calibration {
  absl::StatusOr<CostModel> Run(int64_t budget_ms, int64_t ms_per_plan, const CollectivePlan& plan) {
    Calibrator<InstantGroup>::Options options;
    options.sizes = {kSize};
    options.plans_of = [&](const CollectiveSpec&, int64_t) {
      clock.Advance(ms_per_plan * kNsPerMs);
      return std::vector<CollectivePlan>{plan};
    };
    options.prepare = [&](const CollectiveSpec& spec, const std::string& text) {
      measured += text.empty() ? 0 : 1;  // Without a plan, it is the operation that finds the slowest rank.
      return std::make_unique<InstantGroup::Operation>(
          InstantGroup::Operation{spec.input_elements() * tensor::ByteWidth(spec.type)});
    };
    options.budget_ms = budget_ms;
    return Calibrator<InstantGroup>(&group, clock, options).Run();
  }
  ManualClock clock;
  InstantGroup group;
  int measured = 0;
};

TEST(Calibrator, TheBudgetIncludesTheTimeBetweenMeasurements) {
  for (const auto& [budget_ms, expected] : {std::pair<int64_t, int>{1000, 6}, {25, 3}, {10, 1}, {1, 1}, {0, 0}}) {
    Calibration calibration;
    const auto costs = calibration.Run(budget_ms, 10, {.algorithm = "direct"});
    ASSERT_TRUE(costs.ok()) << costs.status();
    EXPECT_EQ(calibration.measured, expected) << budget_ms;
  }
}

// A plan that does not exist is an error when its schedules are built.
TEST(Calibrator, WithoutABudgetNoScheduleIsBuilt) {
  Calibration with, without;
  EXPECT_EQ(with.Run(1, 0, {.algorithm = "none"}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(without.Run(0, 0, {.algorithm = "none"}).ok());
}

}  // namespace
}  // namespace xlad::collectives
