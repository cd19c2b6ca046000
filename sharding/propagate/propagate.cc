#include "sharding/propagate/propagate.h"

#include <algorithm>
#include <set>

#include "base/containers.h"
#include "base/work.h"
#include "sharding/import/inline_calls.h"
#include "sharding/model/axes.h"
#include "sharding/propagate/constants.h"
#include "sharding/propagate/constraints.h"
#include "sharding/propagate/factor_propagation.h"
#include "sharding/propagate/flow_graph.h"
#include "sharding/propagate/projection.h"
#include "sharding/rules/rules.h"

namespace xlad::sharding {
namespace {

// The rounds of op priorities (Shardy's op-based propagation). The first two rounds include only ops through which
// propagation never causes communication. Forward propagation through broadcasts is in the last round, because a wrong
// choice there has the highest cost.
enum Round { kThroughSingleUse, kThrough, kPassThroughFactors, kAllButBroadcastForward, kEverything, kRounds };

Direction DirectionIn(Round round, const FlowNode& node, const Factor& factor) {
  Direction direction = Direction::Both();
  if (round <= kThrough) {
    if (node.kind == FlowNode::Kind::kForwardOnly)
      direction = Direction::Forward();
    else if (node.kind != FlowNode::Kind::kThrough)
      return {};
  } else {
    if (round == kPassThroughFactors && factor.kind != FactorKind::kPassThrough) return {};
    if (node.kind == FlowNode::Kind::kBroadcast && round != kEverything) direction = Direction::Backward();
  }
  const bool forward = node.allowed == BarrierDirection::kBoth || node.allowed == BarrierDirection::kForward;
  const bool backward = node.allowed == BarrierDirection::kBoth || node.allowed == BarrierDirection::kBackward;
  direction.to_results &= forward;
  direction.to_operands &= backward;
  return direction;
}

// Which array leaves of the entry's parameters are state (see PropagationOrder).
std::vector<bool> StateLeaves(const ShardedModule& module) {
  std::vector<bool> state;
  bool arrays = true;
  for (const hlo::Instruction* parameter : module.module->entry()->parameters()) {
    arrays &= parameter->shape().is_array();
    state.resize(state.size() + ArrayLeaves(parameter->shape()).size());
  }
  for (const Feed& feed : module.feeds) state[feed.parameter] = true;
  if (!arrays) return state;
  for (const hlo::InputOutputAlias& alias : module.module->input_output_alias) {
    const size_t parameter = alias.parameter;
    if (parameter < state.size()) state[parameter] = true;
  }
  return state;
}

class Propagator {
 public:
  Propagator(const ShardedModule& module, FlowGraph* graph) : module_(module), graph_(*graph) {}

  void Run(PropagationOrder order) {
    ApplyClosedConstraints(module_, &graph_);
    if (order == PropagationOrder::kStateLast) PostponeState();
    HideLaterPriorities();
    std::set<int> priorities = {0};
    for (const Hidden& hidden : hidden_) priorities.insert(hidden.sharding.priority);
    for (const int priority : priorities) {
      Show(priority);
      for (int round = 0; round < kRounds; ++round) {
        RunToFixpoint(static_cast<Round>(round));
      }
    }
    TrimBoundary();
  }

 private:
  struct Hidden {
    int value = 0;
    size_t dim = 0;
    DimensionSharding sharding;
  };

  FlowValue& value(int v) { return graph_.values[v]; }

  // Sets the priority of the state's annotations to 1.
  void PostponeState() {
    const std::vector<bool> state = StateLeaves(module_);
    for (size_t i = 0; i < state.size(); ++i) {
      if (!state[i]) continue;
      for (DimensionSharding& dim : value(graph_.parameters[i]).sharding.dims) {
        if (!dim.axes.empty()) dim.priority = 1;
      }
    }
  }

  // Hides the axes of dimensions with priorities above 0. Show restores them.
  void HideLaterPriorities() {
    for (int v = 0; v < std::ssize(graph_.values); ++v) {
      std::vector<DimensionSharding>& dims = graph_.values[v].sharding.dims;
      for (size_t d = 0; d < dims.size(); ++d) {
        if (dims[d].priority == 0) continue;
        hidden_.push_back({v, d, dims[d]});
        dims[d].axes.clear();
        dims[d].origins.clear();
      }
    }
  }

  // Appends the hidden axes of this priority to those that were propagated to the dimension, as far as the two are
  // compatible.
  void Show(int priority) {
    for (const Hidden& hidden : hidden_) {
      if (hidden.sharding.priority != priority || priority == 0) continue;
      TensorSharding& sharding = value(hidden.value).sharding;
      TensorProjection others;
      for (size_t d = 0; d < sharding.dims.size(); ++d) {
        if (d == hidden.dim) continue;
        others.taken.insert(others.taken.end(), sharding.dims[d].axes.begin(), sharding.dims[d].axes.end());
      }
      DimensionSharding& dim = sharding.dims[hidden.dim];
      const ListComparison both = Compare(dim.axes, hidden.sharding.axes);
      if (!both.rest_a.empty()) continue;
      for (size_t i = 0; i < both.rest_b.size(); ++i) {
        const AxisRef free = others.Free(both.rest_b[i], -1);
        if (free.size == 1) break;
        if (!AppendAxis(free, &dim.axes)) dim.origins.push_back(hidden.sharding.origins[both.whole_b + i]);
        if (free != both.rest_b[i]) break;
      }
    }
  }

  // Alternates between forward and backward sweeps over the worklist until it is empty. The worklist is the set of
  // nodes whose values changed since their last visit.
  void RunToFixpoint(Round round) {
    NodeContext context;
    context.module = module_.module.get();
    context.direction = [round](const FlowNode& node, const Factor& factor) {
      return DirectionIn(round, node, factor);
    };
    context.may_change_operand = [round](const FlowNode&, const FlowValue& operand) {
      return round != kThroughSingleUse || operand.uses == 1;
    };
    std::vector<bool> dirty(graph_.nodes.size(), true);
    bool any = true;
    for (bool forward = true; any; forward = !forward) {
      any = false;
      for (size_t i = 0; i < dirty.size(); ++i) {
        const size_t n = forward ? i : dirty.size() - 1 - i;
        if (!dirty[n]) continue;
        dirty[n] = false;
        for (const int v : PropagateAt(context, graph_.nodes[n], &graph_.values)) {
          for (const int user : value(v).nodes) dirty[user] = true;
          any = true;
        }
      }
    }
  }

  // Parameters and results without an annotation are split evenly and by full axes only.
  void TrimBoundary() {
    for (const std::vector<int>* boundary : {&graph_.parameters, &graph_.results}) {
      for (const int v : *boundary) {
        if (!value(v).annotated) Trim(&value(v));
      }
    }
  }

  void Trim(FlowValue* value) const {
    for (size_t d = 0; d < value->sharding.dims.size(); ++d) {
      DimensionSharding& dim = value->sharding.dims[d];
      int64_t shards = 1;
      size_t kept = 0;
      for (; kept < dim.axes.size(); ++kept) {
        shards *= dim.axes[kept].size;
        if ((*value->dims)[d] % shards != 0 || dim.axes[kept] != module_.mesh.Whole(dim.axes[kept].axis)) break;
      }
      dim.axes.resize(kept);
      dim.origins.resize(kept);
    }
  }

  const ShardedModule& module_;
  FlowGraph& graph_;
  std::vector<Hidden> hidden_;
};

// Marks the sharding as final.
void Close(FlowValue* value) {
  std::erase_if(value->sharding.replicated, [&](const AxisRef& axis) { return Contains(value->manual, axis); });
  for (DimensionSharding& dim : value->sharding.dims) {
    dim.closed = true;
    dim.priority = 0;
    dim.origins.resize(dim.axes.size());
  }
}

}  // namespace

bool OrderCanMatter(const ShardedModule& imported) {
  for (const auto& [instruction, shardings] : imported.shardings) {
    for (const TensorSharding& sharding : shardings) {
      for (const DimensionSharding& dim : sharding.dims) {
        if (dim.priority > 0) return false;
      }
    }
  }
  const std::vector<bool> state = StateLeaves(imported);
  AxisList of_state, of_data;  // The annotated axes of state and data.
  for (const auto& [instruction, shardings] : imported.shardings) {
    if (instruction->opcode() != hlo::Opcode::kCopy) continue;  // Copies are constraints.
    for (const DimensionSharding& dim : shardings[0].dims) {
      of_data.insert(of_data.end(), dim.axes.begin(), dim.axes.end());
    }
  }
  size_t first = 0;
  for (const hlo::Instruction* parameter : imported.module->entry()->parameters()) {
    const auto annotated = imported.shardings.find(parameter);
    const size_t count = ArrayLeaves(parameter->shape()).size();
    for (size_t i = 0; annotated != imported.shardings.end() && i < count; ++i) {
      AxisList& axes = state[first + i] ? of_state : of_data;
      for (const DimensionSharding& dim : annotated->second[i].dims) {
        axes.insert(axes.end(), dim.axes.begin(), dim.axes.end());
      }
    }
    first += count;
  }
  return std::any_of(of_data.begin(), of_data.end(), [&](const AxisRef& axis) {
    return std::any_of(of_state.begin(), of_state.end(), [&](const AxisRef& other) { return other.axis == axis.axis; });
  });
}

absl::Status Propagate(ShardedModule* module, PropagationOrder order) {
  RouteThroughConstraints(module);
  const CloneMap clones = SplitConstants(module);
  XLAD_ASSIGN_OR_RETURN(FlowGraph graph, FlowGraph::Build(*module));
  if (module->mesh.devices() > 1) Propagator(*module, &graph).Run(order);
  for (FlowValue& value : graph.values) Close(&value);
  module->shardings.clear();
  for (const hlo::Computation* computation : FlowComputations(*module->module)) {
    for (const auto& instruction : computation->instructions()) {
      ValueSharding& shardings = module->shardings[instruction.get()];
      const size_t leaves = CountArrayLeaves(instruction->shape());
      CountWork(leaves);
      for (size_t leaf = 0; leaf < leaves; ++leaf) {
        shardings.push_back(graph.values[graph.ValueOf(instruction.get(), leaf)].sharding);
      }
    }
  }
  module->results.clear();
  for (const int v : graph.results) module->results.push_back(graph.values[v].sharding);
  MergeConstants(module, clones);
  return absl::OkStatus();
}

}  // namespace xlad::sharding
