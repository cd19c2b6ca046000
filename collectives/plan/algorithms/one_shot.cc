// One round for small AllReduces: each rank sends its input to all others and reduces all inputs itself.
#include "collectives/plan/algorithms/build.h"
#include "collectives/plan/algorithms/rows.h"

namespace xlad::collectives {
namespace {

Schedule Build(const CollectivePlan& plan, const CollectiveSpec& spec, int rank) {
  ScheduleBuilder builder(plan, spec, rank);
  const int n = spec.ranks, self = builder.position();
  for (const Unit& unit : Units(plan, {0, spec.input_elements()})) {
    builder.set_channel(unit.channel);
    std::vector<ReduceSource> sources(n);
    for (int distance = 1; distance < n; ++distance) builder.Send(Mod(self + distance, n), InputRegion(unit.at));
    for (int p = 0; p < n; ++p) {
      ReduceSource& source = sources[builder.positions().RankAt(p)];
      if (p == self) {
        source.region = InputRegion(unit.at);
      } else {
        source.peer = p;
      }
    }
    builder.Reduce(OutputRegion(unit.at), sources);
  }
  // The schedule is not in place, because the ranks would deadlock: each rank could overwrite its input only after the
  // others have received it, and would receive their inputs only then.
  return builder.Finish(/*in_place=*/false);
}

AlgorithmCost Cost(const CollectivePlan& plan, const CollectiveSpec& spec) {
  const int64_t n = spec.ranks, count = spec.input_elements();
  if (count == 0) return {};
  return {1, (n - 1) * NumUnits(plan), count * (n - 1), count * n};
}

}  // namespace

Algorithm OneShotAlgorithm() {
  return {.name = "direct_one_shot",
          .summary = "the input of each rank to all others; one round for an AllReduce",
          .refuses =
              [](const CollectivePlan&, const CollectiveSpec& spec) {
                return spec.ranks < 2 ? "2 or more ranks" : RefuseKinds(spec, {CollectiveKind::kAllReduce});
              },
          .build = Build,
          .cost = Cost,
          .is_canonical = [](const CollectiveSpec&) { return true; },
          .reduces_once = true};
}

}  // namespace xlad::collectives
