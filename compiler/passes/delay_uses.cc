#include "compiler/passes/delay_uses.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <set>
#include <tuple>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "compiler/analysis/collective_spec.h"
#include "compiler/analysis/overlap_cost.h"

namespace xlad::compiler {
namespace {

using Order = std::vector<Instruction*>;

constexpr size_t kNumNetworks = std::size(kNetworks);

// An instruction. Instructions are numbered by their positions in the given order.
struct Node {
  std::vector<size_t> inputs, dependents;
  bool is_collective = false;
  // One element for each network.
  std::array<double, kNumNetworks> ns{};    // The time of the instruction.
  std::array<double, kNumNetworks> path{};  // The time of the instruction and its longest chain of dependents.
};

std::vector<Node> MakeNodes(const Order& order, const VisitInputs& visit) {
  absl::flat_hash_map<const Instruction*, size_t> position;
  for (size_t i = 0; i < order.size(); ++i) position[order[i]] = i;
  std::vector<Node> nodes(order.size());
  for (size_t i = 0; i < order.size(); ++i) {
    absl::flat_hash_set<size_t> inputs;
    visit(order[i], [&](Instruction* input) { inputs.insert(position.at(input)); });
    nodes[i].inputs.assign(inputs.begin(), inputs.end());
    for (const size_t input : inputs) nodes[input].dependents.push_back(i);
  }
  return nodes;
}

// Finds the times of all instructions. Returns whether there is a collective to wait for.
absl::StatusOr<bool> Estimate(const Order& order, int64_t devices, std::vector<Node>* nodes) {
  bool any = false;
  for (size_t i = 0; i < order.size(); ++i) {
    Node& node = (*nodes)[i];
    node.is_collective = hlo::IsCollective(order[i]->opcode());
    if (!node.is_collective) {
      node.ns.fill(ComputeNs(*order[i]));
      continue;
    }
    XLAD_ASSIGN_OR_RETURN(const auto groups, DeviceGroups(*order[i], devices));
    const int64_t ranks = groups.empty() ? 2 : std::ssize(groups[0]);
    if (ranks < 2) continue;
    for (size_t n = 0; n < kNumNetworks; ++n) node.ns[n] = TransferNs(*order[i], ranks, kNetworks[n]);
    any = true;
  }
  for (size_t i = order.size(); i-- > 0;) {
    Node& node = (*nodes)[i];
    for (size_t n = 0; n < kNumNetworks; ++n) {
      for (const size_t next : node.dependents) node.path[n] = std::max(node.path[n], (*nodes)[next].path[n]);
      node.path[n] += node.ns[n];
    }
  }
  return any;
}

// Simulates the execution of instructions, one at a time, with collectives on one of the networks.
class Timeline {
 public:
  Timeline(const std::vector<Node>& nodes, size_t network)
      : nodes_(nodes), network_(network), ready_ns_(nodes.size()), pending_(nodes.size()) {
    for (size_t i = 0; i < nodes.size(); ++i) pending_[i] = std::ssize(nodes[i].inputs);
  }

  // Returns the simulated time of an order. Either NsOf or Schedule may be called, and only once.
  double NsOf(const std::vector<size_t>& positions) {
    for (const size_t i : positions) {
      now_ = std::max(now_, ready_ns_[i]);
      Execute(i);
    }
    return std::max(now_, network_free_);
  }

  // Returns the positions of the instructions in the order of list scheduling. Among the instructions that can run,
  // collectives are first. The next criterion is the longest path if `by_path`, otherwise the lowest position.
  std::vector<size_t> Schedule(bool by_path) {
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (pending_[i] == 0) held_.insert({0, i});
    }
    std::set<std::tuple<int, double, size_t>> ready;
    std::vector<size_t> result;
    while (!ready.empty() || !held_.empty()) {
      if (ready.empty()) now_ = std::max(now_, held_.begin()->first);
      while (!held_.empty() && held_.begin()->first <= now_) {
        const size_t i = held_.begin()->second;
        held_.erase(held_.begin());
        ready.insert({nodes_[i].is_collective ? 0 : 1, by_path ? -nodes_[i].path[network_] : 0, i});
      }
      const size_t i = std::get<2>(*ready.begin());
      ready.erase(ready.begin());
      result.push_back(i);
      Execute(i);
    }
    return result;
  }

 private:
  void Execute(size_t i) {
    const Node& node = nodes_[i];
    double end = 0;
    if (node.is_collective) {
      network_free_ = std::max(network_free_, now_) + node.ns[network_];
      end = network_free_;
    } else {
      now_ += node.ns[network_];
      end = now_;
    }
    for (const size_t next : node.dependents) {
      ready_ns_[next] = std::max(ready_ns_[next], end);
      if (--pending_[next] == 0) held_.insert({ready_ns_[next], next});
    }
  }

  const std::vector<Node>& nodes_;
  const size_t network_;
  std::vector<double> ready_ns_;  // For each instruction, the time at which all of its inputs are computed.
  std::vector<int64_t> pending_;  // For each instruction, the number of inputs that have not been executed.
  double now_ = 0, network_free_ = 0;
  std::set<std::pair<double, size_t>> held_;  // Instructions without pending inputs, by ready_ns_.
};

}  // namespace

absl::StatusOr<std::vector<Order>> DelayUses(const Order& order, const VisitInputs& inputs, int64_t devices) {
  const bool has_collective =
      std::any_of(order.begin(), order.end(), [](const Instruction* at) { return hlo::IsCollective(at->opcode()); });
  if (!has_collective) return std::vector<Order>();
  std::vector<Node> nodes = MakeNodes(order, inputs);
  XLAD_ASSIGN_OR_RETURN(const bool any, Estimate(order, devices, &nodes));
  if (!any) return std::vector<Order>();
  std::vector<size_t> given(order.size());
  std::iota(given.begin(), given.end(), 0);
  std::array<double, kNumNetworks> given_ns{};
  for (size_t n = 0; n < kNumNetworks; ++n) given_ns[n] = Timeline(nodes, n).NsOf(given);
  const auto relative = [&](const std::vector<size_t>& positions) {
    double sum = 0;
    for (size_t n = 0; n < kNumNetworks; ++n) sum += Timeline(nodes, n).NsOf(positions) / given_ns[n];
    return sum / static_cast<double>(kNumNetworks);
  };
  std::vector<std::pair<double, Order>> faster;
  for (size_t network = 0; network < kNumNetworks; ++network) {
    for (const bool by_path : {false, true}) {
      const std::vector<size_t> positions = Timeline(nodes, network).Schedule(by_path);
      const double time = relative(positions);
      if (time >= 1) continue;
      Order& made = faster.emplace_back(time, Order()).second;
      for (const size_t i : positions) made.push_back(order[i]);
    }
  }
  std::stable_sort(faster.begin(), faster.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Order> result;
  for (auto& [time, made] : faster) result.push_back(std::move(made));
  return result;
}

}  // namespace xlad::compiler
