// Two binary trees, each for half of the data, such that an inner node of one tree is a leaf of the other (except for
// one rank if n is odd). Sanders, Speck and Traeff, "Two-tree algorithms for full bandwidth broadcast, reduction and
// scan", Parallel Computing, 2009.
//
// Chunks are reduced up a tree and broadcast down again, pipelined by the height of the tree. Each channel of the plan
// takes two channels of the schedule, one per tree.
#include "collectives/plan/algorithms/build.h"
#include "collectives/plan/algorithms/rows.h"

namespace xlad::collectives {
namespace {

struct Node {
  int parent = -1;
  std::vector<int> children;  // In order of reduction.
};

// A binary tree in in-order numbering with rank 0 as the root of ranks 1 to n - 1. The height of a rank is the position
// of its lowest set bit.
Node FirstTree(int ranks, int rank) {
  Node node;
  if (rank == 0) {
    int child = 1;
    while (child * 2 < ranks) child *= 2;
    if (ranks > 1) node.children.push_back(child);
    return node;
  }
  const int bit = rank & -rank;
  node.parent = (rank ^ bit) | (bit << 1);
  if (node.parent >= ranks) node.parent = rank ^ bit;
  if (bit > 1) node.children.push_back(rank - bit / 2);
  for (int half = bit / 2; half > 0; half /= 2) {
    if (rank + half >= ranks) continue;
    node.children.push_back(rank + half);
    break;
  }
  return node;
}

// Tree 0 is FirstTree. Tree 1 is its mirror image if n is even, and the tree shifted by one rank if n is odd.
Node TreeNode(int tree, int ranks, int rank) {
  if (tree == 0) return FirstTree(ranks, rank);
  const bool mirror = ranks % 2 == 0;
  Node node = FirstTree(ranks, mirror ? ranks - 1 - rank : Mod(rank - 1, ranks));
  const auto map = [&](int r) { return mirror ? ranks - 1 - r : Mod(r + 1, ranks); };
  if (node.parent >= 0) node.parent = map(node.parent);
  for (int& child : node.children) child = map(child);
  return node;
}

int64_t Height(int ranks) {
  int64_t height = 0;
  while ((1LL << height) < ranks) ++height;
  return height;
}

void Up(const Node& node, Interval at, ScheduleBuilder* builder) {
  if (!node.children.empty()) {
    std::vector<ReduceSource> sources(1);
    sources[0].region = InputRegion(at);
    for (int child : node.children) sources.push_back({child, {}});
    builder->ReduceMany(OutputRegion(at), sources);
  }
  if (node.parent >= 0) builder->Send(node.parent, node.children.empty() ? InputRegion(at) : OutputRegion(at));
}

void Down(const Node& node, Interval at, ScheduleBuilder* builder) {
  if (node.parent >= 0) builder->Recv(node.parent, OutputRegion(at));
  for (int child : node.children) builder->Send(child, OutputRegion(at));
}

// The part of the data of a chunk of a channel of the schedule ("lane"). Even lanes are of tree 0, odd ones of tree 1.
Interval LanePart(const CollectivePlan& plan, int64_t count, int lane, int chunk) {
  return Part(Part({0, count}, 2 * plan.channels, lane), plan.chunks, chunk);
}

Schedule BuildRank(const CollectivePlan& plan, const CollectiveSpec& spec, int rank) {
  ScheduleBuilder builder(spec, rank);
  const int64_t count = spec.input_elements();
  const Node nodes[2] = {TreeNode(0, spec.ranks, rank), TreeNode(1, spec.ranks, rank)};
  const int lag = std::min<int64_t>(Height(spec.ranks), plan.chunks);
  for (int time = 0; time < plan.chunks + lag; ++time) {
    for (int lane = 0; lane < 2 * plan.channels; ++lane) {
      builder.set_channel(lane);
      if (time < plan.chunks) Up(nodes[lane % 2], LanePart(plan, count, lane, time), &builder);
    }
    for (int lane = 0; lane < 2 * plan.channels; ++lane) {
      builder.set_channel(lane);
      if (time >= lag) Down(nodes[lane % 2], LanePart(plan, count, lane, time - lag), &builder);
    }
  }
  return builder.Finish(/*in_place=*/true);
}

// The depth of the deepest node of a tree.
int64_t Depth(int tree, int ranks) {
  return MaxOverRanks(ranks, [&](int rank) {
    int64_t depth = 0;
    for (int at = rank; at >= 0; at = TreeNode(tree, ranks, at).parent) ++depth;
    return depth - 1;
  });
}

AlgorithmCost Cost(const CollectivePlan& plan, const CollectiveSpec& spec) {
  const int64_t count = spec.input_elements();
  if (count == 0) return {};
  std::vector<int64_t> tree_elements(2);
  for (int lane = 0; lane < 2 * plan.channels; ++lane) {
    tree_elements[lane % 2] += Part({0, count}, 2 * plan.channels, lane).size();
  }
  AlgorithmCost cost;
  for (int tree = 0; tree < 2; ++tree) {
    if (tree_elements[tree] > 0) cost.rounds = std::max(cost.rounds, 2 * Depth(tree, spec.ranks));
  }
  const auto edges = [&](int tree, int rank) {
    const Node node = TreeNode(tree, spec.ranks, rank);
    return std::ssize(node.children) + (node.parent >= 0 ? 1 : 0);
  };
  cost.sent_elements = MaxOverRanks(
      spec.ranks, [&](int rank) { return edges(0, rank) * tree_elements[0] + edges(1, rank) * tree_elements[1]; });
  cost.messages = 4 * plan.chunks * plan.channels;
  cost.reduced_elements = 2 * count;
  return cost;
}

}  // namespace

Algorithm DoubleBinaryTreeAlgorithm() {
  return {"double_binary_tree",
          "two trees for half the data each; 2 log n rounds for an AllReduce, twice the data sent",
          [](const CollectiveSpec& spec) { return spec.ranks > 1 && spec.kind == CollectiveKind::kAllReduce; },
          BuildRank, Cost};
}

}  // namespace xlad::collectives
