#include "collectives/exec/messages/calibrate.h"

#include "collectives/exec/group/calibrator.h"

namespace xlad::collectives {
namespace {

constexpr int64_t kChunkedFromBytes = 64 << 10;
constexpr int kChunks = 4;
constexpr int kIterations = 5;

std::vector<CollectivePlan> PlansOf(const CollectiveSpec& spec, int64_t bytes) {
  std::vector<CollectivePlan> plans;
  for (const Algorithm& algorithm : Algorithms()) {
    if (algorithm.needs_windows || !Applies(algorithm, spec)) continue;
    plans.push_back({.algorithm = std::string(algorithm.name)});
    if (bytes >= kChunkedFromBytes) plans.push_back({.algorithm = std::string(algorithm.name), .chunks = kChunks});
  }
  return plans;
}

}  // namespace

absl::StatusOr<CostModel> Calibrate(MessageGroup* group, const Clock& clock, int64_t budget_ms) {
  const auto prepare = [group](const CollectiveSpec& spec, const std::string& plan) {
    return group->Prepare(spec, plan);
  };
  return Calibrator<MessageGroup>(group, clock,
                                  {{1 << 10, 64 << 10, 1 << 20, 256 << 10, 8 << 10},
                                   kIterations,
                                   PlansOf,
                                   prepare,
                                   CostParameters(),
                                   budget_ms})
      .Run();
}

}  // namespace xlad::collectives
