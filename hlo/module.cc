// Modules: names, computations, copies, and the source of an instruction.
#include "hlo/module.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace xlad::hlo {
namespace {

absl::string_view BaseName(absl::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == absl::string_view::npos ? path : path.substr(slash + 1);
}

using ComputationMap = absl::flat_hash_map<const Computation*, Computation*>;

// Appends every computation that `start` calls, callees first, and then `start`. Calls that form a cycle are ignored.
void CollectCallees(const Computation* start, absl::flat_hash_set<const Computation*>* seen,
                    std::vector<const Computation*>* order) {
  // A frame of the walk: a computation and the position of its next callee.
  struct Frame {
    const Computation* computation;
    std::vector<const Computation*> callees;
    size_t next = 0;
  };
  const auto open = [&](const Computation* computation) {
    Frame frame{computation, {}};
    for (const auto& instruction : computation->instructions()) {
      frame.callees.insert(frame.callees.end(), instruction->called().begin(), instruction->called().end());
    }
    return frame;
  };
  if (start == nullptr || !seen->insert(start).second) return;
  std::vector<Frame> stack;
  stack.push_back(open(start));
  while (!stack.empty()) {
    Frame& frame = stack.back();
    if (frame.next < frame.callees.size()) {
      const Computation* const callee = frame.callees[frame.next++];
      if (seen->insert(callee).second) stack.push_back(open(callee));
      continue;
    }
    order->push_back(frame.computation);
    stack.pop_back();
  }
}

void CopyInstructions(const Computation& from, Computation* to) {
  absl::flat_hash_map<const Instruction*, Instruction*> copies;
  for (const auto& instruction : from.instructions()) {
    std::unique_ptr<Instruction> copy = instruction->CloneWithoutOperands();
    copy->set_name(instruction->name());
    copies[instruction.get()] = to->Add(std::move(copy));
  }
  for (const auto& instruction : from.instructions()) {
    Instruction* const copy = copies.at(instruction.get());
    for (const Instruction* const operand : instruction->operands()) copy->AppendOperand(copies.at(operand));
    for (const Instruction* const before : instruction->control_predecessors()) {
      copy->AddControlPredecessor(copies.at(before));
    }
  }
  if (from.root() != nullptr) to->set_root(copies.at(from.root()));
  to->set_is_fusion(from.is_fusion());
  to->set_execution_thread(from.execution_thread());
}

void RedirectCalls(const ComputationMap& copies, Computation* computation) {
  for (const auto& instruction : computation->instructions()) {
    for (Computation*& called : instruction->mutable_called()) {
      const auto found = copies.find(called);
      if (found != copies.end()) called = found->second;
    }
  }
}

}  // namespace

Module::NameState& Module::StateOf(Names* names, absl::string_view name) {
  const auto entry = names->lazy_emplace(
      name, [&](const Names::constructor& make) { make(name_memory_.Keep(name), NameState()); });
  return entry->second;
}

bool Module::TakeName(absl::string_view name) {
  NameState& state = StateOf(&names_, name);
  return !std::exchange(state.used, true);
}

// Returns `base` if it is unused. Otherwise returns it with the next unused number at its end (add.12), which replaces
// the number that `base` may have there.
std::string Module::Unique(Names* names, absl::string_view base) {
  NameState& state = StateOf(names, base);
  if (!state.used) {
    state.used = true;
    return std::string(base);
  }
  absl::string_view stem = base;
  while (!stem.empty() && absl::ascii_isdigit(stem.back())) stem.remove_suffix(1);
  if (stem.size() >= 2 && stem.size() < base.size() && stem.back() == '.') {
    stem.remove_suffix(1);
  } else {
    stem = base;
  }
  int64_t number = StateOf(names, stem).next;
  while (true) {
    std::string name = absl::StrCat(stem, ".", number++);
    NameState& candidate = StateOf(names, name);
    if (candidate.used) continue;
    candidate.used = true;
    StateOf(names, stem).next = number;
    return name;
  }
}

void Module::CopyNames(const Names& from, Names* to) {
  to->reserve(from.size());
  for (const auto& [name, state] : from) StateOf(to, name) = state;
}

std::unique_ptr<Instruction> Module::NewInstruction(Opcode opcode, Shape shape) {
  auto* const made = ::new (instruction_memory_.Take(sizeof(Instruction))) Instruction(opcode, std::move(shape));
  made->in_module_memory_ = true;
  return std::unique_ptr<Instruction>(made);
}

std::string Module::UniqueName(absl::string_view base) { return Unique(&names_, base); }

Computation* Module::Add(std::unique_ptr<Computation> computation) {
  Computation* const added = computation.get();
  added->parent_ = this;
  added->set_name(Unique(&computation_names_, added->name()));
  for (const auto& instruction : added->instructions()) instruction->set_name(UniqueName(instruction->name()));
  computations_.push_back(std::move(computation));
  return added;
}

int64_t Module::RemoveUnusedComputations() {
  absl::flat_hash_set<const Computation*> used;
  std::vector<const Computation*> order;
  CollectCallees(entry_, &used, &order);
  for (const auto& computation : computations_) {
    if (!used.contains(computation.get())) computation_names_.erase(computation->name());
  }
  return std::erase_if(computations_, [&](const auto& computation) { return !used.contains(computation.get()); });
}

void Module::SortComputations() {
  absl::flat_hash_set<const Computation*> seen;
  std::vector<const Computation*> order;
  for (const auto& computation : computations_) {
    if (computation.get() != entry_) CollectCallees(computation.get(), &seen, &order);
  }
  CollectCallees(entry_, &seen, &order);
  absl::flat_hash_map<const Computation*, size_t> position;
  for (size_t i = 0; i < order.size(); ++i) position[order[i]] = i;
  std::sort(computations_.begin(), computations_.end(),
            [&](const auto& a, const auto& b) { return position.at(a.get()) < position.at(b.get()); });
}

std::unique_ptr<Module> Module::Clone() const {
  auto clone = std::make_unique<Module>(name_);
  ComputationMap copies;
  for (const auto& computation : computations_) {
    Computation* const copy = clone->Add(std::make_unique<Computation>(computation->name()));
    CopyInstructions(*computation, copy);
    copies[computation.get()] = copy;
  }
  for (const auto& computation : clone->computations_) RedirectCalls(copies, computation.get());
  if (entry_ != nullptr) clone->entry_ = copies.at(entry_);
  clone->CopyNames(names_, &clone->names_);
  clone->CopyNames(computation_names_, &clone->computation_names_);
  clone->is_scheduled = is_scheduled;
  clone->replica_count = replica_count;
  clone->num_partitions = num_partitions;
  clone->input_output_alias = input_output_alias;
  clone->buffer_donors = buffer_donors;
  clone->frontend_attributes = frontend_attributes;
  clone->propagate_to_parameters = propagate_to_parameters;
  clone->propagate_to_output = propagate_to_output;
  clone->alias_passthrough_params = alias_passthrough_params;
  clone->entry_parameter_layouts = entry_parameter_layouts;
  clone->entry_result_layout = entry_result_layout;
  clone->has_entry_layout = has_entry_layout;
  clone->stack_frames = stack_frames;
  clone->other = other;
  return clone;
}

Computation* Module::CloneComputation(const Computation& computation, absl::string_view name) {
  absl::flat_hash_set<const Computation*> seen;
  std::vector<const Computation*> order;
  CollectCallees(&computation, &seen, &order);
  ComputationMap copies;
  std::vector<Computation*> added;
  for (const Computation* const from : order) {
    const std::string copy_name = from == &computation ? std::string(name) : from->name();
    Computation* const copy = Add(std::make_unique<Computation>(copy_name));
    CopyInstructions(*from, copy);
    copies[from] = copy;
    added.push_back(copy);
  }
  for (Computation* const copy : added) RedirectCalls(copies, copy);
  return copies.at(&computation);
}

std::string Module::SourceOf(const Instruction& instruction) const {
  const Metadata& metadata = instruction.metadata();
  // Ids count from 1. An id of 0, or one that is not in the table, is unknown.
  const auto at = [](const auto& table, int64_t id) {
    return id >= 1 && id <= std::ssize(table) ? &table[id - 1] : nullptr;
  };
  if (const auto* frame = at(stack_frames.frames, metadata.stack_frame_id); frame != nullptr) {
    const auto* location = at(stack_frames.locations, frame->file_location_id);
    const std::string* file = location == nullptr ? nullptr : at(stack_frames.file_names, location->file_name_id);
    if (file != nullptr) {
      const std::string* function = at(stack_frames.function_names, location->function_name_id);
      return absl::StrCat(BaseName(*file), ":", location->line,
                          function == nullptr || function->empty() ? "" : absl::StrCat(" (", *function, ")"));
    }
  }
  if (!metadata.source_file.empty()) {
    return absl::StrCat(BaseName(metadata.source_file), ":", metadata.source_line);
  }
  return metadata.op_name;
}

}  // namespace xlad::hlo
