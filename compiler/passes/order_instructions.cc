// Chooses the execution order of each step computation.
//
// Needs: fused step computations. Leaves: every step computation in an order in which
//   - collectives start as soon as their operands are ready, and their users are delayed by the estimated time of the
//     collectives if there is other computation that can overlap,
//   - an instruction that may overwrite a donated parameter or a loop-carried value comes after the other readers of
//     the old value, if data dependences allow it, so that no copy is needed,
//   - the peak of live bytes is low.
//
// The method is list scheduling with memory as the priority. The next instruction is the ready instruction that
// increases live memory least: by its own bytes minus those of the operands that it is the last to read. As in XLA's
// memory scheduler, the result is compared with the program order. A third order is the program order, except that
// instructions that reduce live memory come as soon as they are ready. For example, programs often update all
// parameters at the end, and an update frees a gradient. This order is not tried if there are collectives, because an
// update would wait for the sum of its gradient over the devices. The order with the lowest peak is chosen. In all
// orders, instructions that free no memory are first moved to their first user (Late). Then the users of collectives
// are delayed (delay_uses.h), unless the peak would exceed that of the orders before Late by more than the factor
// kMaxPeakGrowth.
#include "compiler/passes/passes.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "base/containers.h"
#include "base/sort_distinct.h"
#include "base/work.h"
#include "compiler/analysis/clone.h"
#include "compiler/analysis/donation.h"
#include "compiler/analysis/step_computations.h"
#include "compiler/passes/delay_uses.h"
#include "hlo/analysis/leaves.h"
#include "hlo/analysis/transparent.h"

namespace xlad::compiler {
namespace {

using Order = std::vector<Instruction*>;

// The factor by which overlapping collectives with computation may increase the peak.
constexpr double kMaxPeakGrowth = 1.05;

// The instructions that write the buffers of a value, looking through tuples and reshapes.
void Sources(Instruction* value, std::vector<Instruction*>* sources) {
  if (!IsTransparent(*value) || value->operand_count() == 0) {
    sources->push_back(value);
    return;
  }
  for (Instruction* operand : value->operands()) Sources(operand, sources);
}

// The dependence graph of a computation: operands, and added edges from the readers of a value to the instruction that
// may overwrite it.
class Graph {
 public:
  explicit Graph(Computation* computation) : computation_(computation), all_(Snapshot(*computation)) {
    for (size_t i = 0; i < all_.size(); ++i) {
      position_[all_[i]] = i;
      has_collectives_ = has_collectives_ || hlo::IsCollective(all_[i]->opcode());
    }
  }

  // Whether `to` depends on `from`, by a search from `to` along inputs. Inputs precede their users in the program,
  // except if an added edge leads from a writer to a later reader. The search stops at positions lower than those of
  // `from` and of all such writers, because inputs lead only to lower positions from there.
  bool Reaches(Instruction* from, Instruction* to) {
    const size_t lowest = std::min(position(from), lowest_late_writer_);
    std::vector<Instruction*> pending = {to};
    absl::flat_hash_set<Instruction*> seen;
    while (!pending.empty()) {
      Instruction* at = pending.back();
      pending.pop_back();
      if (at == from) return true;
      if (position(at) < lowest || !seen.insert(at).second) continue;
      CountWork();
      ForEachInput(at, [&](Instruction* input) { pending.push_back(input); });
    }
    return false;
  }

  // Orders the readers of `value` before `writer`, except those that depend on `writer`. Returns whether nothing needs
  // the value after `writer` has started: no reader depends on `writer`, and the root does not return the value.
  bool ReadersFirst(Instruction* value, Instruction* writer) {
    bool all_first = true;
    std::vector<Instruction*> readers(value->users().begin(), value->users().end());
    for (Instruction* reader : readers) {
      if (reader == writer) continue;
      if (reader == computation_->root()) {
        all_first = false;
      } else if (IsTransparent(*reader)) {
        all_first = ReadersFirst(reader, writer) && all_first;
      } else if (Reaches(writer, reader)) {
        all_first = false;
      } else {
        edges_[writer].push_back(reader);
        if (position(reader) > position(writer)) lowest_late_writer_ = std::min(lowest_late_writer_, position(writer));
      }
    }
    return all_first;
  }

  // Records that `bytes` of the result of `writer` are written to memory that exists during the whole step. If there
  // are collectives, this is ignored, so that updates do not seem to free memory: an update that comes as soon as it is
  // ready would wait for the sum of a gradient over the devices.
  void WritesInPlace(const Instruction* writer, int64_t bytes) {
    if (!has_collectives_) in_place_bytes_[writer] += bytes;
  }
  bool has_collectives() const { return has_collectives_; }
  // The bytes of memory that an instruction needs for its result.
  int64_t OwnBytes(const Instruction& instruction) const {
    if (IsTransparent(instruction)) return 0;
    const auto found = in_place_bytes_.find(&instruction);
    return std::max<int64_t>(0, instruction.shape().bytes() - (found == in_place_bytes_.end() ? 0 : found->second));
  }

  template <typename Visit>
  void ForEachInput(Instruction* at, const Visit& visit) const {
    for (Instruction* operand : at->operands()) visit(operand);
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
  bool has_collectives_ = false;
  absl::flat_hash_map<const Instruction*, int64_t> in_place_bytes_;
  // Edges from an instruction to the instructions that must come before it.
  absl::flat_hash_map<const Instruction*, std::vector<Instruction*>> edges_;
  // The lowest position of a writer with an added edge to a reader that comes later in the program.
  size_t lowest_late_writer_ = std::numeric_limits<size_t>::max();
};

enum class Priority {
  kProgram,  // The program order.
  kFrees,    // Instructions that reduce live memory come first.
  kMemory,   // The instruction that increases live memory least comes first.
};

// List scheduling. Among the ready instructions, those without a buffer come first, and then collectives. The priority
// decides among the others. Ties are resolved by program order.
class ListScheduler {
 public:
  ListScheduler(const Graph& graph, Priority priority) : graph_(graph), priority_(priority) {
    for (Instruction* at : graph.all()) {
      std::vector<Instruction*> sources;
      for (Instruction* operand : at->operands()) Sources(operand, &sources);
      SortDistinct(&sources);
      if (IsTransparent(*at)) sources.clear();
      for (Instruction* source : sources) readers_[source].push_back(at);
      reads_[at] = std::move(sources);
      absl::flat_hash_set<Instruction*> inputs;
      graph.ForEachInput(at, [&](Instruction* input) { inputs.insert(input); });
      pending_inputs_[at] = std::ssize(inputs);
      for (Instruction* input : inputs) dependents_[input].push_back(at);
    }
    for (const auto& [source, readers] : readers_) readers_left_[source] = std::ssize(readers);
  }

  Order Run() {
    for (Instruction* at : graph_.all()) {
      if (pending_inputs_[at] == 0) Enter(at);
    }
    Order order;
    while (!ready_.empty()) {
      Instruction* at = ready_.begin()->at;
      ready_.erase(ready_.begin());
      order.push_back(at);
      Account(at);
      for (Instruction* next : dependents_[at]) {
        if (--pending_inputs_[next] == 0) Enter(next);
      }
    }
    return order;
  }
  // The maximum number of bytes that are live at once in the order of Run.
  int64_t peak() const { return peak_; }
  // The maximum number of bytes that are live at once in a given order. Called instead of Run.
  int64_t PeakOf(const Order& order) {
    for (Instruction* at : order) Account(at);
    return peak_;
  }

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
    if (priority_ != Priority::kProgram) {
      cost = graph_.OwnBytes(*at);
      for (Instruction* source : reads_.at(at)) {
        if (readers_left_.at(source) == 1) cost -= graph_.OwnBytes(*source);
      }
    }
    if (priority_ == Priority::kFrees) cost = cost < 0 ? -1 : 0;
    const int rank = IsTransparent(*at) ? 0 : hlo::IsCollective(at->opcode()) ? 1 : 2;
    return {rank, rank == 0 ? 0 : cost, graph_.position(at), at};
  }
  void Enter(Instruction* at) {
    Entry entry = Make(at);
    ready_.insert(entry);
    entry_of_[at] = entry;
  }

  void Account(Instruction* at) {
    entry_of_.erase(at);
    now_ += graph_.OwnBytes(*at);
    peak_ = std::max(peak_, now_);
    for (Instruction* source : reads_.at(at)) {
      const int64_t left = --readers_left_.at(source);
      if (left == 0) now_ -= graph_.OwnBytes(*source);
      if (left != 1 || priority_ == Priority::kProgram) continue;
      // Only one reader remains. Running it frees the value, which raises its priority.
      for (Instruction* reader : readers_.at(source)) {
        auto found = entry_of_.find(reader);
        if (found == entry_of_.end()) continue;
        ready_.erase(found->second);
        Enter(reader);
      }
    }
  }

  const Graph& graph_;
  const Priority priority_;
  absl::flat_hash_map<const Instruction*, std::vector<Instruction*>> readers_, reads_, dependents_;
  absl::flat_hash_map<const Instruction*, int64_t> readers_left_, pending_inputs_;
  absl::flat_hash_map<const Instruction*, Entry> entry_of_;
  std::set<Entry> ready_;
  int64_t now_ = 0, peak_ = 0;
};

// Whether the instruction does not overwrite this parameter. Other instructions may overwrite a donated or carried
// array with a result of the same size.
bool OnlyReads(const Instruction& instruction, const Instruction& parameter) {
  switch (instruction.opcode()) {
    case Opcode::kConvolution:
    case Opcode::kDot:
    case Opcode::kDynamicSlice:
    case Opcode::kGather:
    case Opcode::kReduce:
    case Opcode::kReverse:
    case Opcode::kSlice:
    case Opcode::kTranspose: return true;
    default: break;
  }
  if (!parameter.shape().is_array()) return false;
  const std::vector<const Shape*> results = ArrayLeaves(instruction.shape());
  return std::none_of(results.begin(), results.end(),
                      [&](const Shape* result) { return result->bytes() == parameter.shape().bytes(); });
}

// Returns the order in which instructions that free no memory come directly before their first user. A list scheduler
// places such instructions too early: the reversal of a weight for the backward pass, for example, is ready at the
// beginning and increases the live memory less than most instructions of the forward pass. Collectives, loops and
// conditionals do not move, so collectives start early. Readers of a parameter do not move past an instruction that may
// overwrite it, and readers of an instruction with several results do not move, because it is not known which of its
// results they free.
Order Late(const Graph& graph, const Order& order) {
  constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  struct Place {
    int64_t slot;                // The position in `order` before which the instruction comes, or its own.
    int64_t first_user = kNone;  // The lowest slot of its dependents.
    int64_t last_read = -1;      // The highest slot of its readers.
    int64_t overwritten = kNone;  // The lowest slot of the readers that may overwrite it.
  };
  absl::flat_hash_map<const Instruction*, Place> places;
  for (int64_t i = 0; i < std::ssize(order); ++i) places[order[i]] = {.slot = i};
  for (int64_t i = std::ssize(order) - 1; i >= 0; --i) {
    Instruction* at = order[i];
    std::vector<Instruction*> sources;
    for (Instruction* operand : at->operands()) Sources(operand, &sources);
    Place& place = places.at(at);
    const bool frees_nothing = std::all_of(sources.begin(), sources.end(), [&](const Instruction* source) {
      const Place& of = places.at(source);
      if (source->opcode() == Opcode::kConstant) return true;
      if (source->opcode() == Opcode::kParameter) return of.overwritten >= place.first_user;
      return source->shape().is_array() && of.last_read >= place.first_user;
    });
    const bool stays = hlo::IsCollective(at->opcode()) || at->opcode() == Opcode::kWhile ||
                       at->opcode() == Opcode::kConditional || at->operand_count() == 0;
    if (!stays && (IsTransparent(*at) || frees_nothing) && place.first_user != kNone) place.slot = place.first_user;
    graph.ForEachInput(at, [&](Instruction* input) {
      int64_t& first_user = places.at(input).first_user;
      first_user = std::min(first_user, place.slot);
    });
    if (IsTransparent(*at)) continue;
    for (Instruction* source : sources) {
      Place& of = places.at(source);
      of.last_read = std::max(of.last_read, place.slot);
      if (source->opcode() == Opcode::kParameter && !OnlyReads(*at, *source)) {
        of.overwritten = std::min(of.overwritten, place.slot);
      }
    }
  }
  Order late = order;
  std::stable_sort(late.begin(), late.end(), [&](const Instruction* a, const Instruction* b) {
    return places.at(a).slot < places.at(b).slot;
  });
  return late;
}

// The instruction that computes leaf `leaf` of `value`, looking through tuples.
Instruction* LeafSource(Instruction* value, int64_t leaf) {
  while (value->opcode() == Opcode::kTuple) {
    int64_t element = 0;
    while (leaf >= CountLeaves(value->operand(element)->shape()))
      leaf -= CountLeaves(value->operand(element++)->shape());
    value = value->operand(element);
  }
  return value;
}

// An array that an instruction computes: its only result, or the element of its result with this path of indices.
using Written = std::pair<Instruction*, Dims>;

// Orders the readers of `old` before the instruction that computes `next`, which overwrites it. `old` is one value,
// which several instructions may get from a tuple. The instruction writes in place if all readers come first, and if
// `next` does not overwrite another value as well (`written`).
void Protect(const std::vector<Instruction*>& old, Instruction* next, Graph* graph, std::set<Written>* written) {
  std::vector<Instruction*> writers;
  Sources(next, &writers);
  if (writers.size() != 1 || Contains(old, writers[0]) || writers[0]->opcode() == Opcode::kParameter) return;
  bool in_place = true;
  for (Instruction* value : old) in_place = graph->ReadersFirst(value, writers[0]) && in_place;
  Dims path;
  for (const Instruction* at = next; at != writers[0]; at = at->operand(0)) {
    if (at->opcode() == Opcode::kGetTupleElement) path.push_back(at->number());
  }
  if (in_place && written->emplace(writers[0], path).second) {
    graph->WritesInPlace(writers[0], old[0]->shape().bytes());
  }
}

// In the entry, results overwrite the donated parameters that they are aliased with.
void ProtectParameters(const Module& module, const Donation& donation, Graph* graph) {
  std::vector<Instruction*> parameter_of_leaf;
  for (Instruction* parameter : module.entry()->parameters()) {
    parameter_of_leaf.resize(parameter_of_leaf.size() + CountLeaves(parameter->shape()),
                             parameter);
  }
  std::set<Written> written;
  for (size_t r = 0; r < donation.result_to_parameter.size(); ++r) {
    const int64_t leaf = donation.result_to_parameter[r];
    if (leaf < 0) continue;
    Instruction* parameter = parameter_of_leaf[leaf];
    if (!parameter->shape().is_array()) continue;
    Protect({parameter}, LeafSource(module.entry()->root(), r), graph, &written);
  }
}

// In a loop body, the next carried values overwrite the old ones.
void ProtectCarried(Computation* body, Graph* graph) {
  Instruction* root = body->root();
  if (root->opcode() != Opcode::kTuple) return;
  std::map<int64_t, std::vector<Instruction*>> carried;
  for (Instruction* get : body->parameter(0)->users()) {
    if (get->opcode() == Opcode::kGetTupleElement && get->shape().is_array()) carried[get->number()].push_back(get);
  }
  std::set<Written> written;
  for (const auto& [number, gets] : carried) Protect(gets, root->operand(number), graph, &written);
}

}  // namespace

absl::Status OrderInstructions(hlo::Module& module, PassContext& context) {
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
    const auto peak = [&](const Order& of) { return ListScheduler(graph, Priority::kProgram).PeakOf(of); };
    Order order;
    int64_t lowest = 0, lowest_before_late = std::numeric_limits<int64_t>::max();
    for (const Priority priority : {Priority::kProgram, Priority::kFrees, Priority::kMemory}) {
      if (priority == Priority::kFrees && graph.has_collectives()) continue;
      ListScheduler scheduler(graph, priority);
      Order candidate = Late(graph, scheduler.Run());
      XLAD_CHECK(candidate.size() == graph.all().size()) << "cycle in " << computation->name();
      lowest_before_late = std::min(lowest_before_late, scheduler.peak());
      const int64_t bytes = peak(candidate);
      if (!order.empty() && bytes >= lowest) continue;
      order = std::move(candidate);
      lowest = bytes;
    }
    // The overlap may use the memory that Late has saved.
    const double limit = kMaxPeakGrowth * static_cast<double>(lowest_before_late);
    const auto inputs = [&](Instruction* at, const std::function<void(Instruction*)>& visit) {
      graph.ForEachInput(at, visit);
    };
    XLAD_ASSIGN_OR_RETURN(const std::vector<Order> faster, DelayUses(order, inputs, context.devices));
    const auto found = std::find_if(faster.begin(), faster.end(), [&](const Order& other) {
      return static_cast<double>(peak(other)) <= limit;
    });
    computation->SetOrder(found == faster.end() ? order : *found);
  }
  return absl::OkStatus();
}

}  // namespace xlad::compiler
