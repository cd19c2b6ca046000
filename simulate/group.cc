#include "simulate/group.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "absl/strings/str_join.h"
#include "base/rounding.h"
#include "collectives/plan/grid.h"
#include "collectives/plan/simulate.h"

namespace xlad::simulate {
namespace {

using collectives::CollectiveKind;
using collectives::CollectivePlan;
using collectives::CollectiveSpec;
using collectives::Network;
using collectives::SimulatedRun;

// The largest number of ranks for which all ranks are simulated: for an all-to-all or if several plans are compared,
// and for other collectives with only one plan.
constexpr int kMaxRanksOfAll = 64, kMaxRanksOfOnePlan = 1024;
// The largest number of ranks for which the plan direct is simulated by one rank.
constexpr int kMaxDirectRanks = 4096;
constexpr size_t kMaxRingDimensions = 3;

// The spec of a collective, whose elements are bytes. Except for a broadcast, the size is rounded up: each rank has
// `units` parts of equal size, so that all ranks do the same work.
CollectiveSpec SpecOf(const GroupCollective& collective, int64_t units) {
  CollectiveSpec spec;
  spec.kind = collective.kind;
  spec.ranks = RanksOf(collective.shape);
  spec.type = tensor::ElementType::kU8;
  if (Reduces(spec.kind)) spec.reduction = collectives::Reduction::kSum;
  const int64_t whole = spec.ranks * units;
  const int64_t part = CeilDiv(collective.bytes, whole) * units;
  spec.counts = {spec.kind == CollectiveKind::kAllGather   ? part
                 : spec.kind == CollectiveKind::kBroadcast ? collective.bytes
                                                           : part * spec.ranks};
  return spec;
}

// If the group uses the link, breaks the link of the group's network between the members nearest to the two chips.
// Links between groups are not in the network.
void BreakLinkOfGroup(const std::pair<int, int>& link, const GroupShape& shape, const Slice& slice, Network* network) {
  const std::vector<int> a = collectives::CoordinatesOf(slice.grid, link.first);
  const std::vector<int> b = collectives::CoordinatesOf(slice.grid, link.second);
  std::vector<int> from, to;
  for (const GroupDimension& d : shape) {
    // A wraparound link connects the last chip with chip 0.
    const bool goes_around = std::abs(a[d.dimension] - b[d.dimension]) > 1;
    const int low = goes_around ? std::max(a[d.dimension], b[d.dimension]) : std::min(a[d.dimension], b[d.dimension]);
    from.push_back(low / d.stride % d.size);
    to.push_back(a[d.dimension] == b[d.dimension] ? from.back() : (low / d.stride + 1) % d.size);
  }
  if (from == to) return;
  network->BreakLink(collectives::PositionIn(network->grid(), from), collectives::PositionIn(network->grid(), to))
      .IgnoreError();
}

// The shape without the dimension of slices.
GroupShape Inside(const GroupShape& shape) {
  GroupShape inside;
  std::copy_if(shape.begin(), shape.end(), std::back_inserter(inside), [](const auto& d) { return !d.is_dcn; });
  return inside;
}

bool IsAcrossSlices(const GroupShape& shape) { return shape.size() == 1 && shape[0].is_dcn; }

Network NetworkOf(const GroupShape& shape, const Slice& slice) {
  if (IsAcrossSlices(shape)) {
    return Network::Switch(shape[0].size, slice.chip.dcn_latency_s * 1e6, slice.chip.dcn_bytes_per_s / 1e9);
  }
  std::vector<collectives::TorusDimension> dimensions;
  for (const GroupDimension& d : shape) {
    dimensions.push_back(
        {d.size, d.wraps, slice.chip.ici_hop_s * 1e6 * d.stride, slice.chip.ici_bytes_per_s / 1e9 / d.stride});
  }
  Network network = Network::Torus(dimensions, slice.chip.ici_launch_s * 1e6);
  for (const auto& link : slice.broken_links) BreakLinkOfGroup(link, shape, slice, &network);
  return network;
}

// The plans that may be the fastest. If `few` is true, only one of them.
//
// Rings use both directions of their links and are pipelined only if the network is symmetric; a broadcast is always
// one ring, which is pipelined unless `few` is true. On meshes, the published time of an all-gather ("How to Scale Your
// Model": 680 us for 34 MB on v5e-4x4) is that of rings in one direction.
std::vector<CollectivePlan> CandidatesOf(CollectiveKind kind, const Network& network, bool few) {
  const int dimensions = std::ssize(network.grid());
  if (kind == CollectiveKind::kAllToAll) return {{.algorithm = "direct"}};
  if (kind == CollectiveKind::kBroadcast) return {{.algorithm = "ring", .chunks = few ? 1 : 16}};
  std::vector<CollectivePlan> plans;
  if (dimensions == 0) {  // The group is across slices.
    if (!few) plans.push_back({.algorithm = "direct"});
    plans.push_back({.algorithm = "ring"});
    return plans;
  }
  for (const int chunks : {1, 4}) {
    CollectivePlan plan{.algorithm = "ring", .chunks = chunks};
    plan.channels = network.IsSymmetric() ? 2 * dimensions : dimensions;
    if (dimensions > 1) {
      plan.algorithm = absl::StrCat("ring_", dimensions, "d");
      plan.grid = network.grid();
    }
    plans.push_back(std::move(plan));
    if (few || !network.IsSymmetric()) break;
  }
  if (few) return plans;
  if (kind == CollectiveKind::kAllReduce && network.ranks() <= kMaxRanksOfAll) {
    plans.push_back({.algorithm = "recursive_doubling"});
    plans.push_back({.algorithm = "halving_doubling"});
  }
  plans.push_back({.algorithm = "direct"});
  return plans;
}

// Whether the work of every rank is that of rank 0, in coordinates relative to the rank.
bool IsTranslated(const CollectivePlan& plan, CollectiveKind kind, const Network& network) {
  const bool is_ring = plan.algorithm == "ring" && network.grid().size() == 1 && kind != CollectiveKind::kBroadcast;
  return network.IsSymmetric() && (is_ring || !plan.grid.empty() || plan.algorithm == "direct");
}

// The largest number of ranks for which a plan is simulated.
int MaxRanksOf(const CollectivePlan& plan, CollectiveKind kind, bool is_translated) {
  if (!is_translated) return kind == CollectiveKind::kAllToAll ? kMaxRanksOfAll : kMaxRanksOfOnePlan;
  return plan.algorithm == "direct" ? kMaxDirectRanks : kMaxChips;
}

// By dimension of the shape: the mean time that one of its links is busy. If `only_rank_zero` is true, only the links
// that leave rank 0 are counted.
std::vector<double> LinkUs(const SimulatedRun& run, const Network& network, const GroupShape& shape,
                           bool only_rank_zero) {
  std::vector<double> sums(shape.size()), counts(shape.size());
  for (int link = 0; link < std::ssize(network.links()); ++link) {
    if (only_rank_zero && network.links()[link].from != 0) continue;
    const int d = std::max(0, network.DimensionOf(link));  // -1 for DCN.
    sums[d] += run.busy_us[link];
    counts[d] += 1;
  }
  for (size_t d = 0; d < shape.size(); ++d) sums[d] /= std::max(counts[d], 1.0);
  return sums;
}

}  // namespace

int RanksOf(const GroupShape& shape) {
  int ranks = 1;
  for (const GroupDimension& d : shape) ranks *= d.size;
  return ranks;
}

std::string ToString(const GroupShape& shape) {
  return absl::StrJoin(shape, " ", [](std::string* out, const GroupDimension& d) {
    absl::StrAppend(out, std::string(1, d.is_dcn ? 's' : 'x' + d.dimension), d.size);
    if (d.stride > 1) absl::StrAppend(out, "/", d.stride);
  });
}

GroupShape ShapeOf(const std::vector<std::vector<int>>& chips, const Slice& slice) {
  GroupShape shape;
  for (int d = 0; d < std::ssize(slice.grid); ++d) {
    std::set<int> at;
    for (const std::vector<int>& chip : chips) at.insert(chip[d]);
    if (at.size() < 2) continue;
    const int size = std::ssize(at), span = *at.rbegin() - *at.begin();
    if (slice.IsDcn(d)) {
      shape.push_back({d, size, 1, false, true});
      continue;
    }
    // Unequal steps between positions are treated as equal ones.
    const int stride = std::max<int>(1, std::lround(static_cast<double>(span) / (size - 1)));
    shape.push_back({d, size, stride, size > 2 && slice.Wraps(d) && size * stride == slice.grid[d]});
  }
  const int size = std::ssize(chips);
  if (RanksOf(shape) == size) return shape;
  if (!shape.empty() && shape.back().is_dcn) return {{shape.back().dimension, size, 1, false, true}};
  const int longest =
      std::max_element(slice.grid.begin(), slice.grid.begin() + slice.chip.ici_dimensions) - slice.grid.begin();
  double distance = 0;
  for (size_t i = 1; i < chips.size(); ++i) {
    for (size_t d = 0; d < slice.grid.size(); ++d) distance += std::abs(chips[i][d] - chips[i - 1][d]);
  }
  const int mean = std::lround(distance / std::max(1, size - 1));
  return {{longest, size, std::max(1, mean), false}};
}

std::vector<GroupCollective> PhasesOf(const GroupCollective& collective) {
  const GroupShape inside = Inside(collective.shape);
  if (inside.size() == collective.shape.size() || inside.empty()) return {collective};
  const GroupShape across = {collective.shape.back()};
  const int64_t bytes = collective.bytes, part = CeilDiv(bytes, RanksOf(inside));
  switch (collective.kind) {
    case CollectiveKind::kAllReduce:
      return {{CollectiveKind::kReduceScatter, bytes, inside},
              {CollectiveKind::kAllReduce, part, across},
              {CollectiveKind::kAllGather, bytes, inside}};
    case CollectiveKind::kReduceScatter:
      return {{collective.kind, bytes, inside}, {collective.kind, part, across}};
    case CollectiveKind::kAllGather:
      return {{collective.kind, part, across}, {collective.kind, bytes, inside}};
    case CollectiveKind::kBroadcast:
      return {{collective.kind, bytes, inside},
              {collective.kind, part, across},
              {CollectiveKind::kAllGather, bytes, inside}};
    default:  // All-to-all.
      return {{collective.kind, bytes, across}, {collective.kind, bytes, inside}};
  }
}

double BoundUs(const GroupCollective& collective, const Slice& slice) {
  if (const std::vector<GroupCollective> phases = PhasesOf(collective); phases.size() > 1) {
    double us = 0;
    for (const GroupCollective& phase : phases) us += BoundUs(phase, slice);
    return us;
  }
  const double n = RanksOf(collective.shape);
  double rate = 0, hops = 0;
  for (const GroupDimension& d : collective.shape) {
    rate += slice.chip.ici_bytes_per_s / 1e6 / d.stride * (d.wraps ? 2 : 1);
    hops += (d.wraps ? d.size / 2 : d.size - 1) * d.stride;
  }
  if (rate == 0) return 0;
  double bytes = static_cast<double>(collective.bytes) * (n - 1) / n;
  if (collective.kind == CollectiveKind::kAllReduce) bytes *= 2;
  if (IsAcrossSlices(collective.shape)) {
    return slice.chip.dcn_latency_s * 1e6 + bytes / (slice.chip.dcn_bytes_per_s / 1e6);
  }
  // The busiest link of each dimension limits an all-to-all. With n chips along the dimension, that link carries n / 8
  // times a chip's bytes in a ring, and n / 4 times (the middle link) in a line.
  if (collective.kind == CollectiveKind::kAllToAll) {
    double slowest = 0;
    for (const GroupDimension& d : collective.shape) {
      const double one_way = slice.chip.ici_bytes_per_s / 1e6 / d.stride;
      slowest = std::max(slowest, bytes * d.size / (d.wraps ? 8 : 4) / one_way);
    }
    return slice.chip.ici_launch_s * 1e6 + std::max(slowest, hops * slice.chip.ici_hop_s * 1e6);
  }
  return slice.chip.ici_launch_s * 1e6 + bytes / rate + hops * slice.chip.ici_hop_s * 1e6;
}

absl::StatusOr<GroupTime> GroupTimer::Simulate(const GroupCollective& collective) const {
  GroupTime best;
  best.link_us.assign(slice_.grid.size(), 0);
  if (collective.shape.empty()) return best;
  if (collective.shape.size() > kMaxRingDimensions) {
    return absl::InternalError(absl::StrCat("found group ", ToString(collective.shape), ", expected at most ",
                                            kMaxRingDimensions, " dimensions"));
  }
  const Network network = NetworkOf(collective.shape, slice_);
  const bool few = !network.IsSymmetric() && network.ranks() > kMaxRanksOfAll;
  collectives::SimulateOptions options;
  options.memory_gigabytes_per_s = slice_.chip.hbm_bytes_per_s / 1e9;
  options.moves_strided_data = true;  // The DMA of a chip copies rows of tiles that are a stride apart.
  const GroupCollective all_to_all = {CollectiveKind::kAllToAll, collective.bytes, collective.shape};
  for (const CollectivePlan& plan : CandidatesOf(collective.kind, network, few)) {
    const CollectiveSpec spec = SpecOf(collective, plan.channels * plan.chunks);
    const bool is_translated = IsTranslated(plan, collective.kind, network);
    if (spec.ranks > MaxRanksOf(plan, collective.kind, is_translated)) continue;
    // `direct` sends at least the bytes of an all-to-all. If the sizes of a torus are odd, BoundUs is up to an eighth
    // too long for these bytes.
    if (plan.algorithm == "direct" && !best.plan.empty() && BoundUs(all_to_all, slice_) >= best.us) continue;
    const absl::StatusOr<SimulatedRun> run = is_translated ? collectives::SimulateRankZero(plan, spec, network, options)
                                                           : collectives::Simulate(plan, spec, network, options);
    if (absl::IsUnavailable(run.status())) {
      return absl::UnavailableError(absl::StrCat("group ", ToString(collective.shape), " of ", slice_.name,
                                                 ": broken links separate its chips: ", run.status().message(),
                                                 "; routes through other groups are not modeled"));
    }
    if (!run.ok()) return run.status();
    if (!best.plan.empty() && run->time_us >= best.us) continue;
    best.us = run->time_us;
    best.plan = plan.ToString();
    const std::vector<double> link_us = LinkUs(*run, network, collective.shape, is_translated);
    for (size_t d = 0; d < link_us.size(); ++d) best.link_us[collective.shape[d].dimension] = link_us[d];
  }
  if (best.plan.empty()) {
    best.us = BoundUs(collective, slice_);
    best.plan = "bound";
    // Links are idle during the latency that BoundUs adds.
    const double idle_s = IsAcrossSlices(collective.shape) ? slice_.chip.dcn_latency_s : slice_.chip.ici_launch_s;
    const double busy = best.us - idle_s * 1e6;
    for (const GroupDimension& d : collective.shape) best.link_us[d.dimension] = std::max(0.0, busy);
  }
  if (IsAcrossSlices(collective.shape)) best.dcn_us = best.us;
  return best;
}

// Simulates the group on the first dimensions of the slice, and translates the result. The dimensions are not sorted:
// on meshes, a schedule takes another time if they are in another order.
absl::StatusOr<GroupTime> GroupTimer::TimeOfOnePhase(const GroupCollective& collective) {
  if (!slice_.broken_links.empty()) return Simulate(collective);
  const GroupShape& shape = collective.shape;
  GroupCollective renamed = collective;
  for (size_t d = 0; d < shape.size(); ++d) renamed.shape[d].dimension = static_cast<int>(d);
  auto known = times_.find(renamed);
  if (known == times_.end()) {
    XLAD_ASSIGN_OR_RETURN(GroupTime simulated, Simulate(renamed));
    known = times_.emplace(renamed, std::move(simulated)).first;
  }
  GroupTime time = known->second;
  time.link_us.assign(slice_.grid.size(), 0);
  for (size_t d = 0; d < shape.size(); ++d) time.link_us[shape[d].dimension] = known->second.link_us[d];
  return time;
}

absl::StatusOr<GroupTime> GroupTimer::SumOf(const std::vector<GroupCollective>& phases) {
  GroupTime sum;
  sum.link_us.assign(slice_.grid.size(), 0);
  for (const GroupCollective& phase : phases) {
    XLAD_ASSIGN_OR_RETURN(const GroupTime* time, TimeOf(phase));
    sum.us += time->us;
    sum.dcn_us += time->dcn_us;
    for (size_t d = 0; d < sum.link_us.size(); ++d) sum.link_us[d] += time->link_us[d];
    absl::StrAppend(&sum.plan, sum.plan.empty() ? "" : "; ", collectives::ToString(phase.kind), " ",
                    ToString(phase.shape), ": ", time->plan);
  }
  return sum;
}

absl::StatusOr<const GroupTime*> GroupTimer::TimeOf(const GroupCollective& collective) {
  const auto known = times_.find(collective);
  if (known != times_.end()) return &known->second;
  const std::vector<GroupCollective> phases = PhasesOf(collective);
  XLAD_ASSIGN_OR_RETURN(GroupTime time, phases.size() == 1 ? TimeOfOnePhase(collective) : SumOf(phases));
  return &times_.emplace(collective, std::move(time)).first->second;
}

namespace {

// The routes of a pair in one slice. Each route begins with a different one of the dimensions in which the chips
// differ.
absl::StatusOr<std::vector<std::vector<int>>> RoutesOf(const ChipPair& pair, const Network& network) {
  const std::vector<int>& grid = network.grid();
  std::vector<int> differ;
  for (int d = 0; d < std::ssize(grid); ++d) {
    if (pair.from[d] != pair.to[d]) differ.push_back(d);
  }
  std::vector<std::vector<int>> routes(differ.size());
  for (size_t first = 0; first < differ.size(); ++first) {
    std::vector<int> at(pair.from.begin(), pair.from.begin() + std::ssize(grid));
    for (size_t i = 0; i < differ.size(); ++i) {
      const int d = differ[(first + i) % differ.size()];
      const int node = collectives::PositionIn(grid, at);
      at[d] = pair.to[d];
      XLAD_ASSIGN_OR_RETURN(const std::vector<int> leg, network.Route(node, collectives::PositionIn(grid, at)));
      routes[first].insert(routes[first].end(), leg.begin(), leg.end());
    }
  }
  return routes;
}

// The time of the pairs in different slices, which the chip with the most of these pairs determines. Sets the link time
// of DCN.
double AcrossSlicesUs(const std::vector<ChipPair>& pairs, int64_t bytes, const Slice& slice, GroupTime* time) {
  if (slice.slices() == 1) return 0;
  std::map<std::vector<int>, int> sent, received;
  int most = 0, messages = 0;
  for (const ChipPair& pair : pairs) {
    if (pair.from.back() == pair.to.back()) continue;
    most = std::max({most, ++sent[pair.from], ++received[pair.to]});
    ++messages;
  }
  const double message_us = static_cast<double>(bytes) / slice.chip.dcn_bytes_per_s * 1e6;
  time->link_us.back() = messages * message_us / slice.chips();
  return most > 0 ? slice.chip.dcn_latency_s * 1e6 + most * message_us : 0;
}

}  // namespace

absl::StatusOr<GroupTime> PermuteTime(const std::vector<ChipPair>& pairs, int64_t bytes, const Slice& slice,
                                      const Network& network) {
  GroupTime time;
  time.plan = "direct";
  time.link_us.assign(slice.grid.size(), 0);
  const bool has_slices = slice.slices() > 1;
  const size_t count = network.links().size();  // The number of links in each slice.
  std::vector<double> busy_us(count * slice.slices()), links(slice.grid.size());
  size_t hops = 0;
  double most = 0;
  for (const ChipPair& pair : pairs) {
    if (has_slices && pair.from.back() != pair.to.back()) continue;
    const size_t first = has_slices ? pair.from.back() * count : 0;  // The number of the slice's first link.
    XLAD_ASSIGN_OR_RETURN(const std::vector<std::vector<int>> routes, RoutesOf(pair, network));
    const double part = static_cast<double>(bytes) / static_cast<double>(std::max<size_t>(1, routes.size()));
    for (const std::vector<int>& route : routes) {
      hops = std::max(hops, route.size());
      for (const int link : route) {
        busy_us[first + link] += part / (network.links()[link].gigabytes_per_s * 1e3);
        most = std::max(most, busy_us[first + link]);
      }
    }
  }
  for (size_t link = 0; link < busy_us.size(); ++link) {
    const int d = network.DimensionOf(link % count);
    time.link_us[d] += busy_us[link];
    links[d] += 1;
  }
  for (size_t d = 0; d < links.size(); ++d) time.link_us[d] /= std::max(links[d], 1.0);
  if (hops > 0) time.us = network.launch_us() + most + static_cast<double>(hops) * slice.chip.ici_hop_s * 1e6;
  time.dcn_us = AcrossSlicesUs(pairs, bytes, slice, &time);
  time.us = std::max(time.us, time.dcn_us);
  return time;
}

}  // namespace xlad::simulate
