#include "compiler/passes/order.h"

#include <algorithm>
#include <set>

#include "absl/container/flat_hash_set.h"
#include "compiler/analysis/donation.h"
#include "compiler/analysis/hlo_util.h"
#include "compiler/analysis/trip_count.h"

namespace xlad::compiler {
namespace {

using Sequence = std::vector<Instruction*>;

bool IsTransparent(const Instruction& instruction) {
  switch (instruction.opcode()) {
    case Opcode::kTuple:
    case Opcode::kGetTupleElement:
    case Opcode::kParameter:
    case Opcode::kConstant:
    case Opcode::kReshape:
      return true;
    default:
      return false;
  }
}

int64_t OwnBytes(const Instruction& instruction) {
  return IsTransparent(instruction) ? 0 : instruction.shape().bytes();
}

// The instructions whose buffers a value stands in, looking through tuples and reshapes.
void Sources(Instruction* value, std::vector<Instruction*>* sources) {
  if (!IsTransparent(*value) || value->operand_count() == 0) {
    sources->push_back(value);
    return;
  }
  for (Instruction* operand : value->operands()) Sources(operand, sources);
}

// (earlier, later) pairs besides data: readers of a value before what takes its place.
using Edges = absl::flat_hash_map<const Instruction*, std::vector<Instruction*>>;  // later -> earlier

class Graph {
 public:
  explicit Graph(Computation* computation) : computation_(computation), all_(Snapshot(*computation)) {
    for (size_t i = 0; i < all_.size(); ++i) position_[all_[i]] = i;
  }

  // Whether `to` needs `from` (through operands, control and edges).
  bool Reaches(Instruction* from, Instruction* to) {
    std::vector<Instruction*> pending = {to};
    absl::flat_hash_set<Instruction*> seen;
    while (!pending.empty()) {
      Instruction* at = pending.back();
      pending.pop_back();
      if (at == from) return true;
      if (!seen.insert(at).second) continue;
      ForEachInput(at, [&](Instruction* input) { pending.push_back(input); });
    }
    return false;
  }

  // Makes `writer` wait for the readers of `value`, where that makes no cycle.
  void ReadersFirst(Instruction* value, Instruction* writer) {
    std::vector<Instruction*> readers(value->users().begin(), value->users().end());
    for (Instruction* reader : readers) {
      if (reader == writer || reader == computation_->root()) continue;
      if (IsTransparent(*reader)) {
        ReadersFirst(reader, writer);
      } else if (!Reaches(writer, reader)) {
        edges_[writer].push_back(reader);
      }
    }
  }

  template <typename Visit>
  void ForEachInput(Instruction* at, const Visit& visit) const {
    for (Instruction* operand : at->operands()) visit(operand);
    for (Instruction* before : at->control_predecessors()) visit(before);
    auto found = edges_.find(at);
    if (found == edges_.end()) return;
    for (Instruction* before : found->second) visit(before);
  }

  const std::vector<Instruction*>& all() const { return all_; }
  size_t position(const Instruction* at) const { return position_.at(at); }

 private:
  Computation* computation_;
  std::vector<Instruction*> all_;
  absl::flat_hash_map<const Instruction*, size_t> position_;
  Edges edges_;
};

// Takes ready instructions one by one: collectives first, then what changes memory least, then program order.
class ListSchedule {
 public:
  ListSchedule(const Graph& graph, bool by_memory) : graph_(graph), by_memory_(by_memory) {
    for (Instruction* at : graph.all()) {
      std::vector<Instruction*> sources;
      for (Instruction* operand : at->operands()) Sources(operand, &sources);
      std::sort(sources.begin(), sources.end());
      sources.erase(std::unique(sources.begin(), sources.end()), sources.end());
      if (!IsTransparent(*at)) {
        for (Instruction* source : sources) readers_[source].push_back(at);
        reads_[at] = std::move(sources);
      }
      absl::flat_hash_set<Instruction*> inputs;
      graph.ForEachInput(at, [&](Instruction* input) { inputs.insert(input); });
      waits_for_[at] = std::ssize(inputs);
      for (Instruction* input : inputs) unblocks_[input].push_back(at);
    }
    for (const auto& [source, readers] : readers_) unread_[source] = std::ssize(readers);
  }

  Sequence Run() {
    for (Instruction* at : graph_.all()) {
      if (waits_for_[at] == 0) Enter(at);
    }
    Sequence order;
    while (!ready_.empty()) {
      Instruction* at = ready_.begin()->at;
      ready_.erase(ready_.begin());
      order.push_back(at);
      Account(at);
      for (Instruction* next : unblocks_[at]) {
        if (--waits_for_[next] == 0) Enter(next);
      }
    }
    return order;
  }
  int64_t peak() const { return peak_; }

 private:
  struct Entry {
    int rank;
    int64_t cost;
    size_t position;
    Instruction* at;
    bool operator<(const Entry& other) const {
      return std::tie(rank, cost, position) < std::tie(other.rank, other.cost, other.position);
    }
  };

  Entry Make(Instruction* at) {
    int64_t cost = 0;
    if (by_memory_) {
      cost = OwnBytes(*at);
      for (Instruction* source : reads_[at]) {
        if (unread_[source] == 1) cost -= OwnBytes(*source);
      }
    }
    const int rank = IsTransparent(*at) ? 0 : hlo::IsCollective(at->opcode()) ? 1 : 2;
    return {rank, rank == 0 ? 0 : cost, graph_.position(at), at};
  }
  void Enter(Instruction* at) {
    Entry entry = Make(at);
    ready_.insert(entry);
    entered_[at] = entry;
  }

  void Account(Instruction* at) {
    entered_.erase(at);
    now_ += OwnBytes(*at);
    peak_ = std::max(peak_, now_);
    for (Instruction* source : reads_[at]) {
      const int64_t left = --unread_[source];
      if (left == 0) now_ -= OwnBytes(*source);
      if (left != 1 || !by_memory_) continue;
      // The one reader that is left now frees it.
      for (Instruction* reader : readers_[source]) {
        auto found = entered_.find(reader);
        if (found == entered_.end()) continue;
        ready_.erase(found->second);
        Enter(reader);
      }
    }
  }

  const Graph& graph_;
  const bool by_memory_;
  absl::flat_hash_map<const Instruction*, std::vector<Instruction*>> readers_, reads_, unblocks_;
  absl::flat_hash_map<const Instruction*, int64_t> unread_, waits_for_;
  absl::flat_hash_map<const Instruction*, Entry> entered_;
  std::set<Entry> ready_;
  int64_t now_ = 0, peak_ = 0;
};

// The instruction that makes leaf `leaf` of `value`, with tuples looked through.
Instruction* LeafSource(Instruction* value, int64_t leaf) {
  while (value->opcode() == Opcode::kTuple) {
    int64_t element = 0;
    while (leaf >= CountLeaves(value->operand(element)->shape()))
      leaf -= CountLeaves(value->operand(element++)->shape());
    value = value->operand(element);
  }
  return value;
}

// Entry: results that take the buffers of donated parameters.
void ProtectParameters(const Module& module, const Donation& donation, Graph* graph) {
  std::vector<Instruction*> parameter_of_leaf;
  for (Instruction* parameter : module.entry()->parameters()) {
    parameter_of_leaf.resize(parameter_of_leaf.size() + static_cast<size_t>(CountLeaves(parameter->shape())),
                             parameter);
  }
  for (size_t r = 0; r < donation.result_to_parameter.size(); ++r) {
    const int64_t leaf = donation.result_to_parameter[r];
    if (leaf < 0) continue;
    Instruction* parameter = parameter_of_leaf[leaf];
    if (!parameter->shape().is_array()) continue;
    std::vector<Instruction*> writers;
    Sources(LeafSource(module.entry()->root(), static_cast<int64_t>(r)), &writers);
    if (writers.size() == 1 && writers[0] != parameter) graph->ReadersFirst(parameter, writers[0]);
  }
}

// A loop's body: next values that take the buffers of the old ones.
void ProtectCarried(Computation* body, Graph* graph) {
  Instruction* root = body->root();
  if (root->opcode() != Opcode::kTuple) return;
  std::vector<Instruction*> gets(body->parameter(0)->users().begin(), body->parameter(0)->users().end());
  for (Instruction* get : gets) {
    if (get->opcode() != Opcode::kGetTupleElement || !get->shape().is_array()) continue;
    std::vector<Instruction*> writers;
    Sources(root->operand(get->number()), &writers);
    if (writers.size() == 1 && writers[0] != body->parameter(0)) graph->ReadersFirst(get, writers[0]);
  }
}

}  // namespace

absl::Status OrderInstructions(hlo::Module& module, PassContext&) {
  XLAD_ASSIGN_OR_RETURN(Donation donation, DonationOf(module));
  absl::flat_hash_set<Computation*> bodies;
  const std::vector<Computation*> computations = StepComputations(module);
  for (Computation* computation : computations) {
    for (const auto& instruction : computation->instructions()) {
      if (instruction->opcode() == Opcode::kWhile) bodies.insert(instruction->called()[1]);
    }
  }
  for (Computation* computation : computations) {
    Graph graph(computation);
    if (computation == module.entry()) ProtectParameters(module, donation, &graph);
    if (bodies.contains(computation)) ProtectCarried(computation, &graph);
    ListSchedule by_memory(graph, true), by_program(graph, false);
    Sequence low = by_memory.Run(), plain = by_program.Run();
    XLAD_CHECK(plain.size() == graph.all().size()) << "cycle in " << computation->name();
    computation->SetOrder(by_memory.peak() < by_program.peak() ? low : plain);
  }
  return absl::OkStatus();
}

absl::Status NoteTripCounts(hlo::Module& module, PassContext&) {
  for (Computation* computation : StepComputations(module)) {
    for (const auto& instruction : computation->instructions()) {
      if (instruction->opcode() != Opcode::kWhile) continue;
      hlo::StringMap& attributes = instruction->mutable_frontend_attributes();
      attributes.erase(kTripCountAttribute);
      if (std::optional<int64_t> count = TripCount(*instruction))
        attributes[kTripCountAttribute] = absl::StrCat(*count);
    }
  }
  return absl::OkStatus();
}

}  // namespace xlad::compiler
