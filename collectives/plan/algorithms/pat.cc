// Parallel aggregated trees: log n rounds for any number of ranks, with small messages between distant ranks. Jeaugey,
// "PAT: a new algorithm for all-gather and reduce-scatter operations at scale", arXiv 2506.20252.
//
// Each part is sent along a binomial tree that is rotated so that its owner is the root. The farthest rank gets the
// part first. "Offset x" is the part of the rank that is x positions before this one. A rank keeps parts in scratch
// memory in the order of arrival, which is the same on all ranks. A round therefore needs one message, or two if an
// offset in the middle is not sent.
#include "collectives/plan/algorithms/build.h"
#include "collectives/plan/algorithms/rows.h"

namespace xlad::collectives {
namespace {

using Kind = CollectiveKind;

// One round: the items that are sent to the rank `distance` positions ahead, as ranges of indices into the list of
// offsets, and the index at which that rank appends them.
struct Round {
  int distance = 0;
  std::vector<Interval> items;
  int64_t appended_at = 0;
};

struct Tree {
  std::vector<int> offsets = {0};
  std::vector<Round> rounds;
};

Tree MakeTree(int n) {
  Tree tree;
  for (int distance = 1 << CeilLog2(n) >> 1; distance > 0; distance /= 2) {
    Round round{distance, {}, std::ssize(tree.offsets)};
    const int64_t held = round.appended_at;
    for (int64_t i = 0; i < held; ++i) {
      if (tree.offsets[i] + distance >= n) continue;
      round.items.push_back({i, i + 1});
      tree.offsets.push_back(tree.offsets[i] + distance);
    }
    round.items = Merged(std::move(round.items));
    tree.rounds.push_back(round);
  }
  return tree;
}

class PatUnit {
 public:
  PatUnit(const CollectivePlan& plan, const Unit& unit, ScheduleBuilder* builder)
      : plan_(plan), unit_(unit), builder_(*builder), tree_(MakeTree(builder->ranks())) {
    size_ = PartAt(0).size();
    scratch_ = builder->Scratch(builder->ranks() * size_).begin;
    round_ = 1 + unit.chunk * (std::ssize(tree_.rounds) + 2);
  }

  void AllGather() {
    const Interval own = UnitOf(plan_, unit_, {0, builder_.PartAt(builder_.position()).size()});
    builder_.At(round_++);
    builder_.Copy(Items({0, 1}), InputRegion(own));
    for (const Round& round : tree_.rounds) Exchange(round, /*reduces=*/false);
    builder_.At(round_);
    for (int64_t i = 0; i < std::ssize(tree_.offsets); ++i) {
      builder_.Copy(OutputRegion(PartAt(tree_.offsets[i])), Items({i, i + 1}));
    }
  }

  // Runs the AllGather in reverse: partial results are sent back along the trees, and each rank combines them with its
  // own.
  void ReduceScatter() {
    builder_.At(round_++);
    for (int64_t i = 0; i < std::ssize(tree_.offsets); ++i) {
      builder_.Copy(Items({i, i + 1}), InputRegion(PartAt(tree_.offsets[i])));
    }
    for (size_t i = tree_.rounds.size(); i-- > 0;) Exchange(tree_.rounds[i], /*reduces=*/true);
    builder_.At(round_);
    const Interval own = UnitOf(plan_, unit_, {0, builder_.PartAt(builder_.position()).size()});
    builder_.Copy(OutputRegion(own), Items({0, 1}));
  }

 private:
  Interval PartAt(int offset) const {
    return UnitOf(plan_, unit_, builder_.PartAt(Mod(builder_.position() - offset, builder_.ranks())));
  }
  Region Items(Interval items) const {
    return ScratchRegion({scratch_ + items.begin * size_, scratch_ + items.end * size_});
  }

  void Exchange(const Round& round, bool reduces) {
    const int ahead = Mod(builder_.position() + round.distance, builder_.ranks());
    const int behind = Mod(builder_.position() - round.distance, builder_.ranks());
    int64_t appended = round.appended_at;
    for (int i = 0; i < std::ssize(round.items); ++i) {
      builder_.At(round_, i);
      const Region near = Items(round.items[i]), far = Items({appended, appended + round.items[i].size()});
      appended += round.items[i].size();
      builder_.Send(reduces ? behind : ahead, reduces ? far : near);
      if (reduces) {
        builder_.RecvReduce(ahead, near, near);
      } else {
        builder_.Recv(behind, far);
      }
    }
    ++round_;
  }

  const CollectivePlan& plan_;
  const Unit unit_;
  ScheduleBuilder& builder_;
  const Tree tree_;
  int64_t size_ = 0;
  int64_t scratch_ = 0;
  int64_t round_ = 0;
};

Schedule Build(const CollectivePlan& plan, const CollectiveSpec& spec, int rank) {
  ScheduleBuilder builder(plan, spec, rank);
  for (const Unit& unit : Units(plan, {0, 0})) {
    builder.set_channel(unit.channel);
    PatUnit steps(plan, unit, &builder);
    spec.kind == Kind::kAllGather ? steps.AllGather() : steps.ReduceScatter();
  }
  return builder.Finish(/*in_place=*/true);
}

// A rank sends n - 1 parts in ceil(log2 n) rounds. Only floor(log2 n) of these depend on each other, because no part is
// sent more often.
AlgorithmCost Cost(const CollectivePlan& plan, const CollectiveSpec& spec) {
  const int64_t n = spec.ranks, levels = CeilLog2(n), sent = (n - 1) * LargestPart(spec);
  if (sent == 0) return {};
  const bool reduces = spec.kind == Kind::kReduceScatter;
  return {.rounds = FloorLog2(n),
          .messages = 2 * levels * NumUnits(plan),
          .sent_elements = sent,
          .reduced_elements = reduces ? 2 * sent : 0,
          .pipeline_rounds = levels - FloorLog2(n)};
}

std::string Refuses(const CollectivePlan&, const CollectiveSpec& spec) {
  if (spec.ranks < 2) return "2 or more ranks";
  if (!spec.sizes.empty()) return "parts of equal size";
  return RefuseKinds(spec, {Kind::kAllGather, Kind::kReduceScatter});
}

}  // namespace

Algorithm PatAlgorithm() {
  return {.name = "pat",
          .summary = "parallel aggregated trees; log n rounds for an AllGather or ReduceScatter of any number of ranks",
          .refuses = Refuses,
          .build = Build,
          .cost = Cost};
}

}  // namespace xlad::collectives
