// Bruck's algorithms: log n rounds for any number of ranks, with additional local copies. Bruck et al., "Efficient
// algorithms for all-to-all communications in multiport message-passing systems", IEEE TPDS 1997.
#include "collectives/plan/algorithms/build.h"
#include "collectives/plan/algorithms/rows.h"

namespace xlad::collectives {
namespace {

using Kind = CollectiveKind;

// Copies the n blocks of `size` elements that begin at `scratch` to the output. Block i is the part of the rank that is
// i positions after this one.
template <typename PartOf>
void CopyToOutput(int64_t scratch, int64_t size, const PartOf& part, ScheduleBuilder* builder) {
  const int n = builder->ranks();
  for (int i = 0; i < n; ++i) {
    const int64_t begin = scratch + i * size;
    builder->Copy(OutputRegion(part(Mod(builder->position() + i, n))), ScratchRegion({begin, begin + size}));
  }
}

// Block i of the scratch memory is the part of the rank that is i positions after this one.
void AllGather(const CollectivePlan& plan, const Unit& unit, ScheduleBuilder* builder) {
  const int n = builder->ranks(), self = builder->position();
  const auto part = [&](int p) { return UnitOf(plan, unit, builder->PartAt(p)); };
  const int64_t size = part(self).size(), scratch = builder->Scratch(n * size).begin;
  const auto blocks = [&](int64_t first, int64_t count) {
    return ScratchRegion({scratch + first * size, scratch + (first + count) * size});
  };
  builder->Copy(blocks(0, 1), InputRegion(UnitOf(plan, unit, {0, builder->PartAt(self).size()})));
  for (int have = 1; have < n; have *= 2) {
    const int count = std::min(have, n - have);
    builder->Send(Mod(self - have, n), blocks(0, count));
    builder->Recv(Mod(self + have, n), blocks(have, count));
  }
  CopyToOutput(scratch, size, part, builder);
}

// Block i of the scratch memory is sent i positions ahead. It is sent in round j if bit j of i is set. The blocks of a
// round are packed into one message.
void AllToAll(const CollectivePlan& plan, const Unit& unit, ScheduleBuilder* builder) {
  const int n = builder->ranks(), self = builder->position();
  const auto part = [&](int p) { return UnitOf(plan, unit, builder->PartAt(p)); };
  const int64_t size = part(self).size(), scratch = builder->Scratch(n * size).begin;
  const int64_t packed = builder->Scratch(n / 2 * size + size).begin,
                arrived = builder->Scratch(n / 2 * size + size).begin;
  const auto block = [&](int64_t base, int64_t i) { return ScratchRegion({base + i * size, base + (i + 1) * size}); };
  for (int i = 0; i < n; ++i) builder->Copy(block(scratch, i), InputRegion(part(Mod(self + i, n))));
  for (int distance = 1; distance < n; distance *= 2) {
    std::vector<int> moving;
    for (int i = 0; i < n; ++i) {
      if ((i & distance) != 0) moving.push_back(i);
    }
    for (size_t k = 0; k < moving.size(); ++k) builder->Copy(block(packed, k), block(scratch, moving[k]));
    const int64_t count = std::ssize(moving) * size;
    builder->Send(Mod(self + distance, n), ScratchRegion({packed, packed + count}));
    builder->Recv(Mod(self - distance, n), ScratchRegion({arrived, arrived + count}));
    for (size_t k = 0; k < moving.size(); ++k) builder->Copy(block(scratch, moving[k]), block(arrived, k));
  }
  for (int i = 0; i < n; ++i) builder->Copy(OutputRegion(part(Mod(self - i, n))), block(scratch, i));
}

Schedule Build(const CollectivePlan& plan, const CollectiveSpec& spec, int rank) {
  ScheduleBuilder builder(plan, spec, rank);
  for (const Unit& unit : Units(plan, {0, 0})) {
    builder.set_channel(unit.channel);
    spec.kind == Kind::kAllGather ? AllGather(plan, unit, &builder) : AllToAll(plan, unit, &builder);
  }
  return builder.Finish(/*in_place=*/true);
}

// There are ceil(log2 n) rounds. A chain of rounds that depend on each other has at most floor(log2 n) rounds, because
// no block i < n is sent more often than this. An AllGather sends n - 1 parts. In round j, an AllToAll sends the blocks
// i < n in which bit j is set: about n / 2 parts.
AlgorithmCost Cost(const CollectivePlan& plan, const CollectiveSpec& spec) {
  const int64_t n = spec.ranks, part = LargestPart(spec), levels = CeilLog2(n);
  if (spec.output_elements() == 0) return {};
  AlgorithmCost cost{.rounds = FloorLog2(n), .messages = levels * NumUnits(plan), .sent_elements = (n - 1) * part};
  cost.pipeline_rounds = levels - cost.rounds;
  if (spec.kind == Kind::kAllGather) return cost;
  int64_t blocks = 0;
  for (int64_t i = 0; i < n; ++i) blocks += __builtin_popcountll(i);
  cost.sent_elements = blocks * part;
  return cost;
}

std::string Refuses(const CollectivePlan&, const CollectiveSpec& spec) {
  if (spec.ranks < 2) return "2 or more ranks";
  if (!spec.sizes.empty()) return "parts of equal size";
  return RefuseKinds(spec, {Kind::kAllGather, Kind::kAllToAll});
}

}  // namespace

Algorithm BruckAlgorithm() {
  return {.name = "bruck",
          .summary = "log n rounds for an AllGather or AllToAll of any number of ranks, with local copies",
          .refuses = Refuses,
          .build = Build,
          .cost = Cost};
}

}  // namespace xlad::collectives
