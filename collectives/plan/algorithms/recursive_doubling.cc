// Recursive doubling: in round j, ranks at distance 2^j exchange all their data. Its few rounds make it fast for small
// sizes. Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH", 2005. Barriers
// use the dissemination algorithm of Hensgen, Finkel and Manber, 1988.
#include "collectives/plan/algorithms/fold.h"
#include "collectives/plan/algorithms/rows.h"

namespace xlad::collectives {
namespace {

using Kind = CollectiveKind;

// The buffers of the partial results. Each partial result is in a different buffer than the previous one, which the
// peer may still be reading. The last partial result is in the output.
class Partials {
 public:
  Partials(Interval at, int count, const Interval& first, const Interval& second)
      : at_(at), count_(count), scratch_{first, second} {}
  // Returns the region of the partial result after `done` reductions.
  Region After(int done) const {
    if (done == 0) return InputRegion(at_);
    return done == count_ ? OutputRegion(at_) : ScratchRegion(scratch_[done % 2]);
  }

 private:
  Interval at_;
  int count_;
  Interval scratch_[2];
};

void AllReduce(const Fold& fold, Interval at, int64_t round, ScheduleBuilder* builder) {
  const int self = builder->position();
  builder->At(round);
  if (fold.is_folded()) {
    builder->Send(self - 1, InputRegion(at));
    builder->At(round + fold.levels() + 1);
    return builder->Recv(self - 1, OutputRegion(at));
  }
  const int count = fold.levels() + (fold.has_folded() ? 1 : 0);
  const Interval first = builder->Scratch(count > 1 ? at.size() : 0);
  const Partials partials(at, count, builder->Scratch(count > 2 ? at.size() : 0), first);
  int done = 0;
  const auto reduce = [&](int peer) {
    builder->RecvReduceInOrder(peer, partials.After(done + 1), partials.After(done));
    ++done;
  };
  if (fold.has_folded()) reduce(self + 1);
  for (int level = 0; level < fold.levels(); ++level) {
    builder->At(round + 1 + level);
    const int peer = fold.PositionOf(fold.member() ^ (1 << level));
    builder->Send(peer, partials.After(done));
    reduce(peer);
  }
  builder->At(round + 1 + fold.levels());
  if (fold.has_folded()) builder->Send(self + 1, OutputRegion(at));
}

// In round j, a rank has the parts of the 2^j ranks that agree with it in the higher bits.
void AllGather(const CollectivePlan& plan, const Unit& unit, int64_t round, ScheduleBuilder* builder) {
  const int self = builder->position();
  const auto parts = [&](int first, int count) {
    std::vector<Interval> out;
    for (int p = first; p < first + count; ++p) out.push_back(UnitOf(plan, unit, builder->PartAt(p)));
    return Merged(std::move(out));
  };
  const Interval own = builder->PartAt(self);
  builder->At(round);
  builder->Copy(OutputRegion(UnitOf(plan, unit, own)), InputRegion(UnitOf(plan, unit, {0, own.size()})));
  for (int have = 1; have < builder->ranks(); have *= 2) {
    ++round;
    const int peer = self ^ have;
    const std::vector<Interval> out = parts(self & ~(have - 1), have), in = parts(peer & ~(have - 1), have);
    for (int i = 0; i < std::ssize(out); ++i) {
      builder->At(round, i);
      builder->Send(peer, OutputRegion(out[i]));
    }
    for (int i = 0; i < std::ssize(in); ++i) {
      builder->At(round, i);
      builder->Recv(peer, OutputRegion(in[i]));
    }
  }
}

Schedule Build(const CollectivePlan& plan, const CollectiveSpec& spec, int rank) {
  ScheduleBuilder builder(plan, spec, rank);
  const int n = spec.ranks, self = builder.position();
  if (spec.kind == Kind::kBarrier) {
    for (int distance = 1; distance < n; distance *= 2) {
      builder.SendEmpty(Mod(self + distance, n));
      builder.RecvEmpty(Mod(self - distance, n));
    }
    return builder.Finish(/*in_place=*/true);
  }
  const Fold fold(n, self);
  for (const Unit& unit : Units(plan, {0, spec.kind == Kind::kAllReduce ? spec.input_elements() : 0})) {
    builder.set_channel(unit.channel);
    const int64_t round = 1 + unit.chunk * (fold.levels() + 3);
    if (spec.kind == Kind::kAllReduce) {
      AllReduce(fold, unit.at, round, &builder);
    } else {
      AllGather(plan, unit, round, &builder);
    }
  }
  // Two ranks would deadlock in place: each could overwrite its input only after the other has received it, and would
  // receive the other input only then.
  return builder.Finish(/*in_place=*/spec.kind != Kind::kAllReduce || n > 2);
}

// An AllReduce takes log2 m rounds for the largest power of two m <= n, with all elements in each round. Folded ranks
// add one round at each end of a chain. The contribution of a folded rank reaches another folded rank after at most
// ceil(log2 f) exchanges if f ranks are folded.
AlgorithmCost Cost(const CollectivePlan& plan, const CollectiveSpec& spec) {
  const int64_t n = spec.ranks, count = spec.input_elements(), units = NumUnits(plan);
  const int levels = CeilLog2(n);
  if (spec.kind == Kind::kBarrier) return {.rounds = levels, .messages = levels};
  if (spec.kind == Kind::kAllGather) return {levels, levels * units, (n - 1) * LargestPart(spec)};
  if (count == 0) return {};
  const Fold fold(spec.ranks, 0);
  const int64_t sent = fold.levels() + (fold.any_folded() ? 1 : 0);
  const int folded = fold.num_folded();
  const int rounds = folded == 0 ? fold.levels() : std::max(fold.levels() + 1, CeilLog2(folded) + 2);
  return {rounds, sent * units, sent * count, 2 * sent * count};
}

std::string Refuses(const CollectivePlan&, const CollectiveSpec& spec) {
  if (spec.ranks < 2) return "2 or more ranks";
  if (spec.kind == Kind::kAllGather && !IsPowerOfTwo(spec.ranks)) {
    return "a number of ranks that is a power of two";
  }
  return RefuseKinds(spec, {Kind::kAllReduce, Kind::kAllGather, Kind::kBarrier});
}

}  // namespace

Algorithm RecursiveDoublingAlgorithm() {
  return {.name = "recursive_doubling",
          .summary = "exchanges at distances 1, 2, 4, ...; log n rounds",
          .refuses = Refuses,
          .build = Build,
          .cost = Cost,
          .is_canonical = [](const CollectiveSpec& spec) { return IsPowerOfTwo(spec.ranks); }};
}

}  // namespace xlad::collectives
