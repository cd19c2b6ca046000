// k-nomial trees. The parent of position p is p with its lowest nonzero digit in base k set to 0. The subtree of p
// therefore has adjacent positions. With k = 2 these are binomial trees. Chunks are pipelined.
#include "absl/strings/str_cat.h"
#include "collectives/plan/algorithms/build.h"
#include "collectives/plan/algorithms/rows.h"

namespace xlad::collectives {
namespace {

using Kind = CollectiveKind;

struct Node {
  int parent = -1;
  std::vector<int> children;  // In ascending order.
  int64_t span = 0;           // The subtree contains the positions [position, position + span).
};

Node NodeOf(int n, int position, int64_t radix) {
  Node node;
  int64_t power = 1;
  while (power < n && position / power % radix == 0) {
    for (int64_t i = 1; i < radix && position + i * power < n; ++i) {
      node.children.push_back(position + i * power);
    }
    power *= radix;
  }
  if (position > 0) node.parent = position - position / power % radix * power;
  node.span = std::min<int64_t>(power, n - position);
  return node;
}

// Returns the depth of the deepest node.
int64_t DepthOf(int n, int64_t radix) {
  int64_t depth = 0;
  for (int p = 0; p < n; ++p) {
    int64_t digits = 0;
    for (int64_t rest = p; rest > 0; rest /= radix) digits += rest % radix != 0;
    depth = std::max(depth, digits);
  }
  return depth;
}

// Splits the positions [first, first + count) of a subtree into runs whose ranks are adjacent. The parts of a run are
// adjacent too and are sent in one message.
std::vector<Interval> RunsOf(int64_t first, int64_t count, const Positions& positions) {
  std::vector<Interval> runs;
  for (int64_t p = first; p < first + count; ++p) {
    const bool adjacent = p > first && positions.RankAt(p) == positions.RankAt(p - 1) + 1;
    if (adjacent) {
      ++runs.back().end;
    } else {
      runs.push_back({p, p + 1});
    }
  }
  return runs;
}

// The memory in which a rank of a Gather or Scatter has the parts of its subtree. For the root it is the buffer with n
// parts, and for a leaf the buffer with one part. For other ranks it is scratch memory, in the order of the positions.
class Subtree {
 public:
  Subtree(const CollectiveSpec& spec, const Node& node, ScheduleBuilder* builder)
      : gathers_(spec.kind == Kind::kGather), builder_(*builder) {
    const int self = builder->position();
    begins_.push_back(0);
    for (int64_t p = self; p < self + node.span; ++p) {
      begins_.push_back(begins_.back() + SizeOf(p));
    }
    if (node.parent >= 0 && node.span > 1) scratch_ = builder->Scratch(begins_.back()).begin;
    is_root_ = node.parent < 0;
    is_leaf_ = node.span == 1;
  }

  // Returns the parts of a run of positions.
  Region Of(Interval run) const {
    if (is_root_) {
      const Interval first = builder_.PartAt(run.begin);
      const Interval last = builder_.PartAt(run.end - 1);
      return gathers_ ? OutputRegion({first.begin, last.end}) : InputRegion({first.begin, last.end});
    }
    if (is_leaf_) return Own();
    const int64_t self = builder_.position();
    return ScratchRegion({scratch_ + begins_[run.begin - self], scratch_ + begins_[run.end - self]});
  }
  Region Own() const {
    const Interval at{0, SizeOf(builder_.position())};
    return gathers_ ? InputRegion(at) : OutputRegion(at);
  }

 private:
  int64_t SizeOf(int64_t position) const { return builder_.PartAt(position).size(); }

  bool gathers_;
  ScheduleBuilder& builder_;
  std::vector<int64_t> begins_;
  int64_t scratch_ = 0;
  bool is_root_ = false;
  bool is_leaf_ = false;
};

void GatherOrScatter(const CollectiveSpec& spec, int64_t radix, ScheduleBuilder* builder) {
  const int n = spec.ranks, self = builder->position();
  const Node node = NodeOf(n, self, radix);
  const Subtree subtree(spec, node, builder);
  const bool gathers = spec.kind == Kind::kGather, is_inner = node.parent < 0 || node.span > 1;
  const auto with_parent = [&] {
    if (node.parent < 0) return;
    for (const Interval& run : RunsOf(self, node.span, builder->positions())) {
      gathers ? builder->Send(node.parent, subtree.Of(run)) : builder->Recv(node.parent, subtree.Of(run));
    }
  };
  const Region own = subtree.Of({self, self + 1});
  if (gathers && is_inner) builder->Copy(own, subtree.Own());
  if (!gathers) with_parent();
  for (const int child : node.children) {
    for (const Interval& run : RunsOf(child, NodeOf(n, child, radix).span, builder->positions())) {
      gathers ? builder->Recv(child, subtree.Of(run)) : builder->Send(child, subtree.Of(run));
    }
  }
  if (gathers) with_parent();
  if (!gathers && is_inner) builder->Copy(subtree.Own(), own);
}

void Barrier(const Node& node, ScheduleBuilder* builder) {
  for (const int child : node.children) builder->RecvEmpty(child);
  if (node.parent >= 0) builder->SendEmpty(node.parent);
  if (node.parent >= 0) builder->RecvEmpty(node.parent);
  for (const int child : node.children) builder->SendEmpty(child);
}

Schedule BuildWith(const CollectivePlan& plan, const CollectiveSpec& spec, int rank, int64_t radix) {
  ScheduleBuilder builder(plan, spec, rank);
  const Node node = NodeOf(spec.ranks, builder.position(), radix);
  if (spec.kind == Kind::kBarrier) {
    Barrier(node, &builder);
    return builder.Finish(/*in_place=*/true);
  }
  if (spec.kind == Kind::kGather || spec.kind == Kind::kScatter) {
    GatherOrScatter(spec, radix, &builder);
    return builder.Finish(/*in_place=*/true);
  }
  const bool has_output = spec.kind != Kind::kReduce || node.parent < 0;
  if (!has_output && !node.children.empty()) builder.Scratch(spec.input_elements());
  const std::vector<Unit> units = Units(plan, {0, spec.input_elements()});
  for (const Unit& unit : units) {
    if (spec.kind == Kind::kBroadcast) break;
    builder.set_channel(unit.channel);
    ReduceUp(node.parent, node.children, unit.at, has_output ? OutputRegion(unit.at) : ScratchRegion(unit.at),
             &builder);
  }
  const std::vector<int> largest_first(node.children.rbegin(), node.children.rend());  // The largest subtree first.
  for (const Unit& unit : units) {
    if (spec.kind == Kind::kReduce) break;
    builder.set_channel(unit.channel);
    BroadcastDown(node.parent, largest_first, unit.at, spec.kind == Kind::kBroadcast, &builder);
  }
  return builder.Finish(/*in_place=*/true);
}

// The number of rounds is the depth of the tree, or twice the depth if data is sent up and down the tree. The depth is
// at most ceil(log_k n). In a Broadcast, the root sends all elements to each of its up to (k - 1) ceil(log_k n)
// children.
AlgorithmCost CostWith(const CollectivePlan& plan, const CollectiveSpec& spec, int64_t radix) {
  const int64_t n = spec.ranks, count = spec.input_elements(), depth = DepthOf(spec.ranks, radix);
  const int64_t children = std::ssize(NodeOf(spec.ranks, 0, radix).children);
  if (spec.kind == Kind::kBarrier) return {.rounds = 2 * depth, .messages = children};
  if (spec.kind == Kind::kGather || spec.kind == Kind::kScatter) {
    // In a Scatter, the root sends all other parts. In a Gather, a child of the root sends its whole subtree.
    int64_t largest = n - 1;
    if (spec.kind == Kind::kGather) {
      largest = 0;
      for (const int child : NodeOf(spec.ranks, 0, radix).children) {
        largest = std::max(largest, NodeOf(spec.ranks, child, radix).span);
      }
    }
    if (LargestPart(spec) == 0) return {};
    return {depth, children, largest * LargestPart(spec)};
  }
  if (count == 0) return {};
  const int64_t units = NumUnits(plan);
  if (spec.kind == Kind::kReduce) return {depth, units, count, (children + 1) * count, 0, 0, plan.chunks - 1, count};
  int64_t sent = children;
  if (spec.kind == Kind::kAllReduce) {
    for (int p = 1; p < spec.ranks; ++p) sent = std::max(sent, std::ssize(NodeOf(spec.ranks, p, radix).children) + 1);
    return {2 * depth, sent * units, sent * count, (children + 1) * count, 0, 0, 2 * (plan.chunks - 1), count};
  }
  return {depth, sent * units, sent * count, 0, 0, 0, plan.chunks - 1, count};
}

std::string Refuses(const CollectivePlan& plan, const CollectiveSpec& spec) {
  if (spec.ranks < 2) return "2 or more ranks";
  if (plan.radix < 2) return "a radix of 2 or more";
  return RefuseKinds(
      spec, {Kind::kAllReduce, Kind::kBroadcast, Kind::kReduce, Kind::kGather, Kind::kScatter, Kind::kBarrier});
}

}  // namespace

Algorithm BinomialAlgorithm() {
  return {.name = "binomial",
          .summary = "a binomial tree; log n rounds for a Broadcast or Reduce",
          .refuses = Refuses,
          .build = [](const CollectivePlan& plan, const CollectiveSpec& spec,
                      int rank) { return BuildWith(plan, spec, rank, 2); },
          .cost = [](const CollectivePlan& plan, const CollectiveSpec& spec) { return CostWith(plan, spec, 2); }};
}

Algorithm KNomialAlgorithm() {
  return {
      .name = "k_nomial",
      .summary = "a tree with `radix` - 1 children on each level; log_k n rounds for a Broadcast or Reduce",
      .refuses = Refuses,
      .build = [](const CollectivePlan& plan, const CollectiveSpec& spec,
                  int rank) { return BuildWith(plan, spec, rank, plan.radix); },
      .cost = [](const CollectivePlan& plan, const CollectiveSpec& spec) { return CostWith(plan, spec, plan.radix); },
      .uses_radix = true};
}

}  // namespace xlad::collectives
