// Verifier rules on the references between instructions and computations.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "hlo/infer/rules.h"
#include "hlo/verify/rules.h"
#include "hlo/verify/verifier.h"

namespace xlad::hlo {
namespace {

using ComputationSet = absl::flat_hash_set<const Computation*>;

absl::Status CheckParameters(const Computation& computation) {
  const auto& parameters = computation.parameters();
  for (const auto& instruction : computation.instructions()) {
    if (instruction->opcode() != Opcode::kParameter) continue;
    const int64_t number = instruction->number();
    const bool known = number >= 0 && number < std::ssize(parameters);
    if (known && parameters[number] == instruction.get()) continue;
    const std::string found =
        known ? absl::StrCat("parameter(", number, ") a second time") : absl::StrCat("parameter(", number, ")");
    return AtInstruction(Violation("parameter-numbers", found, "numbers 0, 1, ... each once"), *instruction);
  }
  for (size_t number = 0; number < parameters.size(); ++number) {
    if (parameters[number] == nullptr) {
      return AtComputation(Violation("parameter-numbers", absl::StrCat("no parameter(", number, ")"),
                                     absl::StrCat("all of 0 to ", parameters.size() - 1)),
                           computation);
    }
  }
  return absl::OkStatus();
}

absl::Status CheckInputs(const Computation& computation) {
  absl::flat_hash_set<const Instruction*> before;
  before.reserve(computation.instructions().size());
  const auto check = [&](const Instruction& user, const Instruction* input, absl::string_view what) {
    if (before.contains(input)) return absl::OkStatus();
    if (input->parent() != user.parent()) {
      return AtInstruction(
          Violation("operand-computation", absl::StrCat(what, " %", input->name(), " of another computation"),
                    absl::StrCat("one of %", computation.name())),
          user);
    }
    return AtInstruction(Violation("operand-order", absl::StrCat(what, " %", input->name(), " at or after its user"),
                                   "operands before users, without cycles"),
                         user);
  };
  for (const auto& instruction : computation.instructions()) {
    for (const Instruction* const operand : instruction->operands()) {
      XLAD_RETURN_IF_ERROR(check(*instruction, operand, "operand"));
    }
    for (const Instruction* const predecessor : instruction->control_predecessors()) {
      XLAD_RETURN_IF_ERROR(check(*instruction, predecessor, "control predecessor"));
    }
    before.insert(instruction.get());
  }
  if (computation.root() == nullptr) {
    return AtComputation(Violation("computation-root", "no ROOT", "one"), computation);
  }
  if (!before.contains(computation.root())) {
    return AtComputation(
        Violation("computation-root", absl::StrCat("root %", computation.root()->name(), " of another computation"),
                  "one of its own"),
        computation);
  }
  return absl::OkStatus();
}

absl::Status CheckCalled(const Computation& computation, const ComputationSet& all) {
  for (const auto& instruction : computation.instructions()) {
    for (const Computation* const called : instruction->called()) {
      if (called == nullptr || !all.contains(called)) {
        return AtInstruction(
            Violation("called-computation",
                      absl::StrCat(ToString(instruction->opcode()), " of a computation that the module does not have"),
                      "a computation of the module"),
            *instruction);
      }
    }
    if ((Flags(instruction->opcode()) & kCalls) == 0 && !instruction->called().empty()) {
      return AtInstruction(Violation("called-computations",
                                     Counted(std::ssize(instruction->called()), "called computation"),
                                     absl::StrCat("none of ", ToString(instruction->opcode()))),
                           *instruction);
    }
  }
  return absl::OkStatus();
}

// A depth-first walk of the call graph, without recursion. It finds cycles, the depth of calls, and the number of
// instructions after inlining.
class CallGraph {
 public:
  absl::Status Visit(const Computation* start) {
    if (known_.contains(start)) return absl::OkStatus();
    Open(start);
    while (!stack_.empty()) {
      Frame& frame = stack_.back();
      if (frame.next == frame.calls.size()) {
        XLAD_RETURN_IF_ERROR(Close());
        continue;
      }
      const auto [caller, callee] = frame.calls[frame.next];
      const auto found = known_.find(callee);
      if (found == known_.end()) {
        Open(callee);
      } else if (!found->second.closed) {
        return AtInstruction(Violation("call-cycle", absl::StrCat("a call that leads back to %", callee->name()),
                                       "calls without recursion"),
                             *caller);
      } else {
        ++frame.next;
        frame.depth = std::max(frame.depth, found->second.depth + 1);
        frame.size = std::min(kMaxExpandedInstructions + 1, frame.size + found->second.size);
      }
    }
    return absl::OkStatus();
  }

 private:
  struct Frame {
    const Computation* computation;
    std::vector<std::pair<const Instruction*, const Computation*>> calls;
    size_t next = 0;
    int64_t depth = 1, size = 0;
  };
  struct Known {
    bool closed = false;
    int64_t depth = 0, size = 0;
  };

  void Open(const Computation* computation) {
    Frame frame{computation, {}};
    frame.size = std::ssize(computation->instructions());
    for (const auto& instruction : computation->instructions()) {
      for (const Computation* const called : instruction->called()) frame.calls.emplace_back(instruction.get(), called);
    }
    known_[computation] = {};
    stack_.push_back(std::move(frame));
  }

  absl::Status Close() {
    const Frame& frame = stack_.back();
    if (frame.depth > kMaxCallDepth) {
      return AtComputation(Violation("call-depth", absl::StrCat("calls nested ", frame.depth, " deep"),
                                     absl::StrCat("at most ", kMaxCallDepth)),
                           *frame.computation);
    }
    if (frame.size > kMaxExpandedInstructions) {
      return AtComputation(Violation("call-expansion", "calls that multiply into more than 2^28 instructions", "fewer"),
                           *frame.computation);
    }
    known_[frame.computation] = {true, frame.depth, frame.size};
    stack_.pop_back();
    return absl::OkStatus();
  }

  absl::flat_hash_map<const Computation*, Known> known_;
  std::vector<Frame> stack_;
};

}  // namespace

absl::Status VerifyStructure(const Module& module) {
  ComputationSet all;
  for (const auto& computation : module.computations()) all.insert(computation.get());
  if (module.entry() == nullptr || !all.contains(module.entry())) {
    return Annotate(Violation("module-entry", "no entry computation", "one marked ENTRY"),
                    absl::StrCat("module ", module.name()));
  }
  for (const auto& computation : module.computations()) {
    XLAD_RETURN_IF_ERROR(CheckParameters(*computation));
    XLAD_RETURN_IF_ERROR(CheckInputs(*computation));
    XLAD_RETURN_IF_ERROR(CheckCalled(*computation, all));
  }
  CallGraph graph;
  for (const auto& computation : module.computations()) XLAD_RETURN_IF_ERROR(graph.Visit(computation.get()));
  return absl::OkStatus();
}

}  // namespace xlad::hlo
