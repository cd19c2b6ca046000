#include "sharding/partition/min_cut.h"

#include <algorithm>

namespace xlad::sharding {

void FlowNetwork::AddEdge(int from, int to, int64_t cost) {
  first_[from].push_back(std::ssize(edges_));
  edges_.push_back({to, cost});
  first_[to].push_back(std::ssize(edges_));
  edges_.push_back({from, 0});
}

void FlowNetwork::ComputeLevels(int source) {
  level_.assign(first_.size(), -1);
  level_[source] = 0;
  std::vector<int> queue = {source};
  for (size_t at = 0; at < queue.size(); ++at) {
    for (const int e : first_[queue[at]]) {
      const Edge& edge = edges_[e];
      int& level = level_[edge.to];
      if (edge.left == 0 || level >= 0) continue;
      level = level_[queue[at]] + 1;
      queue.push_back(edge.to);
    }
  }
}

int64_t FlowNetwork::AugmentPath(int sink, std::vector<int>* path, int source) {
  path->clear();
  int at = source;
  while (at != sink) {
    size_t& next = next_[at];
    const std::vector<int>& out = first_[at];
    while (next < out.size()) {
      const Edge& edge = edges_[out[next]];
      if (edge.left > 0 && level_[edge.to] == level_[at] + 1) break;
      ++next;
    }
    if (next < out.size()) {
      path->push_back(out[next]);
      at = edges_[out[next]].to;
    } else if (path->empty()) {
      return 0;
    } else {
      at = edges_[path->back() ^ 1].to;
      path->pop_back();
      ++next_[at];
    }
  }
  int64_t flow = kUncuttable;
  for (const int e : *path) flow = std::min(flow, edges_[e].left);
  for (const int e : *path) {
    edges_[e].left -= flow;
    edges_[e ^ 1].left += flow;
  }
  return flow;
}

std::vector<bool> FlowNetwork::SourceSide(int source, int sink) {
  std::vector<int> path;
  for (ComputeLevels(source); level_[sink] >= 0; ComputeLevels(source)) {
    next_.assign(first_.size(), 0);
    while (AugmentPath(sink, &path, source) > 0) {
    }
  }
  std::vector<bool> side;
  for (const int level : level_) side.push_back(level >= 0);
  return side;
}

}  // namespace xlad::sharding
