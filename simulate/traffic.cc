#include "simulate/traffic.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "compiler/analysis/collective_spec.h"
#include "compiler/analysis/instruction_facts.h"
#include "hlo/analysis/trip_count.h"
#include "hlo/attribute_keys.h"

namespace xlad::simulate {
namespace {

using collectives::CollectiveKind;
using hlo::Instruction;
using hlo::Opcode;

struct KindRow {
  Opcode opcode;
  CollectiveKind kind;
};
constexpr KindRow kKinds[] = {
    {Opcode::kAllReduce, CollectiveKind::kAllReduce},
    {Opcode::kAllGather, CollectiveKind::kAllGather},
    {Opcode::kReduceScatter, CollectiveKind::kReduceScatter},
    {Opcode::kAllToAll, CollectiveKind::kAllToAll},
    {Opcode::kRaggedAllToAll, CollectiveKind::kAllToAll},
    {Opcode::kCollectivePermute, CollectiveKind::kCollectivePermute},
    {Opcode::kCollectiveBroadcast, CollectiveKind::kBroadcast},
};

absl::StatusOr<ProgramCollective> ReadCollective(const Instruction& instruction, double trips, int64_t devices) {
  ProgramCollective collective;
  collective.instruction = &instruction;
  collective.trips = trips;
  const auto row = std::find_if(std::begin(kKinds), std::end(kKinds),
                                [&](const KindRow& r) { return r.opcode == instruction.opcode(); });
  if (row == std::end(kKinds)) {
    return absl::UnimplementedError(absl::StrCat(
        compiler::Describe(instruction), ": found a collective that cannot be simulated, expected all-reduce, ",
        "all-gather, reduce-scatter, all-to-all, ragged-all-to-all, collective-permute or collective-broadcast"));
  }
  collective.kind = row->kind;
  int64_t operands = 0;
  for (const Instruction* operand : instruction.operands()) operands += operand->shape().bytes();
  collective.bytes = std::max(operands, instruction.shape().bytes());
  if (collective.kind == CollectiveKind::kCollectivePermute) {
    collective.pairs = instruction.attributes().source_target_pairs;
    for (const auto& [from, to] : collective.pairs) {
      if (std::min(from, to) >= 0 && std::max(from, to) < devices) continue;
      return absl::InvalidArgumentError(absl::StrCat(compiler::Describe(instruction), ": found the pair ", from, " -> ",
                                                     to, ", expected devices 0 to ", devices - 1));
    }
    collective.bytes = instruction.operand(0)->shape().bytes();
    return collective;
  }
  XLAD_ASSIGN_OR_RETURN(const auto groups, compiler::DeviceGroups(instruction, devices));
  if (!groups.empty()) collective.group = groups[0];
  return collective;
}

absl::Status Collect(const hlo::Computation& computation, double trips, int64_t devices,
                     std::vector<ProgramCollective>* found) {
  for (const auto& instruction : computation.instructions()) {
    if (hlo::IsCollective(instruction->opcode())) {
      XLAD_ASSIGN_OR_RETURN(found->emplace_back(), ReadCollective(*instruction, trips, devices));
    } else if (instruction->opcode() == Opcode::kWhile) {
      const double inside = trips * TripsOf(*instruction).count;
      for (const hlo::Computation* called : instruction->called()) {
        XLAD_RETURN_IF_ERROR(Collect(*called, inside, devices, found));
      }
    } else if (instruction->opcode() == Opcode::kConditional) {
      for (const hlo::Computation* called : instruction->called()) {
        XLAD_RETURN_IF_ERROR(Collect(*called, trips, devices, found));
      }
    }
  }
  return absl::OkStatus();
}

// An estimate of the time of a permutation, from the mean distance of its pairs, and from the bytes of one pair over
// DCN if any pair is in different slices.
double PermuteBoundUs(const ProgramCollective& collective, const Placement& placement, const sharding::Mesh& mesh,
                      const Slice& slice) {
  double hops = 0, across = 0;
  for (const auto& [from, to] : collective.pairs) {
    const std::vector<int> a = placement.ChipOf(from, mesh, slice), b = placement.ChipOf(to, mesh, slice);
    if (slice.slices() > 1 && a.back() != b.back()) {
      ++across;
      continue;
    }
    for (int d = 0; d < std::ssize(slice.grid); ++d) {
      const int distance = std::abs(a[d] - b[d]);
      hops += slice.Wraps(d) ? std::min(distance, slice.grid[d] - distance) : distance;
    }
  }
  hops /= std::max<double>(1, static_cast<double>(collective.pairs.size()));
  // On average, the number of messages that share a link is the number of hops of a message.
  const double bytes = static_cast<double>(collective.bytes);
  const double ici_us = hops * (bytes / slice.chip.ici_bytes_per_s + slice.chip.ici_hop_s) * 1e6;
  if (across == 0) return ici_us;
  return std::max(ici_us, (bytes / slice.chip.dcn_bytes_per_s + slice.chip.dcn_latency_s) * 1e6);
}

}  // namespace

Trips TripsOf(const Instruction& loop) {
  std::optional<int64_t> count = hlo::NotedTripCount(loop);
  if (!count.has_value()) count = hlo::TripCount(loop);
  return {static_cast<double>(count.value_or(hlo::kAssumedTripCount)), !count.has_value()};
}

absl::StatusOr<std::vector<ProgramCollective>> CollectivesOf(const hlo::Module& module, int64_t devices) {
  std::vector<ProgramCollective> found;
  XLAD_RETURN_IF_ERROR(Collect(*module.entry(), 1, devices, &found));
  return found;
}

GroupShape ShapeOf(const ProgramCollective& collective, const Placement& placement, const sharding::Mesh& mesh,
                   const Slice& slice) {
  std::vector<std::vector<int>> chips;
  for (const int64_t device : collective.group) chips.push_back(placement.ChipOf(device, mesh, slice));
  return ShapeOf(chips, slice);
}

std::vector<Placement> CheapestFirst(const std::vector<Placement>& placements,
                                     const std::vector<ProgramCollective>& collectives, const sharding::Mesh& mesh,
                                     const Slice& slice) {
  // Collectives of equal group, kind and size are estimated once, with the sum of their trips.
  std::map<std::tuple<std::vector<int64_t>, CollectiveKind, int64_t, std::vector<std::pair<int64_t, int64_t>>>, double>
      distinct;
  for (const ProgramCollective& c : collectives) distinct[{c.group, c.kind, c.bytes, c.pairs}] += c.trips;
  std::vector<std::pair<double, const Placement*>> costs;
  for (const Placement& placement : placements) {
    double us = 0;
    const std::vector<int64_t>* group = nullptr;  // Whose shape is `shape`.
    GroupShape shape;
    for (const auto& [what, trips] : distinct) {
      ProgramCollective collective;
      std::tie(collective.group, collective.kind, collective.bytes, collective.pairs) = what;
      if (collective.kind == CollectiveKind::kCollectivePermute) {
        us += trips * PermuteBoundUs(collective, placement, mesh, slice);
        continue;
      }
      if (group == nullptr || *group != collective.group) shape = ShapeOf(collective, placement, mesh, slice);
      group = &std::get<0>(what);
      us += trips * BoundUs({collective.kind, collective.bytes, shape}, slice);
    }
    costs.emplace_back(us, &placement);
  }
  std::stable_sort(costs.begin(), costs.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Placement> sorted;
  for (const auto& [us, placement] : costs) sorted.push_back(*placement);
  return sorted;
}

}  // namespace xlad::simulate
