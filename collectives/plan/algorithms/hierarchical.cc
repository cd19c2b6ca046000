// AllReduce in two levels: reduce-scatter within each host, AllReduce of each part across hosts, all-gather within each
// host. Each of the L ranks of a host exchanges only 1 / L of the data with other hosts.
//
// The ranks of a host exchange directly. Hosts exchange in a ring, or directly if the order of reduction is canonical.
#include "collectives/plan/algorithms/build.h"
#include "collectives/plan/algorithms/rows.h"
#include "collectives/plan/grid.h"

namespace xlad::collectives {
namespace {

// A level of the hierarchy for one rank: the members in order, and the index of the rank among them.
struct Level {
  std::vector<int> members;
  int self = 0;
  int size() const { return std::ssize(members); }
  int At(int place) const { return members[Mod(place, size())]; }
};

std::vector<ReduceSource> SourcesOf(const Level& level, Region own) {
  std::vector<ReduceSource> sources(level.size());
  for (int i = 0; i < level.size(); ++i) {
    if (i == level.self) {
      sources[i].region = own;
    } else {
      sources[i].peer = level.members[i];
    }
  }
  return sources;
}

// Appends a reduce-scatter among the members. Member i then has the reduced part i in its output.
void DirectReduceScatter(const Level& level, const std::vector<Interval>& parts, bool from_input,
                         ScheduleBuilder* builder) {
  const auto own = [&](int i) { return from_input ? InputRegion(parts[i]) : OutputRegion(parts[i]); };
  for (int d = 1; d < level.size(); ++d) {
    const int to = Mod(level.self + d, level.size());
    builder->Send(level.members[to], own(to));
  }
  if (from_input || level.size() > 1) {
    builder->Reduce(OutputRegion(parts[level.self]), SourcesOf(level, own(level.self)));
  }
}

void DirectAllGather(const Level& level, const std::vector<Interval>& parts, ScheduleBuilder* builder) {
  for (int d = 1; d < level.size(); ++d) builder->Send(level.At(level.self + d), OutputRegion(parts[level.self]));
  for (int d = 1; d < level.size(); ++d) {
    const int from = Mod(level.self - d, level.size());
    builder->Recv(level.members[from], OutputRegion(parts[from]));
  }
}

void RingAllReduce(const Level& level, const std::vector<Interval>& parts, ScheduleBuilder* builder) {
  const auto part = [&](int steps) { return OutputRegion(parts[Mod(level.self - steps, level.size())]); };
  for (int step = 0; step < level.size() - 1; ++step) {
    builder->Send(level.At(level.self + 1), part(step + 1));
    builder->RecvReduce(level.At(level.self - 1), part(step + 2), part(step + 2));
  }
  for (int step = 0; step < level.size() - 1; ++step) {
    builder->Send(level.At(level.self + 1), part(step));
    builder->Recv(level.At(level.self - 1), part(step + 1));
  }
}

Schedule Build(const CollectivePlan& plan, const CollectiveSpec& spec, int rank) {
  ScheduleBuilder builder(plan, spec, rank);
  const std::vector<int> grid = GridOf(plan, spec.ranks, 2);
  const int self = builder.position();
  Level host, across;
  host.self = self % grid[0];
  across.self = self / grid[0];
  for (int i = 0; i < grid[0]; ++i) host.members.push_back(across.self * grid[0] + i);
  for (int i = 0; i < grid[1]; ++i) across.members.push_back(i * grid[0] + host.self);
  for (const Unit& unit : Units(plan, {0, spec.input_elements()})) {
    builder.set_channel(unit.channel);
    const std::vector<Interval> parts = Parts(unit.at, grid[0]);
    const std::vector<Interval> inner = Parts(parts[host.self], grid[1]);
    DirectReduceScatter(host, parts, /*from_input=*/true, &builder);
    if (spec.mode == ReductionMode::kCanonical) {
      DirectReduceScatter(across, inner, /*from_input=*/false, &builder);
      DirectAllGather(across, inner, &builder);
    } else {
      RingAllReduce(across, inner, &builder);
    }
    DirectAllGather(host, parts, &builder);
  }
  return builder.Finish(/*in_place=*/true);
}

// A rank sends 2 (n - 1) / n of the elements. There are two rounds within the host, and 2 (H - 1) rounds across H
// hosts, or two if hosts exchange directly.
AlgorithmCost Cost(const CollectivePlan& plan, const CollectiveSpec& spec) {
  const int64_t n = spec.ranks, count = spec.input_elements();
  if (count == 0) return {};
  const std::vector<int> grid = GridOf(plan, spec.ranks, 2);
  const int64_t local = grid[0], hosts = grid[1], part = EvenElements(plan, count, n) / n;
  const bool canonical = spec.mode == ReductionMode::kCanonical;
  const int64_t across = hosts == 1 ? 0 : canonical ? 2 : 2 * (hosts - 1);
  return {(local > 1 ? 2 : 0) + across, 2 * (local + hosts - 2) * NumUnits(plan), 2 * (n - 1) * part,
          (local * hosts + 2 * hosts) * part};
}

std::string Refuses(const CollectivePlan& plan, const CollectiveSpec& spec) {
  if (spec.ranks < 2) return "2 or more ranks";
  const std::string kinds = RefuseKinds(spec, {CollectiveKind::kAllReduce});
  return kinds.empty() ? RefuseGrid(plan, spec.ranks, 2) : kinds;
}

}  // namespace

Algorithm HierarchicalAlgorithm() {
  return {.name = "hierarchical",
          .summary = "directly within hosts, in a ring across hosts; fewest bytes between hosts",
          .refuses = Refuses,
          .build = Build,
          .cost = Cost,
          .uses_grid = true,
          // The order is canonical if the number of ranks per host is a power of two. If the number of all ranks is a
          // power of two, this is true for every grid.
          .is_canonical = [](const CollectiveSpec& spec) { return IsPowerOfTwo(spec.ranks); }};
}

}  // namespace xlad::collectives
