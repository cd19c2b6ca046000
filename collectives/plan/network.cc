// Networks and their presets.
#include "collectives/plan/network.h"

#include <algorithm>
#include <deque>
#include <numeric>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "collectives/plan/grid.h"
#include "machine/chip.h"

namespace xlad::collectives {
namespace {

constexpr int kMaxRanks = 1 << 16;

absl::Status UnknownPreset(absl::string_view name) {
  return absl::InvalidArgumentError(absl::StrCat(
      "found topology \"", name, "\", expected a TPU slice such as v5e-16x16 or v4-4x4x8 (v2, v3, v5e and v6e in two ",
      "dimensions, v4, v5p and 7x in three) or a switched cluster such as switch-64, of at most ", kMaxRanks,
      " ranks"));
}

}  // namespace

void Network::Connect(int a, int b, double latency_us, double gigabytes_per_s) {
  for (const auto& [from, to] : {std::pair(a, b), std::pair(b, a)}) {
    links_of_[from].push_back(std::ssize(links_));
    links_.push_back({from, to, latency_us, gigabytes_per_s, false});
  }
}

void Network::AddChips(int chips) {
  num_chips_ = chips;
  chips_.resize(chips);
  std::iota(chips_.begin(), chips_.end(), 0);
}

Network Network::Torus(const std::vector<TorusDimension>& dimensions, double launch_us) {
  Network network;
  network.launch_us_ = launch_us;
  int chips = 1;
  for (const TorusDimension& dimension : dimensions) {
    chips *= dimension.size;
    network.grid_.push_back(dimension.size);
    network.wraps_.push_back(dimension.wraps);
  }
  network.AddChips(chips);
  network.links_of_.resize(chips);
  for (int rank = 0; rank < chips; ++rank) {
    const std::vector<int> at = CoordinatesOf(network.grid_, rank);
    for (size_t d = 0; d < dimensions.size(); ++d) {
      const TorusDimension& along = dimensions[d];
      const bool last = at[d] + 1 == along.size;
      if (last && (!along.wraps || along.size < 3)) continue;
      std::vector<int> next = at;
      next[d] = last ? 0 : at[d] + 1;
      network.Connect(rank, PositionIn(network.grid_, next), along.latency_us, along.gigabytes_per_s);
    }
  }
  return network;
}

Network Network::Torus(const std::vector<int>& grid, const std::vector<bool>& wraps, double latency_us,
                       double gigabytes_per_s) {
  std::vector<TorusDimension> dimensions;
  for (size_t d = 0; d < grid.size(); ++d) dimensions.push_back({grid[d], wraps[d], latency_us, gigabytes_per_s});
  return Torus(dimensions);
}

Network Network::Switch(int ranks, double latency_us, double gigabytes_per_s) {
  Network network;
  network.AddChips(ranks);
  network.links_of_.resize(ranks + 1);
  for (int rank = 0; rank < ranks; ++rank) network.Connect(rank, ranks, latency_us / 2, gigabytes_per_s);
  return network;
}

absl::StatusOr<Network> Network::Preset(absl::string_view name) {
  const std::vector<absl::string_view> words = absl::StrSplit(name, absl::MaxSplits('-', 1));
  if (words.size() != 2) return UnknownPreset(name);
  std::vector<int> grid;
  int64_t ranks = 1;
  for (const absl::string_view word : absl::StrSplit(words[1], 'x')) {
    if (!absl::SimpleAtoi(word, &grid.emplace_back()) || grid.back() < 1 || grid.back() > kMaxRanks) {
      return UnknownPreset(name);
    }
    ranks *= grid.back();
    if (ranks > kMaxRanks) return UnknownPreset(name);
  }
  if (words[0] == "switch" && grid.size() == 1) return Switch(grid[0], /*latency_us=*/2, /*gigabytes_per_s=*/25);
  const absl::StatusOr<machine::Chip> chip = machine::BuiltInChip(words[0]);
  if (!chip.ok() || std::ssize(grid) != chip->ici_dimensions) return UnknownPreset(name);
  std::vector<TorusDimension> dimensions;
  for (const int size : grid) {
    dimensions.push_back({size, chip->Wraps(size), chip->ici_hop_s * 1e6, chip->ici_bytes_per_s / 1e9});
  }
  return Torus(dimensions, chip->ici_launch_s * 1e6);
}

bool Network::IsSymmetric() const {
  if (grid_.empty()) return false;
  for (size_t d = 0; d < grid_.size(); ++d) {
    if (grid_[d] > 2 && !wraps_[d]) return false;
  }
  return std::none_of(links_.begin(), links_.end(), [](const NetworkLink& link) { return link.broken; });
}

int Network::DimensionOf(int link) const {
  if (grid_.empty()) return -1;
  const std::vector<int> from = CoordinatesOf(grid_, links_[link].from), to = CoordinatesOf(grid_, links_[link].to);
  int dimension = 0;
  while (from[dimension] == to[dimension]) ++dimension;
  return dimension;
}

int Network::LinkOfRankZero(int link) const {
  return LinkBetween(0, DifferenceIn(grid_, links_[link].from, links_[link].to));
}

double Network::InjectionRate(int rank) const {
  double rate = 0;
  for (const int link : links_of_[chips_[rank]]) rate += links_[link].broken ? 0 : links_[link].gigabytes_per_s;
  return rate;
}

int Network::LinkBetween(int from, int to) const {
  for (const int link : links_of_[from]) {
    if (links_[link].to == to) return link;
  }
  return -1;
}

absl::Status Network::BreakLink(int a, int b) {
  const bool known = a >= 0 && b >= 0 && a < std::ssize(links_of_) && b < std::ssize(links_of_);
  if (!known || LinkBetween(a, b) < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("found broken link ", a, "-", b, ", expected the numbers of two neighboring chips"));
  }
  links_[LinkBetween(a, b)].broken = links_[LinkBetween(b, a)].broken = true;
  return absl::OkStatus();
}

absl::Status Network::BreakChip(int chip) {
  const auto found = std::find(chips_.begin(), chips_.end(), chip);
  if (found == chips_.end() || chips_.size() == 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("found broken chip ", chip, ", expected a number from 0 to ", num_chips_ - 1,
                     ", each at most once, and one chip that is not broken"));
  }
  chips_.erase(found);
  for (const int link : links_of_[chip]) {
    links_[link].broken = links_[LinkBetween(links_[link].to, chip)].broken = true;
  }
  return absl::OkStatus();
}

bool Network::OnlyChipsAreBroken() const {
  std::vector<bool> is_broken(num_chips_, true);
  for (const int chip : chips_) is_broken[chip] = false;
  const auto is_of_broken_chip = [&](int node) { return node < num_chips_ && is_broken[node]; };
  return std::all_of(links_.begin(), links_.end(), [&](const NetworkLink& link) {
    return !link.broken || is_of_broken_chip(link.from) || is_of_broken_chip(link.to);
  });
}

std::vector<int> Network::SnakeOrder() const {
  // The place of a chip is its position in a grid in which a coordinate is counted backward if the sum of the later
  // coordinates is odd.
  const auto place = [&](int chip) {
    std::vector<int> at = CoordinatesOf(grid_, chip);
    int later = 0;
    for (size_t d = at.size(); d-- > 0;) {
      const int here = at[d];
      if (later % 2 == 1) at[d] = grid_[d] - 1 - here;
      later += here;
    }
    return PositionIn(grid_, at);
  };
  std::vector<std::pair<int, int>> places;  // By position; the second number is the rank.
  for (int rank = 0; rank < ranks(); ++rank) places.emplace_back(grid_.empty() ? rank : place(chips_[rank]), rank);
  std::sort(places.begin(), places.end());
  std::vector<int> order;
  for (const auto& [unused, rank] : places) order.push_back(rank);
  return order;
}

// The ring uses all links of each row but one. It enters each row from the row before, goes around, and leaves the row
// next to the chip at which it entered. So its column changes by one, to the left or to the right, from row to row. In
// the row of the broken chip, the ring starts after this chip and ends before it. The next rows must therefore move it
// by two columns. If the number of these rows is odd, they can only move it by one. The ring then needs two links for
// the last step: the link that it has left out in the last row, and a link between two rows.
std::vector<int> Network::RingOrder() const {
  const bool is_torus = grid_.size() == 2 && wraps_[0] && wraps_[1] && grid_[0] > 2 && grid_[1] > 2;
  if (!is_torus || num_chips_ - ranks() != 1) return SnakeOrder();
  const int columns = grid_[0], rows = grid_[1];
  std::vector<int> rank_of(num_chips_, -1);
  for (int rank = 0; rank < ranks(); ++rank) rank_of[chips_[rank]] = rank;
  const int broken = std::find(rank_of.begin(), rank_of.end(), -1) - rank_of.begin();
  std::vector<int> order;
  int column = broken % columns, row = broken / columns;
  const auto go_around = [&](int direction, int chips) {
    for (int i = 0; i < chips; ++i) {
      if (i > 0) column = (column + direction + columns) % columns;
      order.push_back(rank_of[row * columns + column]);
    }
    row = (row + 1) % rows;
  };
  column = (column + 1) % columns;
  go_around(1, columns - 1);
  // Going around to the left moves the ring by one column to the right.
  for (int i = 0; i < rows - 1; ++i) go_around(i < 2 || i % 2 == 1 ? -1 : 1, columns);
  return order;
}

absl::StatusOr<std::vector<int>> Network::Route(int from, int to) const {
  absl::StatusOr<std::vector<int>> route = RouteOfChips(chips_[from], chips_[to]);
  if (route.ok()) return route;
  return absl::UnavailableError(
      absl::StrCat("found no route from rank ", from, " to rank ", to, " without broken links"));
}

absl::StatusOr<std::vector<int>> Network::RouteOfChips(int from, int to) const {
  if (grid_.empty()) return ShortestRoute(from, to);
  std::vector<int> route;
  std::vector<int> at = CoordinatesOf(grid_, from);
  const std::vector<int> goal = CoordinatesOf(grid_, to);
  int node = from;
  for (size_t d = 0; d < grid_.size(); ++d) {
    while (at[d] != goal[d]) {
      const int ahead = (goal[d] - at[d] + grid_[d]) % grid_[d];
      const bool forward = wraps_[d] && grid_[d] > 2 ? ahead * 2 <= grid_[d] : goal[d] > at[d];
      at[d] = (at[d] + (forward ? 1 : grid_[d] - 1)) % grid_[d];
      const int next = PositionIn(grid_, at);
      const int link = LinkBetween(node, next);
      if (link < 0 || links_[link].broken) return ShortestRoute(from, to);
      route.push_back(link);
      node = next;
    }
  }
  return route;
}

absl::StatusOr<std::vector<int>> Network::ShortestRoute(int from, int to) const {
  std::vector<int> arrived_by(links_of_.size(), -1);
  std::deque<int> nodes = {from};
  while (!nodes.empty() && arrived_by[to] < 0) {
    const int node = nodes.front();
    nodes.pop_front();
    for (const int link : links_of_[node]) {
      const int next = links_[link].to;
      if (links_[link].broken || next == from || arrived_by[next] >= 0) continue;
      arrived_by[next] = link;
      nodes.push_back(next);
    }
  }
  std::vector<int> route;
  for (int node = to; node != from; node = links_[arrived_by[node]].from) {
    if (arrived_by[node] < 0) return absl::UnavailableError("found no route");
    route.push_back(arrived_by[node]);
  }
  std::reverse(route.begin(), route.end());
  return route;
}

}  // namespace xlad::collectives
