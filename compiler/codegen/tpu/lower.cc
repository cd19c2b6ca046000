#include "compiler/codegen/tpu/lower.h"

#include <algorithm>
#include <cctype>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/containers.h"
#include "compiler/analysis/op_cost.h"
#include "compiler/codegen/tpu/element_code.h"
#include "compiler/codegen/tpu/lowering.h"
#include "compiler/codegen/tpu/tile_pipeline.h"
#include "hlo/analysis/leaves.h"
#include "machine/llo/scoreboard.h"

namespace xlad::compiler {

using machine::LloKernel;
using machine::LloType;

namespace {

// The assumed number of vector operations per element of a macro-operation, similar to that in simulate/kernel_cost.cc.
double OpsOfElement(const Instruction& instruction) {
  const auto log2_of = [](int64_t n) { return std::max(1.0, std::log2(static_cast<double>(std::max<int64_t>(n, 2)))); };
  const Shape& first = instruction.operand_count() > 0 ? instruction.operand(0)->shape() : instruction.shape();
  const int64_t longest =
      first.is_array() && first.ndim() > 0 ? *std::max_element(first.dims().begin(), first.dims().end()) : 1;
  switch (instruction.opcode()) {
    case Opcode::kSort:
    case Opcode::kTopk:
      return log2_of(longest) * log2_of(longest);
    case Opcode::kScan:
    case Opcode::kFft:
      return 5 * log2_of(longest);
    case Opcode::kCholesky:
    case Opcode::kTriangularSolve:
      return static_cast<double>(longest) / 3;
    case Opcode::kRngBitGenerator:
    case Opcode::kRng:
      return 50;
    default:
      return CostOf(instruction) == OpCost::kExpensive ? 8 : 1;
  }
}

}  // namespace

int LloLowering::NewBuffer(const std::string& wanted, LloType type, int64_t elements) {
  std::string word = wanted;
  for (char& c : word) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '.' && c != '_' && c != '-') c = '_';
  }
  std::string name = word;
  for (int i = 1; !names_.insert(name).second; ++i) name = absl::StrCat(word, ".", i, "_");
  result_.program.buffers.push_back({name, type, elements});
  result_.bytes.push_back(elements * machine::BytesOf(type));
  result_.constants.emplace_back();
  return static_cast<int>(result_.program.buffers.size()) - 1;
}

int LloLowering::NewBuffer(const Instruction& instruction, const Shape& leaf, const std::string& suffix) {
  const LloType type = LloTypeOf(leaf.type());
  const int buffer = NewBuffer(absl::StrCat(instruction.name(), suffix), type, leaf.elements());
  if (type == LloType::kOther) result_.bytes[buffer] = leaf.bytes();
  return buffer;
}

void LloLowering::AddKernel(LloBuilder* builder, const std::vector<int>& inputs, const std::vector<int>& outputs) {
  LloKernel kernel = builder->Finish(absl::StrCat(current_->name(), ".k", result_.program.kernels.size()));
  kernel.inputs = inputs;
  kernel.outputs = outputs;
  result_.program.kernels.push_back(std::move(kernel));
  result_.instructions.push_back(current_);
}

int64_t LloLowering::BlockTiles(int64_t most, int64_t streams) const {
  return std::clamp<int64_t>(NewBuilder().stream_tiles() / (kStreamBuffers * streams), 1, most);
}

int LloLowering::Materialize(const Instruction* instruction) { return LeavesOf(instruction).at(0); }

const std::vector<int>& LloLowering::LeavesOf(const Instruction* instruction) {
  const auto known = leaves_.find(instruction);
  if (known != leaves_.end()) return known->second;
  const Instruction* const outer = current_;
  if (current_ == nullptr || current_->opcode() != Opcode::kFusion) current_ = instruction;
  Lower(instruction);
  current_ = outer;
  return leaves_.at(instruction);
}

void LloLowering::Lower(const Instruction* instruction) {
  std::vector<int> leaves;
  switch (instruction->opcode()) {
    case Opcode::kTuple:
      for (const Instruction* operand : instruction->operands()) {
        const std::vector<int> inner = LeavesOf(operand);
        leaves.insert(leaves.end(), inner.begin(), inner.end());
      }
      leaves_[instruction] = leaves;
      return;
    case Opcode::kGetTupleElement: {
      const std::vector<int> all = LeavesOf(instruction->operand(0));
      const Shape& tuple = instruction->operand(0)->shape();
      const auto first = all.begin() + hlo::FirstArrayLeaf(tuple, instruction->number());
      leaves_[instruction] = {first, first + hlo::CountArrayLeaves(instruction->shape())};
      return;
    }
    case Opcode::kReshape:
      if (instruction->shape().is_array() && instruction->operand(0)->shape().is_array() &&
          instruction->shape().type() == instruction->operand(0)->shape().type()) {
        const std::vector<int> same = LeavesOf(instruction->operand(0));
        leaves_[instruction] = same;
        return;
      }
      break;
    case Opcode::kOptBarrier: {
      const std::vector<int> same = LeavesOf(instruction->operand(0));
      leaves_[instruction] = same;
      return;
    }
    case Opcode::kFusion:
      return LowerFusion(*instruction);
    default:
      break;
  }
  const std::vector<const Shape*> shapes = hlo::ArrayLeaves(instruction->shape());
  bool is_empty = shapes.size() != 1 || !instruction->shape().is_array() || shapes[0]->elements() == 0;
  for (const Instruction* operand : instruction->operands()) {
    is_empty = is_empty || !operand->shape().is_array() || operand->shape().elements() == 0;
  }
  if (!is_empty || instruction->opcode() == Opcode::kConstant) {
    const int out = NewBuffer(*instruction, instruction->shape(), "");
    if (LowerArray(*instruction, out)) {
      leaves_[instruction] = {out};
      return;
    }
    leaves_[instruction] = {out};
    return AddMacro(*instruction);
  }
  for (const Shape* shape : shapes) leaves.push_back(NewBuffer(*instruction, *shape, absl::StrCat(".", leaves.size())));
  leaves_[instruction] = leaves;
  AddMacro(*instruction);
}

bool LloLowering::LowerArray(const Instruction& instruction, int out) {
  switch (instruction.opcode()) {
    case Opcode::kConstant:
      FillConstant(instruction, out);
      return true;
    case Opcode::kReduce:
      return LowerReduce(instruction, out);
    case Opcode::kTranspose:
      if (LloTypeOf(instruction.shape().type()) == LloType::kOther) return false;
      EmitPermute(Materialize(instruction.operand(0)), instruction.operand(0)->shape().dims(), instruction.dimensions(),
                  out);
      return true;
    case Opcode::kBroadcast:
      return LowerBroadcast(instruction, out);
    case Opcode::kSlice:
      return LowerSlice(instruction, out);
    case Opcode::kPad:
      return LowerPad(instruction, out);
    case Opcode::kConcatenate:
      return LowerConcatenate(instruction, out);
    case Opcode::kDot:
      return LowerDot(instruction, out);
    case Opcode::kConvolution:
      return LowerConvolution(instruction, out);
    default:
      break;
  }
  const bool is_map =
      HasElementCode(instruction) || instruction.opcode() == Opcode::kCopy || instruction.opcode() == Opcode::kIota;
  if (!is_map || LloTypeOf(instruction.shape().type()) == LloType::kOther) return false;
  LowerMap(instruction, out);
  return true;
}

void LloLowering::LowerFusion(const Instruction& fusion) {
  const Computation& fused = *fusion.called()[0];
  for (int64_t p = 0; p < fusion.operand_count(); ++p) {
    const std::vector<int> leaves = LeavesOf(fusion.operand(p));
    leaves_[fused.parameter(p)] = leaves;
  }
  const Instruction* const outer = current_;
  current_ = &fusion;
  const std::vector<int> leaves = LeavesOf(fused.root());
  current_ = outer;
  // The entries are removed, because another fusion may call the same computation.
  for (const auto& instruction : fused.instructions()) leaves_.erase(instruction.get());
  leaves_[&fusion] = leaves;
}

void LloLowering::AddMacro(const Instruction& instruction) {
  LloKernel kernel;
  machine::LloMacro macro{std::string(hlo::ToString(instruction.opcode()))};
  double elements = 0;
  for (const Instruction* operand : instruction.operands()) {
    const std::vector<int> leaves = LeavesOf(operand);
    kernel.inputs.insert(kernel.inputs.end(), leaves.begin(), leaves.end());
    macro.hbm_bytes += static_cast<double>(operand->shape().bytes());
    for (const Shape* leaf : hlo::ArrayLeaves(operand->shape())) elements += static_cast<double>(leaf->elements());
  }
  for (const Shape* leaf : hlo::ArrayLeaves(instruction.shape())) elements += static_cast<double>(leaf->elements());
  kernel.outputs = leaves_.at(&instruction);
  kernel.name =
      absl::StrCat(current_ == nullptr ? instruction.name() : current_->name(), ".k", result_.program.kernels.size());
  macro.hbm_bytes += static_cast<double>(instruction.shape().bytes());
  macro.vector_ops = std::ceil(elements * OpsOfElement(instruction));
  kernel.macro.push_back(std::move(macro));
  result_.program.kernels.push_back(std::move(kernel));
  result_.instructions.push_back(&instruction);
}

void LloLowering::FillConstant(const Instruction& constant, int buffer) {
  const absl::Span<const std::byte> bytes = constant.literal()->array.bytes();
  const size_t size = std::min(static_cast<size_t>(result_.bytes[buffer]), bytes.size());
  result_.constants[buffer].assign(reinterpret_cast<const char*>(bytes.data()), size);
}

absl::StatusOr<LoweredLlo> LloLowering::Run(const Computation& computation) {
  result_.program.name = computation.name();
  for (const Instruction* parameter : computation.parameters()) {
    std::vector<int> leaves;
    for (const Shape* leaf : hlo::Leaves(parameter->shape())) {
      if (leaf->kind() == Shape::Kind::kToken) continue;
      if (!leaf->is_array()) {
        return absl::UnimplementedError(
            absl::StrCat("%", parameter->name(), ": found ", leaf->ToString(), ", expected arrays and tokens"));
      }
      leaves.push_back(NewBuffer(*parameter, *leaf, leaves.empty() ? "" : absl::StrCat(".", leaves.size())));
    }
    result_.parameters.insert(result_.parameters.end(), leaves.begin(), leaves.end());
    leaves_[parameter] = leaves;
  }
  for (const auto& instruction : computation.instructions()) LeavesOf(instruction.get());
  result_.results = leaves_.at(computation.root());
  XLAD_RETURN_IF_ERROR(machine::VerifyLlo(result_.program, chip_.vector_alus, VmemTiles()));
  return std::move(result_);
}

machine::LloMemory InitialMemory(const LoweredLlo& lowered) {
  machine::LloMemory memory = lowered.constants;
  for (size_t b = 0; b < memory.size(); ++b) memory[b].resize(lowered.bytes[b], '\0');
  return memory;
}

absl::StatusOr<LoweredLlo> LowerToLlo(const Computation& computation, const machine::Chip& chip) {
  return LloLowering(chip).Run(computation);
}

namespace {

// The computations whose instructions are steps: the entry, and the computations of its loops and branches.
void AppendStepComputations(const Computation& computation, std::vector<const Computation*>* all) {
  if (Contains(*all, &computation)) return;
  all->push_back(&computation);
  for (const auto& instruction : computation.instructions()) {
    const bool has_steps = instruction->opcode() == Opcode::kWhile || instruction->opcode() == Opcode::kConditional ||
                           instruction->opcode() == Opcode::kCall;
    if (!has_steps) continue;
    for (const Computation* called : instruction->called()) AppendStepComputations(*called, all);
  }
}

}  // namespace

absl::StatusOr<std::string> LloListing(const Module& module, const machine::Chip& chip) {
  std::vector<const Computation*> computations;
  AppendStepComputations(*module.entry(), &computations);
  std::string text;
  for (const Computation* computation : computations) {
    XLAD_ASSIGN_OR_RETURN(const LoweredLlo lowered, LowerToLlo(*computation, chip));
    double us = 0;
    std::string times;
    for (const LloKernel& kernel : lowered.program.kernels) {
      const machine::LloTime time = machine::TimeLlo(lowered.program, kernel, chip);
      us += time.us;
      absl::StrAppendFormat(&times, "# %9.3f us  mxu %8.3f  vpu %8.3f  hbm %8.3f  stall %8.3f  %8.0f bundles  %s%s\n",
                            time.us, time.mxu_us, time.vpu_us, time.hbm_us, time.stall_us, time.bundles, kernel.name,
                            kernel.macro.empty() ? "" : absl::StrCat(" (macro-operation ", kernel.macro[0].op, ")"));
    }
    const size_t kernels = lowered.program.kernels.size();
    const std::string counted = kernels == 1 ? "1 kernel" : absl::StrCat(kernels, " kernels, one after the other");
    absl::StrAppendFormat(&text, "# %s on %s: %.3f us in %s\n%s%s\n", computation->name(), chip.name, us, counted,
                          times, machine::PrintLlo(lowered.program));
  }
  return text;
}

}  // namespace xlad::compiler
