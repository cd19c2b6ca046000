// Networks: the physical topology of ranks as a graph of links, for the simulator.
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

// One dimension of a torus or mesh. It has links from the last coordinate to the first if `wraps`.
struct TorusDimension {
  int size = 1;
  bool wraps = false;
  double latency_us = 1;
  double gigabytes_per_s = 1;
};

class Network {
 public:
  // A torus or mesh of chips; rank r has the coordinates r % X, r / X % Y, ... A collective takes `launch_us` to start.
  static Network Torus(const std::vector<TorusDimension>& dimensions, double launch_us = 0);
  // The same with equal links, where dimension d wraps around if wraps[d].
  static Network Torus(const std::vector<int>& grid, const std::vector<bool>& wraps, double latency_us,
                       double gigabytes_per_s);
  // All ranks at one switch, in which there is no contention.
  static Network Switch(int ranks, double latency_us, double gigabytes_per_s);
  // A preset by name. TPU slices: "v5e-16x16", "v4-4x4x8" (also v2, v3, v5p, v6e, 7x), with the wrap-around rules of
  // the generation: v2, v3, v5e and v6e along dimensions of 16 chips (32 for v3), v4, v5p and 7x along multiples of 4.
  // Clusters: "switch-64". InvalidArgument, with a list of the presets, for any other name.
  static absl::StatusOr<Network> Preset(absl::string_view name);

  int ranks() const { return ranks_; }
  const std::vector<int>& grid() const { return grid_; }  // Empty for a switched cluster.
  const std::vector<NetworkLink>& links() const { return links_; }
  double launch_us() const { return launch_us_; }
  // Whether all ranks of a torus have the same neighbors and links, because every dimension wraps around or has at most
  // two ranks, and no link is broken.
  bool IsSymmetric() const;
  // The dimension of a torus along which a link goes, or -1 for a switched cluster.
  int DimensionOf(int link) const;
  // The link of rank 0 that has the direction of `link`, in a symmetric torus.
  int LinkOfRankZero(int link) const;
  // The sum of the rates of the links that leave a rank, for the rank that has the fewest, in GB/s.
  double InjectionRate() const;
  // The sum of the rates of all links across the middle of the longest dimension, in one direction, in GB/s.
  double BisectionRate() const;

  // Breaks the links between two neighbors, in both directions. InvalidArgument if there is no such connection.
  absl::Status BreakLink(int a, int b);
  // The links from one rank to another, in order: dimension by dimension along the shorter way, or a shortest way
  // around broken links. Unavailable if no route is left.
  absl::StatusOr<std::vector<int>> Route(int from, int to) const;

 private:
  void Connect(int a, int b, double latency_us, double gigabytes_per_s);
  int LinkBetween(int from, int to) const;  // -1 if the two are not neighbors.
  absl::StatusOr<std::vector<int>> ShortestRoute(int from, int to) const;

  int ranks_ = 0;
  double launch_us_ = 0;
  std::vector<int> grid_;
  std::vector<bool> wraps_;
  std::vector<NetworkLink> links_;
  std::vector<std::vector<int>> links_of_;  // The links that leave each node.
};

}  // namespace xlad::collectives
