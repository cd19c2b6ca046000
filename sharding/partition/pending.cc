#include "sharding/partition/pending.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "absl/container/flat_hash_set.h"
#include "hlo/analysis/leaves.h"
#include "hlo/analysis/trip_count.h"
#include "sharding/model/axes.h"
#include "sharding/partition/min_cut.h"
#include "sharding/rules/linear.h"
#include "sharding/rules/rules.h"

namespace xlad::sharding {
namespace {

using hlo::Instruction;
using hlo::Opcode;

// What a collective costs besides its bytes, in bytes: one of two equal ways that needs fewer of them is better.
constexpr double kBytesOfLatency = 1024;

// One array of the program.
struct Value {
  const Instruction* instruction = nullptr;
  TensorSharding sharding;
  const hlo::Shape* shape = nullptr;
  double runs = 1;
  AxisList partial;              // Of the op itself.
  std::vector<int> users;        // That are linear in it.
  std::vector<int> elementwise;  // Users that are not, and work element by element.
  bool needed = false;           // Whole, by something else.
};

bool DimsUse(const TensorSharding& sharding, const AxisRef& axis) {
  return std::any_of(sharding.dims.begin(), sharding.dims.end(),
                     [&](const DimensionSharding& dim) { return OverlapsAny(axis, dim.axes); });
}

bool IsPartial(const Value& value, const AxisRef& axis) {
  return std::find(value.partial.begin(), value.partial.end(), axis) != value.partial.end();
}

class Graph {
 public:
  Graph(const ShardedModule& module, const PartialAxesOf& partial) : module_(module), partial_(partial) {
    Visit(*module.module->entry(), 1);
    AddUsers(*module.module->entry());
    for (int v : Root(*module.module->entry())) value(v).needed = true;
  }

  // The axes of all partial results, those left out that lie across each other.
  std::vector<AxisRef> Axes() const;
  void Place(const AxisRef& axis, PendingSums* result) const;

 private:
  class Cut;

  Value& value(int v) { return values_[v]; }
  const Value& value(int v) const { return values_[v]; }
  int First(const Instruction* instruction) const { return first_.at(instruction); }
  std::vector<int> Root(const hlo::Computation& computation) const {
    std::vector<int> leaves;
    for (size_t i = 0; i < CountArrayLeaves(computation.root()->shape()); ++i) {
      leaves.push_back(First(computation.root()) + static_cast<int>(i));
    }
    return leaves;
  }

  void Visit(const hlo::Computation& computation, double runs);
  void Enter(const Instruction& instruction, double runs);
  void AddUsers(const hlo::Computation& computation);
  void AddUse(const Instruction& user, int64_t operand);
  // Whether an op can be computed on parts of a sum along `axis`: nothing that it adds up is split by it.
  bool Accepts(const Instruction& instruction, const AxisRef& axis) const;
  std::vector<bool> Reached(const AxisRef& axis) const;
  // Of an all-reduce, or of a reduce-scatter.
  int64_t Cost(const Value& value, const AxisRef& axis, bool scatters) const;

  const ShardedModule& module_;
  const PartialAxesOf& partial_;
  std::vector<Value> values_;
  absl::flat_hash_map<const Instruction*, int> first_;
};

void Graph::Enter(const Instruction& instruction, double runs) {
  first_[&instruction] = static_cast<int>(values_.size());
  const auto found = module_.shardings.find(&instruction);
  const auto leaves = ArrayLeaves(instruction.shape());
  for (size_t i = 0; i < leaves.size(); ++i) {
    Value value;
    value.instruction = &instruction;
    value.shape = leaves[i];
    value.runs = runs;
    value.sharding = found != module_.shardings.end() && i < found->second.size()
                         ? found->second[i]
                         : TensorSharding::Replicated(leaves[i]->ndim());
    if (instruction.shape().is_array() && value.sharding.unreduced.empty()) value.partial = partial_(instruction);
    values_.push_back(std::move(value));
  }
}

void Graph::Visit(const hlo::Computation& computation, double runs) {
  for (const Instruction* instruction : LiveInstructions(computation)) {
    if (!first_.contains(instruction)) Enter(*instruction, runs);
    if (instruction->opcode() == Opcode::kWhile) {
      // Carried values are the same thing before, in and after the loop.
      const double inner = runs * static_cast<double>(TripCountOrAssumed(*instruction));
      for (int v = First(instruction); v < std::ssize(values_); ++v) value(v).runs = inner;
      for (const hlo::Computation* called : instruction->called()) {
        first_[called->parameter(0)] = First(instruction);
        Visit(*called, inner);
      }
    } else if (instruction->opcode() == Opcode::kConditional) {
      for (const hlo::Computation* called : instruction->called()) Visit(*called, runs);
    }
  }
}

// How `user` uses the leaves of an operand.
void Graph::AddUse(const Instruction& user, int64_t operand) {
  const Instruction* used = user.operand(operand);
  const int from = First(used), count = static_cast<int>(CountArrayLeaves(used->shape()));
  int to = -1, begin = 0, end = count;
  switch (user.opcode()) {
    case Opcode::kTuple:
      to = First(&user);
      for (int64_t i = 0; i < operand; ++i) to += static_cast<int>(CountArrayLeaves(user.operand(i)->shape()));
      break;
    case Opcode::kGetTupleElement:
      for (int64_t i = 0; i < user.number(); ++i) {
        begin += static_cast<int>(CountArrayLeaves(used->shape().tuple()[i]));
      }
      end = begin + static_cast<int>(CountArrayLeaves(user.shape()));
      to = First(&user);
      break;
    case Opcode::kWhile:
    case Opcode::kCopy:
    case Opcode::kOptBarrier: to = First(&user); break;
    default:
      if (IsLinearIn(user, operand)) {
        to = First(&user);
      } else if (hlo::IsElementwise(user.opcode()) && used->shape().dims() == user.shape().dims()) {
        value(from).elementwise.push_back(First(&user));
        return;
      }
  }
  for (int leaf = begin; leaf < end; ++leaf) {
    if (to < 0) value(from + leaf).needed = true;
    else value(from + leaf).users.push_back(to + leaf - begin);
  }
}

void Graph::AddUsers(const hlo::Computation& computation) {
  for (const Instruction* instruction : LiveInstructions(computation)) {
    for (int64_t i = 0; i < instruction->operand_count(); ++i) AddUse(*instruction, i);
    if (instruction->opcode() != Opcode::kWhile && instruction->opcode() != Opcode::kConditional) continue;
    for (size_t c = 0; c < instruction->called().size(); ++c) {
      const hlo::Computation& called = *instruction->called()[c];
      AddUsers(called);
      const bool body = instruction->opcode() == Opcode::kWhile && c == 1;
      const std::vector<int> root = Root(called);
      for (size_t leaf = 0; leaf < root.size(); ++leaf) {
        if (body) value(root[leaf]).users.push_back(First(instruction) + static_cast<int>(leaf));
        else value(root[leaf]).needed = true;
      }
    }
  }
}

std::vector<AxisRef> Graph::Axes() const {
  std::set<AxisRef> all;
  for (const Value& value : values_) all.insert(value.partial.begin(), value.partial.end());
  std::vector<AxisRef> alone;
  for (const AxisRef& axis : all) {
    const bool crossed = std::any_of(all.begin(), all.end(), [&](const AxisRef& other) {
      return other != axis && Overlap(axis, other);
    });
    if (!crossed) alone.push_back(axis);
  }
  return alone;
}

std::vector<bool> Graph::Reached(const AxisRef& axis) const {
  std::vector<bool> reached(values_.size(), false);
  std::vector<int> stack;
  for (size_t v = 0; v < values_.size(); ++v) {
    if (IsPartial(values_[v], axis)) stack.push_back(static_cast<int>(v));
  }
  while (!stack.empty()) {
    const int v = stack.back();
    stack.pop_back();
    if (reached[v]) continue;
    reached[v] = true;
    if (DimsUse(value(v).sharding, axis)) continue;
    stack.insert(stack.end(), value(v).users.begin(), value(v).users.end());
  }
  return reached;
}

bool Graph::Accepts(const Instruction& instruction, const AxisRef& axis) const {
  for (int64_t i = 0; i < instruction.operand_count(); ++i) {
    const Instruction* operand = instruction.operand(i);
    // Its parts are taken from what is sliced, which may be whole.
    if (instruction.opcode() == Opcode::kConcatenate && operand->opcode() == Opcode::kSlice) return false;
    if (!operand->shape().is_array() || !IsLinearIn(instruction, i) || IsZero(*operand)) continue;
    if (DimsUse(value(First(operand)).sharding, axis)) return false;
  }
  return true;
}

// Twice the bytes for an all-reduce, once for a reduce-scatter; in both (n-1)/n of them.
int64_t Graph::Cost(const Value& value, const AxisRef& axis, bool scatters) const {
  const TensorSharding pending = Pending(value.sharding, {axis});
  const double elements = static_cast<double>(tensor::Product(LocalDims(value.shape->dims(), pending)));
  const double bytes = elements * static_cast<double>(tensor::ByteWidth(value.shape->type()));
  return std::llround(std::min(value.runs * ((scatters ? 1 : 2) * bytes + kBytesOfLatency), 1e14));
}

// Every value is an edge from its operands' side to its users' side; cutting it is reducing there. A user that is split
// by the axis itself takes its part of the sum by a reduce-scatter of its own, which other users split alike share.
class Graph::Cut {
 public:
  Cut(const Graph& graph, const AxisRef& axis) : graph_(graph), axis_(axis), node_(graph.values_.size(), -1) {
    const std::vector<bool> reached = graph.Reached(axis);
    for (size_t v = 0; v < reached.size(); ++v) {
      if (!reached[v]) continue;
      node_[v] = nodes_;
      nodes_ += 2;
    }
    for (size_t v = 0; v < node_.size(); ++v) {
      if (node_[v] >= 0) Add(v);
    }
    FlowNetwork network(nodes_);
    for (const Edge& edge : edges_) network.AddEdge(edge.from, edge.to, edge.cost);
    waits_ = network.SourceSide(kSource, kSink);
  }

  // Whether the op computes on, and whether it passes on, parts of a sum.
  bool In(size_t v) const { return node_[v] >= 0 && waits_[node_[v]]; }
  bool Out(size_t v) const { return node_[v] >= 0 && waits_[static_cast<size_t>(node_[v]) + 1]; }

 private:
  static constexpr int kSource = 0, kSink = 1;
  struct Edge {
    int from, to;
    int64_t cost;
  };

  void Add(size_t v) {
    const Value& from = graph_.values_[v];
    const int in = node_[v], out = in + 1;
    if (IsPartial(from, axis_)) edges_.push_back({kSource, in, FlowNetwork::kUncuttable});
    const bool split = DimsUse(from.sharding, axis_);
    edges_.push_back({in, out, graph_.Cost(from, axis_, split)});
    if (split) {  // Users get their part of the sum.
      edges_.push_back({out, kSink, FlowNetwork::kUncuttable});
      return;
    }
    bool needed = from.needed || !from.sharding.unreduced.empty();
    std::vector<DimensionAxes> scattered;
    const auto add_whole = [&](const Value& user) {
      if (hlo::IsElementwise(user.instruction->opcode()) && DimsUse(user.sharding, axis_)) {
        scattered.push_back(DimensionAxesOf(user.sharding));
      } else {
        needed = true;
      }
    };
    for (const int u : from.elementwise) add_whole(graph_.value(u));
    for (const int u : from.users) {
      const Value& user = graph_.value(u);
      if (!IsPartial(user, axis_) && graph_.Accepts(*user.instruction, axis_)) {
        edges_.push_back({out, node_[u], FlowNetwork::kUncuttable});
      } else {
        add_whole(user);
      }
    }
    std::sort(scattered.begin(), scattered.end());
    scattered.erase(std::unique(scattered.begin(), scattered.end()), scattered.end());
    for (size_t i = 0; i < scattered.size(); ++i) edges_.push_back({out, kSink, graph_.Cost(from, axis_, true)});
    if (needed) edges_.push_back({out, kSink, FlowNetwork::kUncuttable});
  }

  const Graph& graph_;
  const AxisRef axis_;
  std::vector<int> node_;  // By value: where operands come in; one more is where users take it. -1: never partial.
  int nodes_ = 2;
  std::vector<Edge> edges_;
  std::vector<bool> waits_;
};

void Graph::Place(const AxisRef& axis, PendingSums* result) const {
  const Cut cut(*this, axis);
  for (size_t v = 0; v < values_.size(); ++v) {
    const Instruction* instruction = values_[v].instruction;
    if (cut.In(v) && !IsPartial(values_[v], axis)) result->operands[instruction].push_back(axis);
    if (!cut.Out(v)) continue;
    const auto enter = [&](const Instruction* at) {
      std::vector<AxisList>& leaves = result->results[at];
      leaves.resize(CountArrayLeaves(at->shape()));
      leaves[v - static_cast<size_t>(First(at))].push_back(axis);
    };
    enter(instruction);
    if (instruction->opcode() != Opcode::kWhile) continue;
    for (const hlo::Computation* called : instruction->called()) enter(called->parameter(0));
  }
}

}  // namespace

TensorSharding Pending(TensorSharding sharding, const AxisList& axes) {
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
    const bool effect = (hlo::Flags(instruction->opcode()) & hlo::kSideEffect) != 0 ||
                        instruction->attributes().has_side_effect;
    if (effect || instruction->opcode() == Opcode::kParameter) stack.push_back(instruction.get());
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

PendingSums PlacePendingSums(const ShardedModule& module, const PartialAxesOf& partial) {
  PendingSums result;
  const Graph graph(module, partial);
  for (const AxisRef& axis : graph.Axes()) graph.Place(axis, &result);
  return result;
}

}  // namespace xlad::sharding
