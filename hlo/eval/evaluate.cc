#include "hlo/eval/evaluate.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_join.h"
#include "hlo/eval/collectives.h"
#include "hlo/eval/interpreter.h"
#include "hlo/eval/numeric.h"
#include "hlo/verify/verifier.h"

namespace xlad::hlo {
namespace eval {
namespace {

// Corrects bytes that do not encode a value: a pred other than 0 becomes 1, and the unused bits of types below
// 8 bits are cleared or sign-extended.
Value Normalized(Value value) {
  if (value.is_tuple()) {
    for (Value& element : value.tuple()) element = Normalized(std::move(element));
    return value;
  }
  const ElementType type = value.type();
  if (type != ElementType::kPred && tensor::BitWidth(type) >= 8) return value;
  Array array = value.Take();
  for (int8_t& byte : array.values<int8_t>()) {
    if (type == ElementType::kPred) {
      byte = byte != 0 ? 1 : 0;
    } else {
      byte = WrapSubByte(type, byte);
    }
  }
  return Value(std::move(array));
}

absl::StatusOr<std::vector<Value>> Arguments(const Module& module, const std::vector<Literal>& inputs) {
  const auto& parameters = module.entry()->parameters();
  if (inputs.size() != parameters.size()) {
    return absl::InvalidArgumentError(absl::StrCat("found ", inputs.size(), " inputs, expected ", parameters.size(),
                                                   ", one per parameter of the entry"));
  }
  std::vector<Value> arguments;
  for (const int64_t p : tensor::Indices(inputs)) {
    Value value = Value::Borrow(inputs[p]);
    if (!value.HasShape(parameters[p]->shape())) {
      return absl::InvalidArgumentError(absl::StrCat("input ", p, " (", parameters[p]->name(), "): found ",
                                                     inputs[p].shape().ToString(false), ", expected ",
                                                     parameters[p]->shape().ToString(false)));
    }
    arguments.push_back(Normalized(std::move(value)));
  }
  return arguments;
}

// Returns "0-2,5" for {0, 1, 2, 5}.
std::string Ranges(const std::vector<int64_t>& devices) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < devices.size();) {
    size_t end = i;
    while (end + 1 < devices.size() && devices[end + 1] == devices[end] + 1) ++end;
    parts.push_back(end == i ? absl::StrCat(devices[i]) : absl::StrCat(devices[i], "-", devices[end]));
    i = end + 1;
  }
  return absl::StrJoin(parts, ",");
}

// All devices of one evaluation. They run in turn, each until it is done or waits at a collective.
class Cluster {
 public:
  Cluster(const std::vector<const Module*>& modules, const EvaluateLimits& limits) : modules_(modules), state_(limits) {
    const auto devices = std::ssize(modules);
    const int64_t partitions = modules[0]->num_partitions;
    grid_.partitions = partitions > 0 && devices % partitions == 0 ? partitions : devices;
    grid_.replicas = devices / grid_.partitions;
    state_.grid = grid_;
    for (int64_t d = 0; d < devices; ++d) {
      devices_.emplace_back(&state_, d / grid_.partitions, d % grid_.partitions);
    }
  }

  absl::StatusOr<std::vector<Literal>> Run(const std::vector<std::vector<Literal>>& inputs) {
    for (const int64_t d : tensor::Indices(devices_)) {
      XLAD_ASSIGN_OR_RETURN(std::vector<Value> arguments, Arguments(*modules_[d], inputs[d]));
      XLAD_RETURN_IF_ERROR(devices_[d].Start(*modules_[d]->entry(), std::move(arguments)));
    }
    while (true) {
      for (const int64_t d : tensor::Indices(devices_)) {
        const absl::Status status = devices_[d].Run();
        if (!status.ok()) return devices_.size() == 1 ? status : Annotate(status, absl::StrCat("device ", d));
      }
      if (AllDone()) break;
      XLAD_ASSIGN_OR_RETURN(const bool progress, RunReadyCollectives());
      if (!progress) return DeadlockError();
    }
    std::vector<Literal> results;
    for (Interpreter& device : devices_) results.push_back(device.TakeResult().ToLiteral());
    return results;
  }

 private:
  bool AllDone() const {
    return std::all_of(devices_.begin(), devices_.end(), [](const Interpreter& device) { return device.done(); });
  }

  // Runs every collective at which all devices of its group wait. Returns false if there is none.
  absl::StatusOr<bool> RunReadyCollectives() {
    bool progress = false;
    for (const int64_t d : tensor::Indices(devices_)) {
      const Instruction* instruction = devices_[d].waiting_at();
      if (instruction == nullptr) continue;
      if (instruction->opcode() == Opcode::kRecvDone) {
        auto received = state_.mailbox.Receive(*instruction, grid_, d);
        if (!received.ok()) return Annotate(received.status(), PlaceOf(*instruction));
        if (!received->has_value()) continue;
        devices_[d].Resume(**std::move(received));
        progress = true;
        continue;
      }
      const auto members = CollectiveGroup(*instruction, grid_, d);
      if (!members.ok()) return Annotate(members.status(), PlaceOf(*instruction));
      if (members->empty()) {
        devices_[d].Resume(NonMemberResult(*instruction));
        progress = true;
        continue;
      }
      const bool all = std::all_of(members->begin(), members->end(), [&](int64_t member) {
        const Instruction* other = devices_[member].waiting_at();
        return other != nullptr && SameCollective(*instruction, *other);
      });
      if (!all) continue;
      progress = true;
      const absl::Status status = RunCollectiveOn(*members);
      if (!status.ok()) return Annotate(status, PlaceOf(*instruction));
    }
    return progress;
  }

  absl::Status RunCollectiveOn(const std::vector<int64_t>& members) {
    std::vector<Participant> group;
    for (const int64_t member : members) {
      Interpreter& device = devices_[member];
      group.push_back({member, device.waiting_at(), &device.waiting_operands(), &device});
    }
    XLAD_ASSIGN_OR_RETURN(std::vector<Value> results, RunCollective(group, grid_));
    for (const int64_t rank : tensor::Indices(members)) {
      devices_[members[rank]].Resume(std::move(results[rank]));
    }
    return absl::OkStatus();
  }

  // Example: "devices 0-2 wait at all-reduce.7, 3 has returned".
  absl::Status DeadlockError() const {
    std::vector<std::pair<std::string, std::vector<int64_t>>> places;
    for (const int64_t d : tensor::Indices(devices_)) {
      const Instruction* at = devices_[d].waiting_at();
      const std::string place = at == nullptr ? "" : at->name();
      auto found = std::find_if(places.begin(), places.end(), [&](const auto& p) { return p.first == place; });
      if (found == places.end()) found = places.insert(places.end(), {place, {}});
      found->second.push_back(d);
    }
    std::stable_sort(places.begin(), places.end(),
                     [](const auto& a, const auto& b) { return !a.first.empty() && b.first.empty(); });
    std::string message;
    for (const auto& [place, devices] : places) {
      const bool one = devices.size() == 1;
      absl::StrAppend(&message, message.empty() ? (one ? "device " : "devices ") : ", ", Ranges(devices),
                      place.empty() ? (one ? " has returned" : " have returned")
                                    : absl::StrCat(one ? " waits at " : " wait at ", place));
    }
    return absl::FailedPreconditionError(message);
  }

  const std::vector<const Module*>& modules_;
  EvaluationState state_;  // Declared before devices_, because it must outlive the values of the devices.
  DeviceGrid grid_;
  std::deque<Interpreter> devices_;
};

absl::Status CheckSizesAreKnown(const Module& module) {
  for (const auto& computation : module.computations()) {
    for (const auto& instruction : computation->instructions()) {
      if (!instruction->shape().has_unbounded()) continue;
      return AtInstruction(absl::InvalidArgumentError(absl::StrCat("found shape ", instruction->shape().ToString(),
                                                                   ", expected static sizes")),
                           *instruction);
    }
  }
  return absl::OkStatus();
}

// Runs the computations that an instruction calls, for EvaluateInstruction, which has no program.
class StandaloneCaller final : public Caller {
 public:
  StandaloneCaller() : state_(EvaluateLimits()), interpreter_(&state_, 0, 0) {}
  absl::StatusOr<Value> Call(const Computation& computation, std::vector<Value> arguments) override {
    return interpreter_.Call(computation, std::move(arguments));
  }

 private:
  EvaluationState state_;
  Interpreter interpreter_;
};

}  // namespace
}  // namespace eval

absl::StatusOr<std::vector<Literal>> Evaluate(const std::vector<const Module*>& modules,
                                              const std::vector<std::vector<Literal>>& inputs,
                                              const EvaluateLimits& limits) {
  if (modules.empty() || modules.size() != inputs.size()) {
    return absl::InvalidArgumentError(absl::StrCat("found ", modules.size(), " modules and ", inputs.size(),
                                                   " lists of inputs, expected one of each per device"));
  }
  for (const Module* module : std::set<const Module*>(modules.begin(), modules.end())) {
    if (module->entry() == nullptr) {
      return absl::InvalidArgumentError("found a module without an entry computation, expected one");
    }
    XLAD_RETURN_IF_ERROR(Verify(*module));
    XLAD_RETURN_IF_ERROR(eval::CheckSizesAreKnown(*module));
  }
  return eval::Cluster(modules, limits).Run(inputs);
}

absl::StatusOr<Literal> Evaluate(const Module& module, const std::vector<Literal>& inputs,
                                 const EvaluateLimits& limits) {
  XLAD_ASSIGN_OR_RETURN(std::vector<Literal> results, Evaluate({&module}, {inputs}, limits));
  return std::move(results[0]);
}

absl::StatusOr<Literal> EvaluateInstruction(const Instruction& instruction,
                                            const std::vector<const Literal*>& operands) {
  if (instruction.opcode() == Opcode::kConstant) return *instruction.literal();
  const eval::EvalFunction function = eval::FindEvalFunction(instruction.opcode());
  if (function == nullptr) {
    return absl::UnimplementedError(
        absl::StrCat(ToString(instruction.opcode()), " cannot be evaluated as a single instruction"));
  }
  if (instruction.operand_count() != std::ssize(operands)) {
    return absl::InvalidArgumentError(absl::StrCat("%", instruction.name(), ": found ", operands.size(),
                                                   " values, expected ", instruction.operand_count()));
  }
  std::vector<eval::Value> values;
  for (const int64_t i : tensor::Indices(operands)) {
    values.push_back(eval::Value::Borrow(*operands[i]));
    if (!values.back().HasShape(instruction.operand(i)->shape())) {
      return absl::InvalidArgumentError(
          absl::StrCat("%", instruction.name(), ": found ", operands[i]->shape().ToString(false), " for operand ", i,
                       ", expected ", instruction.operand(i)->shape().ToString(false)));
    }
  }
  eval::StandaloneCaller caller;
  XLAD_ASSIGN_OR_RETURN(const eval::Value result, function({instruction, absl::MakeSpan(values), caller}));
  return result.ToLiteral();
}

}  // namespace xlad::hlo
