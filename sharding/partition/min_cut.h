// The cheapest places at which to cut every path of a graph from a source to a sink (max flow = min cut, Dinic).
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace xlad::sharding {

class FlowNetwork {
 public:
  static constexpr int64_t kUncuttable = std::numeric_limits<int64_t>::max() / 4;

  explicit FlowNetwork(int nodes) : first_(static_cast<std::size_t>(nodes)) {}

  // A directed edge; `cost` >= 0 of cutting it. The costs of all edges that can be cut must sum to less than
  // kUncuttable.
  void AddEdge(int from, int to, int64_t cost);
  // By node: on the source's side of the cheapest cut; of several, the one nearest to the source. Call once.
  std::vector<bool> SourceSide(int source, int sink);

 private:
  struct Edge {
    int to;
    int64_t left;  // Capacity that is not used yet. Edge i's reverse is i ^ 1.
  };

  void Level(int source);
  int64_t Push(int sink, std::vector<int>* path, int source);

  std::vector<Edge> edges_;
  std::vector<std::vector<int>> first_;  // Edges by node.
  std::vector<int> level_;
  std::vector<std::size_t> next_;
};

}  // namespace xlad::sharding
