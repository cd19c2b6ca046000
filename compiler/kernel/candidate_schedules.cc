#include "compiler/kernel/candidate_schedules.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/containers.h"
#include "compiler/kernel/product_schedule.h"

namespace xlad::compiler {
namespace {

constexpr int64_t kMaxInnerIterations = 1024;  // The maximum number of iterations of an inner loop.

// The tile size of the usual schedule, and this size divided and multiplied by two and four. Tile sizes other than the
// usual one must be smaller than the number of iterations.
std::vector<int64_t> Tiles(const ScheduledKernel& usual) {
  std::vector<int64_t> tiles = {usual.schedule.tile};
  if (usual.schedule.bind.empty()) return tiles;
  int64_t iterations = 1;
  for (const int loop : usual.bound) iterations *= usual.loops[loop].size;
  for (const int64_t tile : {usual.schedule.tile / 2, usual.schedule.tile / 4, usual.schedule.tile * 2,
                             usual.schedule.tile * 4}) {
    if (tile >= 1 && tile < iterations) tiles.push_back(tile);
  }
  std::vector<int64_t> distinct;
  for (const int64_t tile : tiles) {
    if (!Contains(distinct, tile)) distinct.push_back(tile);
  }
  return distinct;
}

// The schedule with dimension `dim` split by `factor`, or not split if `factor` is 0.
KernelSchedule WithSplit(const KernelSchedule& schedule, const std::string& dim, int64_t factor) {
  KernelSchedule changed = schedule;
  std::erase_if(changed.splits, [&](const KernelSchedule::Split& split) { return split.dim == dim; });
  const std::string outer = dim + ".o", inner = dim + ".i";
  const auto rename = [&](std::string& loop) {
    if (factor == 0 && (loop == outer || loop == inner)) loop = dim;
    if (factor > 0 && loop == dim) loop = inner;
  };
  for (std::string& loop : changed.order) rename(loop);
  for (auto* places : {&changed.at, &changed.stage}) {
    for (KernelSchedule::Place& place : *places) rename(place.loop);
  }
  for (std::string& loop : changed.vectorize) rename(loop);
  changed.order.erase(std::unique(changed.order.begin(), changed.order.end()), changed.order.end());
  if (factor == 0) return changed;
  changed.splits.push_back({dim, factor});
  if (!Contains(changed.order, outer)) {
    changed.order.insert(std::find(changed.order.begin(), changed.order.end(), inner), outer);
  }
  return changed;
}

std::vector<KernelSchedule> Splits(const ScheduledKernel& usual) {
  std::vector<KernelSchedule> schedules = {usual.schedule};
  if (usual.loops.empty()) return schedules;
  const KernelDim& dim = usual.kernel.dims[usual.loops.back().dim];
  const bool is_bound = Contains(usual.schedule.bind, dim.name);
  if (is_bound) return schedules;
  int64_t lanes = 1, factor = 0;
  for (const Statement& statement : usual.kernel.statements) lanes = std::max(lanes, statement.lanes);
  for (const KernelSchedule::Split& split : usual.schedule.splits) {
    if (split.dim == dim.name) factor = split.factor;
  }
  for (const int64_t other : Dims{0, lanes, 2 * lanes, 4 * lanes, 8 * lanes, 256}) {
    if (other == factor || other == 1 || other > kMaxInnerIterations || (other > 0 && other >= dim.size)) continue;
    KernelSchedule changed = WithSplit(usual.schedule, dim.name, other);
    if (!Contains(schedules, changed)) schedules.push_back(changed);
  }
  return schedules;
}

}  // namespace

std::vector<KernelSchedule> CandidateSchedules(const ScheduledKernel& usual) {
  if (IsProductKernel(usual.kernel)) return CandidateProductSchedules(usual);
  std::vector<KernelSchedule> candidates;
  for (const int64_t tile : Tiles(usual)) {
    for (KernelSchedule schedule : Splits(usual)) {
      schedule.tile = tile;
      const auto applied = ApplySchedule(usual.kernel, schedule);
      if (applied.ok()) candidates.push_back(std::move(schedule));
    }
  }
  return candidates;
}

}  // namespace xlad::compiler
