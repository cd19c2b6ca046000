#include "collectives/exec/group/calibrate.h"

#include "collectives/exec/group/calibrator.h"

namespace xlad::collectives {

namespace {

// Returns the plans that are measured: one shot, and slots with at most kMoreChunks times as many chunks as the group
// chooses. The other plans are several times slower and would distort the fit.
std::vector<CollectivePlan> PlansOf(const ProcessGroup& group, const CollectiveSpec& spec) {
  constexpr int kMoreChunks = 4;
  std::vector<CollectivePlan> plans = group.Plans(spec, /*registered=*/false);
  const int chosen = plans[0].chunks;
  std::erase_if(plans, [chosen](const CollectivePlan& plan) { return plan.chunks > kMoreChunks * chosen; });
  return plans;
}

}  // namespace

absl::StatusOr<CostModel> Calibrate(ProcessGroup* group, const Clock& clock, int64_t budget_ms) {
  const auto plans_of = [group](const CollectiveSpec& spec, int64_t) { return PlansOf(*group, spec); };
  const auto prepare = [group](const CollectiveSpec& spec, const std::string& plan) {
    return group->Prepare(spec, {.plan = plan});
  };
  CostParameters base;
  base.windows = true;
  constexpr int kIterations = 4;
  return Calibrator<ProcessGroup>(group, clock,
                                  {{64 << 10, 1 << 20, 1 << 10, 256 << 10, 8 << 10, 4 << 20},
                                   kIterations,
                                   plans_of,
                                   prepare,
                                   base,
                                   budget_ms})
      .Run();
}

}  // namespace xlad::collectives
