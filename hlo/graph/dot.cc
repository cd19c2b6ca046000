// A module as a Graphviz graph: a cluster for each computation, inside the cluster of its first caller.
#include "absl/strings/str_cat.h"
#include "hlo/graph/graph.h"
#include "hlo/graph/drawing.h"

namespace xlad::hlo {
namespace {

constexpr int kMaxNesting = 40;  // Deeper clusters are placed next to the others, not inside them.

class DotPrinter {
 public:
  explicit DotPrinter(const Module& module) : module_(module) {}

  std::string Print() {
    absl::StrAppend(&out_, "digraph \"", EscapeXml(module_.name()),
                    "\" {\n  compound=true;\n  node [shape=box, style=filled, fillcolor=white, fontname=\"monospace\", "
                    "fontsize=10];\n  edge [fontname=\"monospace\", fontsize=8];\n");
    for (auto it = module_.computations().rbegin(); it != module_.computations().rend(); ++it) {
      if (!clusters_.contains(it->get())) AddCluster(**it, 1);
    }
    for (const Instruction* const caller : callers_) AddCalls(*caller);
    absl::StrAppend(&out_, "}\n");
    return std::move(out_);
  }

 private:
  struct Cluster {
    int number = 0;
    int anchor = -1;  // The number of a node in the cluster.
  };

  std::string Indent(int depth) const { return std::string(2 * depth, ' '); }

  void AddCluster(const Computation& computation, int depth) {
    const int number = std::ssize(clusters_);
    clusters_[&computation] = {number, next_node_};
    const std::string indent = Indent(depth), inner = Indent(depth + 1);
    absl::StrAppend(&out_, indent, "subgraph cluster_", number, " {\n", inner, "label=\"",
                    EscapeXml(computation.name()), &computation == module_.entry() ? " (entry)" : "", "\";\n", inner,
                    "style=rounded;\n");
    const size_t limit = std::min(kMaxDrawnPerComputation, left_);
    const std::vector<const Instruction*> drawn = InstructionsToDraw(computation, limit);
    left_ -= drawn.size();
    std::vector<const Instruction*> callers;
    for (const Instruction* const instruction : drawn) {
      AddNode(*instruction, inner);
      if (!instruction->called().empty()) callers.push_back(instruction);
    }
    const size_t elided = computation.instructions().size() - drawn.size();
    if (elided > 0) {
      absl::StrAppend(&out_, inner, "n", next_node_++, " [shape=plain, style=\"\", label=\"", elided,
                      " instructions are not drawn\"];\n");
    }
    for (const Instruction* const caller : callers) {
      for (const Computation* const called : caller->called()) {
        if (depth < kMaxNesting && !clusters_.contains(called)) AddCluster(*called, depth + 1);
      }
    }
    absl::StrAppend(&out_, indent, "}\n");
    callers_.insert(callers_.end(), callers.begin(), callers.end());
  }

  void AddNode(const Instruction& instruction, const std::string& indent) {
    const int node = next_node_++;
    nodes_[&instruction] = node;
    const std::string sharding = Shortened(ShardingText(instruction), kMaxShardingLength);
    absl::StrAppend(&out_, indent, "n", node, " [label=<<b>", ToString(instruction.opcode()), "</b><br/>",
                    EscapeXml(instruction.name()), "<br/>",
                    EscapeXml(Shortened(instruction.shape().ToString(false), kMaxShapeLength)),
                    sharding.empty() ? "" : absl::StrCat("<br/><i>", EscapeXml(sharding), "</i>"), ">, fillcolor=\"",
                    ClassOf(instruction).color, "\"",
                    &instruction == instruction.parent()->root() ? ", penwidth=3" : "", "];\n");
    for (const Instruction* const operand : instruction.operands()) {
      const auto from = nodes_.find(operand);
      if (from == nodes_.end()) continue;
      absl::StrAppend(&out_, indent, "n", from->second, " -> n", node, " [label=\"",
                      EscapeXml(Shortened(operand->shape().ToString(false), kMaxShapeLength)), "\"];\n");
    }
  }

  // Called last, because all clusters must be known, and a node belongs to the cluster that mentions it first.
  void AddCalls(const Instruction& caller) {
    for (const Computation* const called : caller.called()) {
      const auto found = clusters_.find(called);
      if (found == clusters_.end()) continue;
      absl::StrAppend(&out_, "  n", nodes_.at(&caller), " -> n", found->second.anchor,
                      " [style=dashed, constraint=false, lhead=cluster_", found->second.number,
                      ", label=\"calls\"];\n");
    }
  }

  const Module& module_;
  std::string out_;
  std::vector<const Instruction*> callers_;  // The drawn instructions that call computations.
  absl::flat_hash_map<const Computation*, Cluster> clusters_;
  absl::flat_hash_map<const Instruction*, int> nodes_;
  int next_node_ = 0;
  size_t left_ = kMaxDrawn;
};

}  // namespace

std::string PrintDot(const Module& module) { return DotPrinter(module).Print(); }

}  // namespace xlad::hlo
