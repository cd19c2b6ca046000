// Rings along the dimensions of a grid, which send as few bytes as one ring, in about 2(X + Y) rounds instead of 2XY.
// Ying et al., "Image classification at supercomputer scale", 2018.
//
// Each channel reduce-scatters along one dimension after the other, and all-gathers in reverse. Channel c starts with
// dimension c / 2, in the negative direction if c is odd. If there are twice as many channels as dimensions, all
// directions of a torus carry data at the same time. Each chunk has its own channels. The chunks start in pairs, each
// pair one phase after the previous pair. The small messages of a pair's later phases then overlap with the large
// messages of the next pair's first phase.
#include <numeric>

#include "absl/strings/str_cat.h"
#include "collectives/plan/algorithms/build.h"
#include "collectives/plan/algorithms/rows.h"
#include "collectives/plan/grid.h"

namespace xlad::collectives {
namespace {

using Kind = CollectiveKind;

// Chunk c starts after the first phase of chunk c - kChunksAtATime.
constexpr int kChunksAtATime = 2;

// The phases of one unit: their order, their peers, and the elements that each phase sends and receives.
class Lane {
 public:
  Lane(const CollectivePlan& plan, const CollectiveSpec& spec, const std::vector<int>& grid, const Unit& unit,
       ScheduleBuilder* builder)
      : plan_(plan), spec_(spec), grid_(grid), unit_(unit), builder_(*builder) {
    self_ = CoordinatesOf(grid, builder->position());
    const int dimensions = std::ssize(grid);
    for (int i = 0; i < dimensions; ++i) {
      const int dimension = (unit.channel / 2 + i) % dimensions;
      if (grid[dimension] > 1) order_.push_back(dimension);
    }
    direction_ = unit.channel % 2 == 0 ? 1 : -1;
  }

  void ReduceScatter(int64_t* round, const Interval& scratch) {
    scratch_ = scratch;
    for (size_t phase = 0; phase < order_.size(); ++phase) ReduceScatterPhase(phase, round);
  }
  void AllGather(int64_t* round) {
    for (size_t phase = order_.size(); phase-- > 0;) AllGatherPhase(phase, round);
  }
  // Returns the number of rounds of the first phase.
  int64_t FirstPhase() const { return grid_[order_[0]] - 1; }

 private:
  int Peer(size_t phase, int distance) const {
    std::vector<int> at = self_;
    const int d = order_[phase];
    at[d] = Mod(at[d] + direction_ * distance, grid_[d]);
    return PositionIn(grid_, at);
  }

  // Returns the elements that some ranks hold after the reduce-scatter phase: the ranks with the coordinate `at` in the
  // phase's dimension and with this rank's coordinates in the dimensions of the earlier phases.
  std::vector<Interval> Set(size_t phase, int at) const {
    if (spec_.kind == Kind::kAllReduce) {
      Interval all = unit_.at;
      for (size_t p = 0; p < phase; ++p) all = Part(all, grid_[order_[p]], self_[order_[p]]);
      return {Part(all, grid_[order_[phase]], at)};
    }
    std::vector<int> begin(grid_.size()), end = grid_;
    const auto fix = [&](int d, int coordinate) { end[d] = (begin[d] = coordinate) + 1; };
    for (size_t p = 0; p < phase; ++p) fix(order_[p], self_[order_[p]]);
    fix(order_[phase], at);
    std::vector<Interval> parts;
    for (std::vector<int> position = begin;;) {
      parts.push_back(UnitOf(plan_, unit_, builder_.PartAt(PositionIn(grid_, position))));
      size_t d = 0;
      for (; d < grid_.size() && ++position[d] == end[d]; ++d) position[d] = begin[d];
      if (d == grid_.size()) break;
    }
    return Merged(std::move(parts));
  }
  // Returns the Set of the rank that is `steps` before this rank in the direction of the ring.
  std::vector<Interval> SetBefore(size_t phase, int steps) const {
    const int d = order_[phase];
    return Set(phase, Mod(self_[d] - direction_ * steps, grid_[d]));
  }

  Region Partial(Interval at) const {
    if (spec_.kind == Kind::kAllReduce) return OutputRegion(at);
    return ScratchRegion({scratch_.begin + at.begin, scratch_.begin + at.end});
  }

  void ReduceScatterPhase(size_t phase, int64_t* round) {
    const int n = grid_[order_[phase]];
    for (int step = 0; step < n - 1; ++step, ++*round) {
      const std::vector<Interval> out = SetBefore(phase, step + 1), in = SetBefore(phase, step + 2);
      for (int i = 0; i < std::ssize(out); ++i) {
        builder_.At(*round, i);
        const bool is_input = phase == 0 && step == 0;
        builder_.Send(Peer(phase, 1), is_input ? InputRegion(out[i]) : Partial(out[i]));
      }
      const bool is_last = spec_.kind == Kind::kReduceScatter && phase + 1 == order_.size() && step == n - 2;
      for (int i = 0; i < std::ssize(in); ++i) {
        builder_.At(*round, i);
        const Region own = phase == 0 ? InputRegion(in[i]) : Partial(in[i]);
        const int64_t begin = builder_.PartBegin();
        const Region result = is_last ? OutputRegion({in[i].begin - begin, in[i].end - begin}) : Partial(in[i]);
        builder_.RecvReduce(Peer(phase, -1), result, own);
      }
    }
  }

  void AllGatherPhase(size_t phase, int64_t* round) {
    const int n = grid_[order_[phase]];
    for (int step = 0; step < n - 1; ++step, ++*round) {
      const std::vector<Interval> out = SetBefore(phase, step), in = SetBefore(phase, step + 1);
      for (int i = 0; i < std::ssize(out); ++i) {
        builder_.At(*round, i);
        builder_.Send(Peer(phase, 1), OutputRegion(out[i]));
      }
      for (int i = 0; i < std::ssize(in); ++i) {
        builder_.At(*round, i);
        builder_.Recv(Peer(phase, -1), OutputRegion(in[i]));
      }
    }
  }

  const CollectivePlan& plan_;
  const CollectiveSpec& spec_;
  const std::vector<int>& grid_;
  const Unit unit_;
  ScheduleBuilder& builder_;
  std::vector<int> self_;   // The coordinates of this rank.
  std::vector<int> order_;  // The dimensions, in the order of the reduce-scatter phases.
  int direction_ = 1;
  Interval scratch_;
};

Schedule Build(const CollectivePlan& plan, const CollectiveSpec& spec, int rank, int dimensions) {
  ScheduleBuilder builder(plan, spec, rank);
  const std::vector<int> grid = GridOf(plan, spec.ranks, dimensions);
  const bool all_reduce = spec.kind == Kind::kAllReduce;
  Interval scratch;
  if (spec.kind == Kind::kReduceScatter) scratch = builder.Scratch(spec.input_elements());
  for (const Unit& unit : Units(plan, {0, all_reduce ? spec.input_elements() : 0})) {
    Lane lane(plan, spec, grid, unit, &builder);
    const int channel = unit.chunk * plan.channels + unit.channel;
    builder.set_channel(channel);
    int64_t round = 1 + unit.chunk / kChunksAtATime * (lane.FirstPhase() + 1);
    builder.At(round);
    if (unit.chunk >= kChunksAtATime) builder.Order(channel - kChunksAtATime * plan.channels, channel, channel);
    if (spec.kind == Kind::kAllGather) {
      const Interval part = builder.PartAt(builder.position());
      builder.At(round, 1);
      builder.Copy(OutputRegion(UnitOf(plan, unit, part)), InputRegion(UnitOf(plan, unit, {0, part.size()})));
    }
    ++round;
    if (spec.kind != Kind::kAllGather) lane.ReduceScatter(&round, scratch);
    if (spec.kind != Kind::kReduceScatter) lane.AllGather(&round);
  }
  return builder.Finish(/*in_place=*/true);
}

// Along a dimension of size s, a phase has s - 1 rounds. The phases of a reduce-scatter together send (n - 1) / n of
// the elements, and so do those of an all-gather.
AlgorithmCost CostOf(const CollectivePlan& plan, const CollectiveSpec& spec, int dimensions) {
  const int64_t n = spec.ranks;
  if (spec.output_elements() == 0) return {};
  int64_t rounds = 0, longest = 0;
  for (const int size : GridOf(plan, spec.ranks, dimensions)) {
    rounds += size - 1;
    longest = std::max<int64_t>(longest, size);
  }
  const bool all_reduce = spec.kind == Kind::kAllReduce;
  const int64_t part = all_reduce ? EvenElements(plan, spec.input_elements(), n) / n : LargestPart(spec);
  const int64_t phases = all_reduce ? 2 : 1;
  AlgorithmCost cost{phases * rounds, phases * rounds * NumUnits(plan), phases * (n - 1) * part, 0};
  if (spec.kind != Kind::kAllGather) cost.reduced_elements = 2 * (n - 1) * part;
  cost.pipeline_rounds = (plan.chunks - 1) * longest;
  return cost;
}

std::string Refuses(const CollectivePlan& plan, const CollectiveSpec& spec, int dimensions) {
  if (spec.ranks < 2) return "2 or more ranks";
  const std::string kinds = RefuseKinds(spec, {Kind::kAllReduce, Kind::kReduceScatter, Kind::kAllGather});
  return kinds.empty() ? RefuseGrid(plan, spec.ranks, dimensions) : kinds;
}

template <int kDimensions>
Algorithm Row(absl::string_view name, absl::string_view summary) {
  return {
      .name = name,
      .summary = summary,
      .refuses = [](const CollectivePlan& plan,
                    const CollectiveSpec& spec) { return Refuses(plan, spec, kDimensions); },
      .build = [](const CollectivePlan& plan, const CollectiveSpec& spec,
                  int rank) { return Build(plan, spec, rank, kDimensions); },
      .cost = [](const CollectivePlan& plan, const CollectiveSpec& spec) { return CostOf(plan, spec, kDimensions); },
      .uses_grid = true};
}

}  // namespace

Algorithm Ring2dAlgorithm() {
  return Row<2>("ring_2d", "rings along rows and columns; fewest bytes, 2(X+Y-2) rounds for an AllReduce");
}

Algorithm Ring3dAlgorithm() {
  return Row<3>("ring_3d", "rings along three dimensions; fewest bytes, 2(X+Y+Z-3) rounds for an AllReduce");
}

}  // namespace xlad::collectives
