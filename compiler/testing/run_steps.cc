#include "compiler/testing/run_steps.h"

#include <cstring>

#include "absl/container/flat_hash_map.h"
#include "compiler/analysis/clone.h"
#include "compiler/analysis/step_computations.h"
#include "hlo/analysis/leaves.h"
#include "hlo/build/builder.h"
#include "hlo/eval/evaluate.h"
#include "tensor/wire.h"

namespace xlad::compiler {
namespace {

using tensor::Array;
using Devices = std::vector<int>;
using Memory = std::vector<std::vector<std::byte>>;  // Indexed by allocation.
using StepList = google::protobuf::RepeatedPtrField<Step>;

Array Load(const Memory& memory, const BufferSlice& slice, const tensor::Shape& shape) {
  const auto& bytes = memory[slice.allocation()];
  auto first = bytes.begin() + slice.offset();
  return Array(shape, std::vector<std::byte>(first, first + shape.bytes()));
}

void Store(const Array& array, const BufferSlice& slice, Memory* memory) {
  auto bytes = array.bytes();
  if (bytes.empty()) return;
  std::memcpy((*memory)[slice.allocation()].data() + slice.offset(), bytes.data(), bytes.size());
}

// Makes a literal of `shape` from leaves in tuple order.
hlo::Literal Assemble(const Shape& shape, std::vector<Array>* leaves, size_t* next) {
  if (shape.is_array()) return hlo::Literal(std::move((*leaves)[(*next)++]));
  std::vector<hlo::Literal> elements;
  for (const Shape& element : shape.tuple()) elements.push_back(Assemble(element, leaves, next));
  return hlo::Literal::Tuple(std::move(elements));
}

// A module whose entry is this instruction, applied to parameters.
std::unique_ptr<Module> Isolate(const Instruction& instruction, int64_t devices) {
  auto module = std::make_unique<Module>("one");
  module->num_partitions = devices;
  Computation* entry = module->Add(std::make_unique<Computation>("main"));
  module->set_entry(entry);
  std::vector<Instruction*> parameters;
  hlo::Builder builder(entry);
  for (const Instruction* operand : instruction.operands()) {
    parameters.push_back(builder.Parameter(std::ssize(parameters), operand->shape()));
  }
  Instruction* copy = CloneWithOperands(instruction, parameters, entry);
  for (Computation*& callee : copy->mutable_called()) callee = module->CloneComputation(*callee, callee->name());
  entry->set_root(copy);
  module->SortComputations();
  return module;
}

Opcode OpcodeOf(CollectiveSpec::Reduction reduction) {
  switch (reduction) {
    case CollectiveSpec::PRODUCT: return Opcode::kMultiply;
    case CollectiveSpec::MAX: return Opcode::kMaximum;
    case CollectiveSpec::MIN: return Opcode::kMinimum;
    case CollectiveSpec::AND: return Opcode::kAnd;
    case CollectiveSpec::OR: return Opcode::kOr;
    default: return Opcode::kAdd;
  }
}

// Reduces `into` and `with` and stores the result in `into`. Both are flat arrays of the spec's type.
absl::Status ReduceInto(const CollectiveSpec& spec, const std::vector<std::byte>& with, std::vector<std::byte>* into) {
  const auto type = tensor::TypeFromWire(spec);
  const tensor::Shape shape{type, {static_cast<int64_t>(into->size()) / tensor::ByteWidth(type)}};
  Module module("reduce");
  Computation* entry = module.Add(std::make_unique<Computation>("main"));
  module.set_entry(entry);
  hlo::Builder builder(entry);
  Instruction* a = builder.Parameter(0, Shape(shape));
  Instruction* b = builder.Parameter(1, Shape(shape));
  const hlo::Literal left(Array(shape, *into)), right(Array(shape, with));
  XLAD_ASSIGN_OR_RETURN(const hlo::Literal sum, hlo::EvaluateInstruction(
      *builder.Binary(OpcodeOf(spec.reduction()), a, b), {&left, &right}));
  into->assign(sum.array.bytes().begin(), sum.array.bytes().end());
  return absl::OkStatus();
}

class Machine {
  using Blob = std::vector<std::byte>;

 public:
  Machine(const Compilation& compilation, int devices) : compilation_(compilation), memories_(devices) {
    for (const KernelRequest& kernel : compilation.steps.kernels) kernels_[kernel.symbol] = kernel.root;
    for (Memory& memory : memories_) {
      for (const Allocation& allocation : compilation.assignment.allocations) {
        memory.emplace_back(static_cast<size_t>(allocation.bytes()), std::byte{0xEF});
        std::memcpy(memory.back().data(), allocation.blob().data(), allocation.blob().size());
      }
    }
  }

  Memory& memory(int device) { return memories_[device]; }

  template <typename Steps>
  absl::Status Run(const Steps& steps, const Devices& devices) {
    for (const Step& step : steps) XLAD_RETURN_IF_ERROR(Annotate(RunStep(step, devices), step.name()));
    return absl::OkStatus();
  }

 private:
  absl::Status RunStep(const Step& step, const Devices& devices) {
    switch (step.step_case()) {
      case Step::kKernel:
        return RunInstruction(*kernels_.at(step.kernel().symbol()), step.kernel().buffers(), devices);
      case Step::kLibrary:
        return RunLibrary(step, devices);
      case Step::kCollective:
        return RunCollective(step.collective(), devices);
      case Step::kCollectiveDone:
        return EndCollective(step.collective_done().request(), devices);
      case Step::kCopy:
        for (int d : devices) {
          const tensor::Shape bytes{ElementType::kU8, {step.copy().from().bytes()}};
          Store(Load(memory(d), step.copy().from(), bytes), step.copy().to(), &memory(d));
        }
        return absl::OkStatus();
      case Step::kWhile:
        return RunWhile(step.while_(), devices);
      case Step::kIf:
        for (int d : devices) XLAD_RETURN_IF_ERROR(Run(BranchOf(step.if_(), d), {d}));
        return absl::OkStatus();
      case Step::STEP_NOT_SET:
        break;
    }
    return absl::InternalError(
        "found a step without a kind, expected a kernel, library op, collective, copy, loop or branch");
  }

  const StepList& BranchOf(const IfStep& step, int device) {
    const int last = step.branches_size() - 1;
    int branch = 0;
    if (step.selector_is_predicate()) {
      branch = Predicate(step.selector(), device) ? 0 : 1;
    } else {
      branch = Load(memory(device), step.selector(), {ElementType::kS32, {}}).values<int32_t>()[0];
      if (branch < 0 || branch > last) branch = last;
    }
    return step.branches(branch).steps();
  }

  bool Predicate(const BufferSlice& slice, int device) {
    return Load(memory(device), slice, {ElementType::kPred, {}}).values<uint8_t>()[0] != 0;
  }

  // In each iteration, all devices whose condition is still true run the body together, because it may contain
  // collectives.
  absl::Status RunWhile(const WhileStep& loop, Devices devices) {
    for (int64_t round = 0;; ++round) {
      XLAD_RETURN_IF_ERROR(Run(loop.condition(), devices));
      std::erase_if(devices, [&](int d) { return !Predicate(loop.predicate(), d); });
      if (devices.empty()) {
        const bool wrong = loop.trip_count() >= 0 && loop.trip_count() != round;
        if (!wrong) return absl::OkStatus();
        return absl::InternalError(absl::StrCat("found ", round, " iterations, expected ", loop.trip_count()));
      }
      XLAD_RETURN_IF_ERROR(Run(loop.body(), devices));
    }
  }

  template <typename Slices>
  absl::Status RunInstruction(const Instruction& instruction, const Slices& slices, const Devices& devices) {
    const bool needs_all = memories_.size() > 1;
    auto module = Isolate(instruction, std::ssize(memories_));
    std::vector<const Module*> modules;
    std::vector<std::vector<hlo::Literal>> inputs;
    int operand_slices = 0;
    for (int d = 0; d < std::ssize(memories_); ++d) {
      if (!needs_all && d != devices[0]) continue;
      modules.push_back(module.get());
      inputs.emplace_back();
      operand_slices = 0;
      for (const Instruction* operand : instruction.operands()) {
        std::vector<Array> leaves;
        for (const Shape* leaf : Leaves(operand->shape())) {
          leaves.push_back(Load(memory(d), slices.Get(operand_slices++), leaf->array()));
        }
        size_t next = 0;
        inputs.back().push_back(Assemble(operand->shape(), &leaves, &next));
      }
    }
    XLAD_ASSIGN_OR_RETURN(std::vector<hlo::Literal> results, hlo::Evaluate(modules, inputs));
    for (int d : devices) {
      const std::vector<const Array*> leaves = hlo::ArrayLeaves(results[d]);
      for (size_t i = 0; i < leaves.size(); ++i) {
        Store(*leaves[i], slices.Get(operand_slices + static_cast<int>(i)), &memory(d));
      }
    }
    return absl::OkStatus();
  }

  static Shape FromProto(const ArrayShape& shape) { return Shape(tensor::ShapeFromWire(shape)); }

  // Runs a library op by evaluating the instruction that has the step's name.
  absl::Status RunNamed(const Step& step, const Devices& devices) {
    for (const Computation* computation : StepComputations(*compilation_.module)) {
      for (const auto& instruction : computation->instructions()) {
        if (instruction->name() != step.name()) continue;
        return RunInstruction(*instruction, step.library().buffers(), devices);
      }
    }
    return absl::InternalError(absl::StrCat("library op: found no instruction named ", step.name()));
  }

  // Runs a library op. A dot runs from its descriptor, as in the runtime, without its instruction; other ops run by
  // name.
  absl::Status RunLibrary(const Step& step, const Devices& devices) {
    if (!compilation_.steps.library_ops[step.library().op()].has_dot()) {
      return RunNamed(step, devices);
    }
    const DotOp& dot = compilation_.steps.library_ops[step.library().op()].dot();
    Module module("dot");
    Computation* entry = module.Add(std::make_unique<Computation>("main"));
    module.set_entry(entry);
    hlo::Builder builder(entry);
    hlo::DotDimensions dims;
    dims.lhs_batch.assign(dot.lhs_batch().begin(), dot.lhs_batch().end());
    dims.rhs_batch.assign(dot.rhs_batch().begin(), dot.rhs_batch().end());
    dims.lhs_contracting.assign(dot.lhs_contracting().begin(), dot.lhs_contracting().end());
    dims.rhs_contracting.assign(dot.rhs_contracting().begin(), dot.rhs_contracting().end());
    Instruction* lhs = builder.Parameter(0, FromProto(dot.lhs()));
    Instruction* rhs = builder.Parameter(1, FromProto(dot.rhs()));
    Instruction* result = builder.Dot(lhs, rhs, dims, FromProto(dot.result()).type());
    if (!result->shape().SameIgnoringLayout(FromProto(dot.result()))) {
      return absl::InternalError(absl::StrCat("dot ", step.name(), ": found result ",
                                              FromProto(dot.result()).ToString(), ", expected ",
                                              result->shape().ToString()));
    }
    entry->set_root(result);
    return RunInstruction(*result, step.library().buffers(), devices);
  }

  absl::Status RunCollective(const CollectiveStep& step, const Devices& devices) {
    const CollectiveSpec& spec = compilation_.steps.collectives[step.spec()];
    if (devices.size() != memories_.size()) {
      return absl::InternalError(
          absl::StrCat("found ", devices.size(), " devices at a collective, expected all ", memories_.size()));
    }
    if (step.request() != 0) return StartCollective(step);
    for (int k = 0; k < spec.counts_size(); ++k)
      XLAD_RETURN_IF_ERROR(RunOne(spec, step.inputs(k), step.outputs(k), spec.counts(k)));
    return absl::OkStatus();
  }

  // A collective that was started, with the contents that its operands had at that time. `inputs` is indexed by operand
  // and device.
  struct Started {
    const CollectiveStep* step = nullptr;
    std::vector<std::vector<Blob>> inputs;
  };

  Blob Bytes(int device, const BufferSlice& slice) const {
    const auto& whole = memories_[device][slice.allocation()];
    return Blob(whole.begin() + slice.offset(), whole.begin() + slice.offset() + slice.bytes());
  }
  void SetBytes(int device, const BufferSlice& slice, const Blob& bytes) {
    std::copy(bytes.begin(), bytes.end(), memories_[device][slice.allocation()].begin() + slice.offset());
  }
  static bool IsOutput(const CollectiveStep& step, const BufferSlice& slice) {
    for (const BufferSlice& output : step.outputs()) {
      if (output.allocation() == slice.allocation() && output.offset() == slice.offset()) return true;
    }
    return false;
  }

  // The collective is executed when it ends. Until then, its results hold kRunning, which no step may overwrite.
  static constexpr std::byte kRunning{0x5A};
  absl::Status StartCollective(const CollectiveStep& step) {
    Started& started = started_[step.request()];
    if (started.step != nullptr) return absl::InternalError("found a start of a running collective, expected its end");
    started.step = &step;
    for (const BufferSlice& input : step.inputs()) {
      std::vector<Blob>& of_devices = started.inputs.emplace_back();
      for (int d = 0; d < std::ssize(memories_); ++d) of_devices.push_back(Bytes(d, input));
    }
    for (const BufferSlice& output : step.outputs()) {
      for (int d = 0; d < std::ssize(memories_); ++d) SetBytes(d, output, Blob(output.bytes(), kRunning));
    }
    return absl::OkStatus();
  }

  absl::Status EndCollective(int request, const Devices& devices) {
    const auto found = started_.find(request);
    if (found == started_.end()) {
      return absl::InternalError("found the end of a collective, expected its start before it");
    }
    const Started started = std::move(found->second);
    started_.erase(found);
    const CollectiveStep& step = *started.step;
    if (devices.size() != memories_.size()) {
      return absl::InternalError(absl::StrCat("found ", devices.size(),
                                              " devices at the end of a collective, expected all ", memories_.size()));
    }
    for (int d : devices) {
      for (const BufferSlice& output : step.outputs()) {
        if (Bytes(d, output) == Blob(output.bytes(), kRunning)) continue;
        return absl::InternalError("found a step that wrote the result of a running collective, expected none");
      }
      for (int k = 0; k < step.inputs_size(); ++k) {
        if (IsOutput(step, step.inputs(k))) {
          SetBytes(d, step.inputs(k), started.inputs[k][d]);
        } else if (Bytes(d, step.inputs(k)) != started.inputs[k][d]) {
          return absl::InternalError("found a step that wrote the operand of a running collective, expected none");
        }
      }
    }
    const CollectiveSpec& spec = compilation_.steps.collectives[step.spec()];
    for (int k = 0; k < spec.counts_size(); ++k) {
      XLAD_RETURN_IF_ERROR(RunOne(spec, step.inputs(k), step.outputs(k), spec.counts(k)));
    }
    return absl::OkStatus();
  }

  absl::Status RunOne(const CollectiveSpec& spec, const BufferSlice& from, const BufferSlice& to, int64_t count) {
    const auto type = tensor::TypeFromWire(spec);
    const int64_t bytes = count * tensor::ByteWidth(type);
    std::vector<Blob> sent, received(memories_.size());
    for (const Memory& memory : memories_) {
      const auto& whole = memory[from.allocation()];
      sent.emplace_back(whole.begin() + from.offset(), whole.begin() + from.offset() + bytes);
    }
    if (spec.kind() == CollectiveSpec::COLLECTIVE_PERMUTE) {
      for (Blob& blob : received) blob.assign(bytes, std::byte{0});
      for (const auto& pair : spec.pairs())
        received[pair.target()] = sent[pair.source()];
    }
    for (const auto& group : spec.groups()) {
      for (int rank = 0; rank < group.devices_size(); ++rank) {
        received[group.devices(rank)] = Exchange(spec, group, rank, sent);
      }
    }
    for (size_t d = 0; d < memories_.size(); ++d) {
      if (std::ssize(received[d]) != to.bytes())
        return absl::InternalError(
            absl::StrCat("collective: found a result of ", received[d].size(), " bytes, expected ", to.bytes()));
      std::copy(received[d].begin(), received[d].end(),
                memories_[d][to.allocation()].begin() + to.offset());
    }
    return absl::OkStatus();
  }

  static Blob Exchange(const CollectiveSpec& spec, const CollectiveSpec::Group& group, int rank,
                       const std::vector<Blob>& sent) {
    const size_t n = group.devices_size();
    auto of = [&](size_t r) -> const Blob& { return sent[group.devices(static_cast<int>(r))]; };
    Blob result;
    const size_t part = of(0).size() / n;
    switch (spec.kind()) {
      case CollectiveSpec::ALL_GATHER:
        for (size_t r = 0; r < n; ++r) result.insert(result.end(), of(r).begin(), of(r).end());
        return result;
      case CollectiveSpec::ALL_TO_ALL:
        for (size_t r = 0; r < n; ++r) {
          result.insert(result.end(), of(r).begin() + rank * part, of(r).begin() + (rank + 1) * part);
        }
        return result;
      case CollectiveSpec::BROADCAST:
        return of(0);
      default:
        break;
    }
    result = of(0);
    for (size_t r = 1; r < n; ++r) {
      XLAD_CHECK(ReduceInto(spec, of(r), &result).ok()) << "reducing " << static_cast<int>(spec.element_type());
    }
    if (spec.kind() == CollectiveSpec::REDUCE_SCATTER) {
      result = Blob(result.begin() + rank * part, result.begin() + (rank + 1) * part);
    }
    return result;
  }

  const Compilation& compilation_;
  std::vector<Memory> memories_;
  absl::flat_hash_map<std::string, const Instruction*> kernels_;
  absl::flat_hash_map<int, Started> started_;  // Indexed by request.
};

}  // namespace

absl::StatusOr<std::vector<std::vector<Array>>> RunSteps(const Compilation& compilation,
                                                         const std::vector<std::vector<Array>>& inputs) {
  Machine machine(compilation, static_cast<int>(inputs.size()));
  Devices devices;
  const auto& slices = compilation.assignment.slices;
  for (size_t d = 0; d < inputs.size(); ++d) {
    devices.push_back(static_cast<int>(d));
    for (size_t p = 0; p < inputs[d].size(); ++p) {
      Store(inputs[d][p], slices[compilation.program.parameters[p]],
            &machine.memory(devices.back()));
    }
  }
  XLAD_RETURN_IF_ERROR(machine.Run(compilation.steps.steps, devices));
  std::vector<std::vector<Array>> results(inputs.size());
  const std::vector<const Shape*> leaves = Leaves(compilation.module->entry()->root()->shape());
  for (int d : devices) {
    for (size_t r = 0; r < leaves.size(); ++r) {
      const BufferSlice& slice = slices[compilation.program.results[r]];
      results[d].push_back(Load(machine.memory(d), slice, leaves[r]->array()));
    }
  }
  return results;
}

}  // namespace xlad::compiler
