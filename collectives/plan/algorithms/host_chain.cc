// AllReduce over hosts in the order of the ranks, with the fewest bytes between hosts: partial results are sent from
// each host to the next, and the results are sent back.
//
// The ranks of a host first exchange parts of their inputs, one part for each rank of the host. Each rank then combines
// its part of the previous hosts' partial results with the contributions of its own host, from left to right, and sends
// the result to the rank at the same place on the next host. The last host has the results. Between two neighboring
// hosts, each byte of the data is sent once in each direction. "direct" sends it L times between two hosts of L ranks.
//
// If elements are accumulated in their own type, the results have the same bits as those of "direct", because each
// partial result is a value that "direct" also computes.
#include "collectives/plan/algorithms/build.h"
#include "collectives/plan/algorithms/rows.h"
#include "collectives/plan/grid.h"

namespace xlad::collectives {
namespace {

// The steps of a round. Messages of one step are received in the same step.
constexpr int kReduceStep = 0, kGatherStep = 1;

// A rank of a grid of hosts.
class ChainBuilder {
 public:
  ChainBuilder(const CollectivePlan& plan, const CollectiveSpec& spec, int rank)
      : builder_(plan, spec, rank), grid_(GridOf(plan, spec.ranks, 2)) {
    place_ = builder_.position() % grid_[0];
    host_ = builder_.position() / grid_[0];
  }

  // Appends the operations for one chunk. In round `first` + h, host h reduces.
  void Append(int64_t first, Interval all) {
    const std::vector<Interval> parts = Parts(all, grid_[0]);
    const Interval own = parts[place_];
    const int last = grid_[1] - 1;
    builder_.At(first + host_, kReduceStep);
    for (int d = 1; d < grid_[0]; ++d) builder_.Send(Local(place_ + d), InputRegion(parts[Mod(place_ + d, grid_[0])]));
    Reduce(own);
    if (host_ < last) {
      builder_.At(first + host_ + 1, kReduceStep);
      builder_.Send(OnHost(host_ + 1), OutputRegion(own));
    }
    // The results are on host h in round `back`.
    const int64_t back = first + last + (last - host_);
    if (host_ < last) {
      builder_.At(back, kReduceStep);
      builder_.Recv(OnHost(host_ + 1), OutputRegion(own));
    }
    if (host_ > 0) {
      builder_.At(back + 1, kReduceStep);
      builder_.Send(OnHost(host_ - 1), OutputRegion(own));
    }
    builder_.At(back + 1, kGatherStep);
    for (int d = 1; d < grid_[0]; ++d) builder_.Send(Local(place_ + d), OutputRegion(own));
    for (int d = 1; d < grid_[0]; ++d) {
      builder_.Recv(Local(place_ - d), OutputRegion(parts[Mod(place_ - d, grid_[0])]));
    }
  }

  void set_channel(int channel) { builder_.set_channel(channel); }
  Schedule Finish() { return builder_.Finish(/*in_place=*/true); }

 private:
  int Local(int place) const { return host_ * grid_[0] + Mod(place, grid_[0]); }
  int OnHost(int host) const { return host * grid_[0] + place_; }

  // The partial result of the previous hosts comes first, then the contributions of this host in order.
  void Reduce(Interval own) {
    std::vector<ReduceSource> sources;
    if (host_ > 0) sources.emplace_back().peer = OnHost(host_ - 1);
    for (int place = 0; place < grid_[0]; ++place) {
      ReduceSource& source = sources.emplace_back();
      if (place == place_) {
        source.region = InputRegion(own);
      } else {
        source.peer = Local(place);
      }
    }
    builder_.Reduce(OutputRegion(own), std::move(sources));
  }

  ScheduleBuilder builder_;
  const std::vector<int> grid_;  // The number of ranks of each host, and the number of hosts.
  int place_ = 0;
  int host_ = 0;
};

Schedule Build(const CollectivePlan& plan, const CollectiveSpec& spec, int rank) {
  ChainBuilder builder(plan, spec, rank);
  for (const Unit& unit : Units(plan, {0, spec.input_elements()})) {
    builder.set_channel(unit.channel);
    builder.Append(unit.chunk, unit.at);
  }
  return builder.Finish();
}

// A rank sends one part to each other rank of its host in both phases, and its own part to each neighbor on other
// hosts.
AlgorithmCost Cost(const CollectivePlan& plan, const CollectiveSpec& spec) {
  const int64_t count = spec.input_elements();
  if (count == 0) return {};
  const std::vector<int> grid = GridOf(plan, spec.ranks, 2);
  const int64_t local = grid[0], hosts = grid[1], part = EvenElements(plan, count, local) / local;
  const int64_t sends = 2 * (local - 1) + std::min<int64_t>(hosts - 1, 2);
  return {.rounds = (local > 1 ? 2 : 0) + 2 * (hosts - 1),
          .messages = sends * NumUnits(plan),
          .sent_elements = sends * part,
          .reduced_elements = (local + (hosts > 1 ? 1 : 0)) * part,
          .pipeline_rounds = plan.chunks - 1};
}

std::string Refuses(const CollectivePlan& plan, const CollectiveSpec& spec) {
  if (spec.ranks < 2) return "2 or more ranks";
  const std::string kinds = RefuseKinds(spec, {CollectiveKind::kAllReduce});
  return kinds.empty() ? RefuseGrid(plan, spec.ranks, 2) : kinds;
}

}  // namespace

Algorithm HostChainAlgorithm() {
  return {.name = "host_chain",
          .summary = "directly within hosts, partial results from host to host; each byte once between neighbors",
          .refuses = Refuses,
          .build = Build,
          .cost = Cost,
          .uses_grid = true};
}

}  // namespace xlad::collectives
