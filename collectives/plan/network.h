// Networks: the physical topology of ranks, as a graph of links for the simulator.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/status.h"

namespace xlad::collectives {

// One direction of a connection between two nodes. Nodes 0 to ranks - 1 are the ranks; others are switches.
struct NetworkLink {
  int from = 0;
  int to = 0;
  double latency_us = 1;
  double gigabytes_per_s = 1;
  bool broken = false;
};

// One dimension of a torus or mesh. If `wraps` is true and `size` is at least 3, it has links between the last
// coordinate and the first.
struct TorusDimension {
  int size = 1;
  bool wraps = false;
  double latency_us = 1;
  double gigabytes_per_s = 1;
};

class Network {
 public:
  // Returns a torus or mesh of chips. Rank r has the coordinates r % X, r / X % Y, ... A collective takes `launch_us`
  // to start.
  static Network Torus(const std::vector<TorusDimension>& dimensions, double launch_us = 0);
  // Returns a torus or mesh whose links are all equal. Dimension d wraps around if wraps[d] is true.
  static Network Torus(const std::vector<int>& grid, const std::vector<bool>& wraps, double latency_us,
                       double gigabytes_per_s);
  // Returns a network in which all ranks are connected to one switch without contention. `latency_us` is the latency
  // between two ranks.
  static Network Switch(int ranks, double latency_us, double gigabytes_per_s);
  // Returns a preset by name: a TPU slice such as "v5e-16x16" or "v4-4x4x8" (also v2, v3, v5p, v6e, 7x), or a switched
  // cluster such as "switch-64". Dimensions of v2, v5e and v6e wrap around if they have 16 chips, those of v3 if they
  // have 32, and those of v4, v5p and 7x if their size is a multiple of 4. InvalidArgument, with a list of the presets,
  // for any other name.
  static absl::StatusOr<Network> Preset(absl::string_view name);

  int ranks() const { return std::ssize(chips_); }
  // Whether no chip is broken. Otherwise, the ranks are the other chips, in the same order.
  bool HasAllChips() const { return ranks() == num_chips_; }
  // Whether every broken link is a link of a broken chip.
  bool OnlyChipsAreBroken() const;
  // Returns the ranks in an order in which most neighbors in the list are neighbors in the torus: along the first
  // dimension forward and backward in turn, and so on. In a switched cluster, this is the order of the ranks.
  std::vector<int> SnakeOrder() const;
  // Returns the ranks of a two-dimensional torus with one broken chip in an order for a ring: all neighbors in the list
  // are neighbors in the torus, except one pair that is two links apart if the number of rows is even. No two pairs use
  // the same link in the same direction, if OnlyChipsAreBroken(). Otherwise, routes around broken links are longer and
  // may share links. Returns the SnakeOrder of any other network.
  std::vector<int> RingOrder() const;
  const std::vector<int>& grid() const { return grid_; }  // With broken chips; empty for a switched cluster.
  const std::vector<NetworkLink>& links() const { return links_; }
  double launch_us() const { return launch_us_; }
  // Whether the network is a torus that looks the same from every rank: each dimension wraps around or has at most two
  // ranks, and no link is broken.
  bool IsSymmetric() const;
  // Returns the dimension of a torus in which a link connects two ranks, or -1 for a switched cluster.
  int DimensionOf(int link) const;
  // Returns the link of rank 0 that has the direction of `link`. The network must be a symmetric torus.
  int LinkOfRankZero(int link) const;
  // Returns the sum of the rates of the unbroken links that leave a rank, in GB/s. Those that arrive have the same sum.
  double InjectionRate(int rank) const;

  // Breaks the links between two neighbors, in both directions. They are chips, or a chip and the switch, which has the
  // number after that of the last chip. InvalidArgument if there is no such connection.
  absl::Status BreakLink(int a, int b);
  // Breaks a chip with all its links. The chips after it get the ranks below their former ranks. InvalidArgument if
  // there is no such chip, if it is broken already, or if no chip would be left.
  absl::Status BreakChip(int chip);
  // Returns the links from one rank to another, in order. In a torus, the route uses one dimension after the other, in
  // the shorter direction. If a link of this route is broken, or in a switched cluster, returns a shortest route
  // without broken links. Unavailable if there is no route.
  absl::StatusOr<std::vector<int>> Route(int from, int to) const;

 private:
  void AddChips(int chips);
  void Connect(int a, int b, double latency_us, double gigabytes_per_s);
  int LinkBetween(int from, int to) const;  // Returns -1 if the two nodes are not neighbors.
  absl::StatusOr<std::vector<int>> RouteOfChips(int from, int to) const;
  absl::StatusOr<std::vector<int>> ShortestRoute(int from, int to) const;

  int num_chips_ = 0;       // With broken chips.
  std::vector<int> chips_;  // The chip of each rank. A chip is a node of the graph.
  double launch_us_ = 0;
  std::vector<int> grid_;
  std::vector<bool> wraps_;
  std::vector<NetworkLink> links_;
  std::vector<std::vector<int>> links_of_;  // The links that leave each node.
};

}  // namespace xlad::collectives
