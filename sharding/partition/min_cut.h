// Minimum s-t cut: the edges of least total cost whose removal leaves no path from a source to a sink. It is found with
// Dinic's algorithm for maximum flow (E. A. Dinic, 1970) and the max-flow min-cut theorem, in time O(vertices^2 *
// edges).
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace xlad::sharding {

class FlowNetwork {
 public:
  static constexpr int64_t kUncuttable = std::numeric_limits<int64_t>::max() / 4;

  explicit FlowNetwork(int nodes) : first_(nodes) {}

  // A directed edge and the cost of cutting it, at least 0. The costs of all edges that can be cut must sum to less
  // than kUncuttable.
  void AddEdge(int from, int to, int64_t cost);
  // Returns for each node whether it is on the source's side of the minimum cut. If there are several minimum cuts, the
  // one nearest to the source is used. Must be called at most once.
  std::vector<bool> SourceSide(int source, int sink);

 private:
  struct Edge {
    int to;
    int64_t left;  // Residual capacity. The reverse of edge i is edge i ^ 1.
  };

  // Sets level_, the distances of all nodes from the source in the residual graph.
  void ComputeLevels(int source);
  // Finds a path along ascending levels and uses up its least residual capacity. Returns that capacity, or 0 if there
  // is no path.
  int64_t AugmentPath(int sink, std::vector<int>* path, int source);

  std::vector<Edge> edges_;
  std::vector<std::vector<int>> first_;  // The indices of the edges that leave each node.
  std::vector<int> level_;               // By node: the distance from the source, or -1 if it cannot be reached.
  std::vector<std::size_t> next_;  // By node: the next edge to try.
};

}  // namespace xlad::sharding
