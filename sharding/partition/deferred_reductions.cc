#include "sharding/partition/deferred_reductions.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "absl/container/flat_hash_set.h"
#include "base/containers.h"
#include "base/sort_distinct.h"
#include "hlo/analysis/constants.h"
#include "hlo/analysis/leaves.h"
#include "hlo/analysis/trip_count.h"
#include "hlo/side_effect.h"
#include "sharding/cost/cost.h"
#include "sharding/model/axes.h"
#include "sharding/partition/min_cut.h"
#include "sharding/rules/linear.h"
#include "sharding/rules/rules.h"

namespace xlad::sharding {
namespace {

using hlo::Instruction;
using hlo::Opcode;

// The latency of a collective, expressed in bytes. If two sets of places send equal bytes, the one with fewer
// collectives is chosen.
constexpr double kLatencyBytes = 1024;

// An array of the program: a vertex of the data-flow graph. Arrays are numbered.
struct ArrayNode {
  const Instruction* instruction = nullptr;
  TensorSharding sharding;
  const hlo::Shape* shape = nullptr;
  double runs = 1;                     // How often the instruction is executed.
  AxisList partial;                    // The axes along which the op itself makes a partial sum.
  std::vector<int> linear_users;       // Arrays computed from this one by an op that is linear in it.
  std::vector<int> elementwise_users;  // Arrays computed from this one by a non-linear elementwise op.
  bool needed_reduced = false;         // Whether any other op uses the array.
};

bool MakesPartial(const ArrayNode& array, const AxisRef& axis) { return Contains(array.partial, axis); }

// The data flow between the arrays of a program.
class DataFlowGraph {
 public:
  DataFlowGraph(const ShardedModule& module, const PartialSumAxesOf& partial_sum_axes)
      : module_(module), partial_sum_axes_(partial_sum_axes) {
    AddArrays(*module.module->entry(), 1);
    AddUses(*module.module->entry());
    for (int a : RootLeaves(*module.module->entry())) array(a).needed_reduced = true;
  }

  // The axes along which there are partial sums. If two of these axes differ but overlap, both are omitted.
  std::vector<AxisRef> Axes() const;
  // Chooses where partial sums along `axis` are reduced.
  void PlaceReductions(const AxisRef& axis, DeferredReductions* result) const;

 private:
  class Cut;

  ArrayNode& array(int a) { return arrays_[a]; }
  const ArrayNode& array(int a) const { return arrays_[a]; }
  int LeafCount(const hlo::Shape& shape) const { return CountArrayLeaves(shape); }
  // The number of the array that is the first leaf of an instruction.
  int First(const Instruction* instruction) const { return first_.at(instruction); }
  std::vector<int> RootLeaves(const hlo::Computation& computation) const {
    std::vector<int> leaves(LeafCount(computation.root()->shape()));
    std::iota(leaves.begin(), leaves.end(), First(computation.root()));
    return leaves;
  }

  void AddArrays(const hlo::Computation& computation, double runs);
  void AddArraysOf(const Instruction& instruction, double runs);
  void AddUses(const hlo::Computation& computation);
  void AddUse(const Instruction& user, int64_t operand);
  // Whether an op can be computed on partial sums along `axis`, which requires that `axis` does not split the operands
  // in which the op is linear.
  bool AcceptsPartial(const Instruction& instruction, const AxisRef& axis) const;
  // The arrays that partial sums along `axis` can reach through linear ops.
  std::vector<bool> Reached(const AxisRef& axis) const;
  // The cost of reducing an array along `axis`, by a reduce-scatter or by an all-reduce.
  int64_t ReductionCost(const ArrayNode& array, const AxisRef& axis, bool scatters) const;

  const ShardedModule& module_;
  const PartialSumAxesOf& partial_sum_axes_;
  std::vector<ArrayNode> arrays_;
  absl::flat_hash_map<const Instruction*, int> first_;
};

void DataFlowGraph::AddArraysOf(const Instruction& instruction, double runs) {
  first_[&instruction] = std::ssize(arrays_);
  const auto found = module_.shardings.find(&instruction);
  const auto leaves = ArrayLeaves(instruction.shape());
  for (size_t i = 0; i < leaves.size(); ++i) {
    ArrayNode array;
    array.instruction = &instruction;
    array.shape = leaves[i];
    array.runs = runs;
    array.sharding = found != module_.shardings.end() && i < found->second.size()
                         ? found->second[i]
                         : TensorSharding::Replicated(leaves[i]->ndim());
    if (instruction.shape().is_array() && array.sharding.unreduced.empty()) {
      array.partial = partial_sum_axes_(instruction);
    }
    arrays_.push_back(std::move(array));
  }
}

void DataFlowGraph::AddArrays(const hlo::Computation& computation, double runs) {
  for (const Instruction* instruction : LiveInstructions(computation)) {
    if (!first_.contains(instruction)) AddArraysOf(*instruction, runs);
    if (instruction->opcode() == Opcode::kWhile) {
      // A loop and the parameters of its computations share their arrays, because a carried value is either reduced or
      // partial in all of them.
      const double inner = runs * static_cast<double>(TripCountOrAssumed(*instruction));
      for (int a = First(instruction); a < std::ssize(arrays_); ++a) array(a).runs = inner;
      for (const hlo::Computation* called : instruction->called()) {
        first_[called->parameter(0)] = First(instruction);
        AddArrays(*called, inner);
      }
    } else if (instruction->opcode() == Opcode::kConditional) {
      for (const hlo::Computation* called : instruction->called()) AddArrays(*called, runs);
    }
  }
}

// Records how `user` uses the leaves of an operand.
void DataFlowGraph::AddUse(const Instruction& user, int64_t operand) {
  const Instruction* used = user.operand(operand);
  const int from = First(used);
  int to = -1, begin = 0, end = LeafCount(used->shape());
  switch (user.opcode()) {
    case Opcode::kTuple:
      to = First(&user);
      for (int64_t i = 0; i < operand; ++i) to += LeafCount(user.operand(i)->shape());
      break;
    case Opcode::kGetTupleElement:
      for (int64_t i = 0; i < user.number(); ++i) begin += LeafCount(used->shape().tuple()[i]);
      end = begin + LeafCount(user.shape());
      to = First(&user);
      break;
    case Opcode::kWhile:
    case Opcode::kCopy:
    case Opcode::kOptBarrier: to = First(&user); break;
    default:
      if (IsLinearIn(user, operand)) {
        to = First(&user);
      } else if (hlo::IsElementwise(user.opcode()) && used->shape().dims() == user.shape().dims()) {
        array(from).elementwise_users.push_back(First(&user));
        return;
      }
  }
  for (int leaf = begin; leaf < end; ++leaf) {
    if (to < 0) array(from + leaf).needed_reduced = true;
    else array(from + leaf).linear_users.push_back(to + leaf - begin);
  }
}

void DataFlowGraph::AddUses(const hlo::Computation& computation) {
  for (const Instruction* instruction : LiveInstructions(computation)) {
    for (int64_t i = 0; i < instruction->operand_count(); ++i) AddUse(*instruction, i);
    if (instruction->opcode() != Opcode::kWhile && instruction->opcode() != Opcode::kConditional) continue;
    for (size_t c = 0; c < instruction->called().size(); ++c) {
      const hlo::Computation& called = *instruction->called()[c];
      AddUses(called);
      const bool is_body = instruction->opcode() == Opcode::kWhile && c == 1;
      const int first = First(instruction) - First(called.root());
      for (int leaf : RootLeaves(called)) {
        if (is_body) array(leaf).linear_users.push_back(first + leaf);
        else array(leaf).needed_reduced = true;
      }
    }
  }
}

std::vector<AxisRef> DataFlowGraph::Axes() const {
  std::set<AxisRef> all;
  for (const ArrayNode& array : arrays_) all.insert(array.partial.begin(), array.partial.end());
  std::vector<AxisRef> disjoint;
  for (const AxisRef& axis : all) {
    const bool overlaps = std::any_of(all.begin(), all.end(), [&](const AxisRef& other) {
      return other != axis && Overlap(axis, other);
    });
    if (!overlaps) disjoint.push_back(axis);
  }
  return disjoint;
}

std::vector<bool> DataFlowGraph::Reached(const AxisRef& axis) const {
  std::vector<bool> reached(arrays_.size(), false);
  std::vector<int> worklist;
  for (int a = 0; a < std::ssize(arrays_); ++a) {
    if (MakesPartial(array(a), axis)) worklist.push_back(a);
  }
  while (!worklist.empty()) {
    const int a = worklist.back();
    worklist.pop_back();
    if (reached[a]) continue;
    reached[a] = true;
    if (SplitsDims(array(a).sharding, axis)) continue;
    worklist.insert(worklist.end(), array(a).linear_users.begin(), array(a).linear_users.end());
  }
  return reached;
}

bool DataFlowGraph::AcceptsPartial(const Instruction& instruction, const AxisRef& axis) const {
  for (int64_t i = 0; i < instruction.operand_count(); ++i) {
    const Instruction* operand = instruction.operand(i);
    // A concatenation of slices reads the sliced array instead of the slice, and the sliced array may already be
    // reduced.
    if (instruction.opcode() == Opcode::kConcatenate && operand->opcode() == Opcode::kSlice) return false;
    if (!operand->shape().is_array() || !IsLinearIn(instruction, i) || IsZero(*operand)) continue;
    if (SplitsDims(array(First(operand)).sharding, axis)) return false;
  }
  return true;
}

int64_t DataFlowGraph::ReductionCost(const ArrayNode& array, const AxisRef& axis, bool scatters) const {
  const TensorSharding unreduced = WithUnreduced(array.sharding, {axis});
  const double elements = tensor::Product(LocalDims(array.shape->dims(), unreduced));
  const double bytes = CommunicationBytes(scatters ? Opcode::kReduceScatter : Opcode::kAllReduce,
                                          elements * static_cast<double>(tensor::ByteWidth(array.shape->type())),
                                          axis.size);
  return std::llround(std::min(array.runs * (bytes + kLatencyBytes), 1e14));
}

// The cut for one axis. Every array that partial sums can reach is an edge from the vertex of its op's operands to the
// vertex of its users. If the edge is cut, the array is reduced. The source is connected to ops that make partial sums,
// and vertices whose users need a reduced value are connected to the sink. A user that is split by the axis gets its
// shard of the sum by a reduce-scatter. Users with equal splits share one reduce-scatter.
class DataFlowGraph::Cut {
 public:
  Cut(const DataFlowGraph& graph, const AxisRef& axis) : graph_(graph), axis_(axis), vertex_(graph.arrays_.size(), -1) {
    const std::vector<bool> reached = graph.Reached(axis);
    for (size_t a = 0; a < reached.size(); ++a) {
      if (!reached[a]) continue;
      vertex_[a] = vertices_;
      vertices_ += 2;
    }
    for (size_t a = 0; a < vertex_.size(); ++a) {
      if (vertex_[a] >= 0) AddEdges(a);
    }
    FlowNetwork network(vertices_);
    for (const Edge& edge : edges_) network.AddEdge(edge.from, edge.to, edge.cost);
    partial_ = network.SourceSide(kSource, kSink);
  }

  // Whether the op of array `a` is computed on partial sums.
  bool OperandsArePartial(size_t a) const { return vertex_[a] >= 0 && partial_[vertex_[a]]; }
  // Whether the users of array `a` get a partial sum.
  bool ResultIsPartial(size_t a) const { return vertex_[a] >= 0 && partial_[vertex_[a] + 1]; }

 private:
  static constexpr int kSource = 0, kSink = 1;
  struct Edge {
    int from, to;
    int64_t cost;
  };

  void AddEdges(size_t a) {
    const ArrayNode& from = graph_.arrays_[a];
    const int in = vertex_[a], out = in + 1;
    if (MakesPartial(from, axis_)) edges_.push_back({kSource, in, FlowNetwork::kUncuttable});
    const bool split = SplitsDims(from.sharding, axis_);
    edges_.push_back({in, out, graph_.ReductionCost(from, axis_, split)});
    if (split) {  // Users get their shard of the sum.
      edges_.push_back({out, kSink, FlowNetwork::kUncuttable});
      return;
    }
    bool needed_reduced = from.needed_reduced || !from.sharding.unreduced.empty();
    std::vector<DimensionAxes> scattered;
    const auto add_reduced_use = [&](const ArrayNode& user) {
      if (hlo::IsElementwise(user.instruction->opcode()) && SplitsDims(user.sharding, axis_)) {
        scattered.push_back(DimensionAxesOf(user.sharding));
      } else {
        needed_reduced = true;
      }
    };
    for (const int u : from.elementwise_users) add_reduced_use(graph_.array(u));
    for (const int u : from.linear_users) {
      const ArrayNode& user = graph_.array(u);
      if (!MakesPartial(user, axis_) && graph_.AcceptsPartial(*user.instruction, axis_)) {
        edges_.push_back({out, vertex_[u], FlowNetwork::kUncuttable});
      } else {
        add_reduced_use(user);
      }
    }
    SortDistinct(&scattered);
    for (size_t i = 0; i < scattered.size(); ++i) {
      edges_.push_back({out, kSink, graph_.ReductionCost(from, axis_, true)});
    }
    if (needed_reduced) edges_.push_back({out, kSink, FlowNetwork::kUncuttable});
  }

  const DataFlowGraph& graph_;
  const AxisRef axis_;
  // By array: the vertex of its operands, or -1. The vertex of its users has the next number.
  std::vector<int> vertex_;
  int vertices_ = 2;
  std::vector<Edge> edges_;
  std::vector<bool> partial_;  // By vertex: whether it is on the source's side of the cut.
};

void DataFlowGraph::PlaceReductions(const AxisRef& axis, DeferredReductions* result) const {
  const Cut cut(*this, axis);
  for (size_t a = 0; a < arrays_.size(); ++a) {
    const Instruction* instruction = arrays_[a].instruction;
    if (cut.OperandsArePartial(a) && !MakesPartial(arrays_[a], axis)) {
      result->computed_on_partials[instruction].push_back(axis);
    }
    if (!cut.ResultIsPartial(a)) continue;
    const auto enter = [&](const Instruction* value) {
      std::vector<AxisList>& leaves = result->unreduced_results[value];
      leaves.resize(LeafCount(value->shape()));
      leaves[a - First(value)].push_back(axis);
    };
    enter(instruction);
    if (instruction->opcode() != Opcode::kWhile) continue;
    for (const hlo::Computation* called : instruction->called()) enter(called->parameter(0));
  }
}

}  // namespace

TensorSharding WithUnreduced(TensorSharding sharding, const AxisList& axes) {
  for (DimensionSharding& dim : sharding.dims) {
    for (size_t i = dim.axes.size(); i-- > 0;) {
      if (!OverlapsAny(dim.axes[i], axes)) continue;
      dim.axes.erase(dim.axes.begin() + i);
      if (i < dim.origins.size()) dim.origins.erase(dim.origins.begin() + i);
    }
  }
  sharding.unreduced.insert(sharding.unreduced.end(), axes.begin(), axes.end());
  std::sort(sharding.unreduced.begin(), sharding.unreduced.end());
  return sharding;
}

AxisList Without(const Mesh& mesh, const AxisList& axes, const AxisList& taken) {
  AxisCuts cuts;
  cuts.Add(axes);
  cuts.Add(taken);
  if (!cuts.Resolve(mesh)) return axes;
  AxisList rest;
  for (const AxisRef& axis : cuts.Cut(axes)) {
    if (!OverlapsAny(axis, taken)) rest.push_back(axis);
  }
  return rest;
}

std::vector<const Instruction*> LiveInstructions(const hlo::Computation& computation) {
  absl::flat_hash_set<const Instruction*> live;
  std::vector<const Instruction*> stack{computation.root()};
  for (const auto& instruction : computation.instructions()) {
    const bool is_needed = hlo::HasSideEffect(*instruction) || instruction->opcode() == Opcode::kParameter;
    if (is_needed) stack.push_back(instruction.get());
  }
  while (!stack.empty()) {
    const Instruction* at = stack.back();
    stack.pop_back();
    if (!live.insert(at).second) continue;
    for (const Instruction* operand : at->operands()) stack.push_back(operand);
  }
  std::vector<const Instruction*> order;
  for (const auto& instruction : computation.instructions()) {
    if (live.contains(instruction.get())) order.push_back(instruction.get());
  }
  return order;
}

DeferredReductions DeferReductions(const ShardedModule& module, const PartialSumAxesOf& partial_sum_axes) {
  DeferredReductions result;
  const DataFlowGraph graph(module, partial_sum_axes);
  for (const AxisRef& axis : graph.Axes()) graph.PlaceReductions(axis, &result);
  return result;
}

}  // namespace xlad::sharding
