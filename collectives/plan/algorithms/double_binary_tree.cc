// Two binary trees, each for half of the data. An inner node of one tree is a leaf of the other one (except for one
// rank if n is odd). Sanders, Speck and Traeff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan",
// Parallel Computing, 2009.
//
// Each chunk is reduced up a tree and then broadcast down the tree. Chunks are pipelined: a rank broadcasts a chunk
// after it has reduced as many later chunks as the tree has levels. Each channel of the plan uses two channels of the
// schedule, one per tree. In a Broadcast or Reduce, the trees contain all ranks except the root, which is the parent of
// the roots of both trees.
#include "collectives/plan/algorithms/build.h"
#include "collectives/plan/algorithms/rows.h"

namespace xlad::collectives {
namespace {

struct Node {
  int parent = -1;
  std::vector<int> children;  // In the order of the reduction.
};

// A binary tree of ranks 1 to n - 1 in in-order numbering, with rank 0 above its root. The height of a rank is the
// position of its lowest set bit.
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

// The node of a position in the tree of a collective.
Node NodeAt(const CollectiveSpec& spec, int tree, int position) {
  if (spec.kind == CollectiveKind::kAllReduce) return TreeNode(tree, spec.ranks, position);
  const int others = spec.ranks - 1;
  Node node;
  if (position == 0) {
    for (int p = 0; p < others; ++p) {
      if (TreeNode(tree, others, p).parent < 0) node.children.push_back(p + 1);
    }
    return node;
  }
  node = TreeNode(tree, others, position - 1);
  node.parent += 1;  // The root of the tree has the parent -1, which becomes position 0.
  for (int& child : node.children) ++child;
  return node;
}

// Returns the part of the data in a chunk of a channel of the schedule ("lane"). Even lanes belong to tree 0, odd lanes
// to tree 1.
Interval LanePart(const CollectivePlan& plan, int64_t count, int lane, int chunk) {
  return Part(Part({0, count}, 2 * plan.channels, lane), plan.chunks, chunk);
}

Schedule BuildRank(const CollectivePlan& plan, const CollectiveSpec& spec, int rank) {
  ScheduleBuilder builder(plan, spec, rank);
  const int64_t count = spec.input_elements();
  const Node nodes[2] = {NodeAt(spec, 0, builder.position()), NodeAt(spec, 1, builder.position())};
  const bool up = spec.kind != CollectiveKind::kBroadcast, down = spec.kind != CollectiveKind::kReduce;
  const bool has_output = down || builder.position() == 0;
  if (!has_output) builder.Scratch(count);
  const int lag = up && down ? std::min(CeilLog2(spec.ranks), plan.chunks) : 0;
  for (int time = 0; time < plan.chunks + lag; ++time) {
    for (int lane = 0; up && lane < 2 * plan.channels && time < plan.chunks; ++lane) {
      builder.set_channel(lane);
      const Interval at = LanePart(plan, count, lane, time);
      const Node& node = nodes[lane % 2];
      ReduceUp(node.parent, node.children, at, has_output ? OutputRegion(at) : ScratchRegion(at), &builder);
    }
    for (int lane = 0; down && lane < 2 * plan.channels && time >= lag; ++lane) {
      builder.set_channel(lane);
      const Node& node = nodes[lane % 2];
      BroadcastDown(node.parent, node.children, LanePart(plan, count, lane, time - lag), !up, &builder);
    }
  }
  return builder.Finish(/*in_place=*/true);
}

// Returns the depth of the deepest node of a tree.
int64_t Depth(const CollectiveSpec& spec, int tree) {
  int64_t deepest = 0;
  for (int position = 0; position < spec.ranks; ++position) {
    int64_t depth = -1;
    for (int at = position; at >= 0; at = NodeAt(spec, tree, at).parent) ++depth;
    deepest = std::max(deepest, depth);
  }
  return deepest;
}

// In each tree, a rank sends half of the elements to each child if data is sent down the tree, and to its parent if
// data is sent up. The rank that sends the most counts.
AlgorithmCost Cost(const CollectivePlan& plan, const CollectiveSpec& spec) {
  const int64_t count = spec.input_elements();
  if (count == 0) return {};
  const int64_t half = EvenElements(plan, count, 2) / 2;
  const bool up = spec.kind != CollectiveKind::kBroadcast, down = spec.kind != CollectiveKind::kReduce;
  AlgorithmCost cost;
  cost.rounds = (up && down ? 2 : 1) * std::max(Depth(spec, 0), Depth(spec, 1));
  int64_t halves = 0;
  for (int position = 0; position < spec.ranks; ++position) {
    int64_t sent = 0;
    for (int tree = 0; tree < 2; ++tree) {
      const Node node = NodeAt(spec, tree, position);
      sent += (down ? std::ssize(node.children) : 0) + (up && node.parent >= 0 ? 1 : 0);
    }
    halves = std::max(halves, sent);
  }
  cost.sent_elements = halves * half;
  cost.messages = halves * NumUnits(plan);
  cost.reduced_elements = up ? 2 * count : 0;
  cost.pipeline_rounds = (up && down ? 2 : 1) * (plan.chunks - 1);
  cost.round_elements = count;
  return cost;
}

}  // namespace

Algorithm DoubleBinaryTreeAlgorithm() {
  return {.name = "double_binary_tree",
          .summary = "two trees for half of the data each; an AllReduce has 2 log n rounds and sends twice the data",
          .refuses =
              [](const CollectivePlan&, const CollectiveSpec& spec) {
                return spec.ranks < 2 ? "2 or more ranks"
                                      : RefuseKinds(spec, {CollectiveKind::kAllReduce, CollectiveKind::kBroadcast,
                                                           CollectiveKind::kReduce});
              },
          .build = BuildRank,
          .cost = Cost};
}

}  // namespace xlad::collectives
