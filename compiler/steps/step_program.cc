#include "compiler/steps/step_program.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_join.h"
#include "base/utf8.h"
#include "compiler/analysis/collective_spec.h"
#include "compiler/analysis/flops.h"
#include "compiler/analysis/instruction_facts.h"
#include "compiler/analysis/kernel_cost.h"
#include "compiler/analysis/library_op.h"
#include "compiler/analysis/same_code.h"
#include "compiler/kernel/build_kernel.h"
#include "compiler/kernel/gpu_target.h"
#include "hlo/analysis/constants.h"
#include "hlo/analysis/leaves.h"
#include "hlo/attribute_keys.h"
#include "tensor/not_finite.h"
#include "tensor/wire.h"

namespace xlad::compiler {
namespace {

bool SameSlice(const BufferSlice& a, const BufferSlice& b) {
  return a.allocation() == b.allocation() && a.offset() == b.offset();
}

// Whether the instruction is a constant whose elements are all NaN. JAX uses such a constant for elements whose index
// is out of bounds: a select inserts the NaNs into its result.
bool IsNanConstant(const Instruction& instruction) {
  const hlo::Literal* literal = hlo::SplatLiteral(instruction);
  return literal != nullptr &&
         tensor::FindNotFinite(literal->array.shape().type, literal->array.bytes()).first_nan >= 0;
}

class StepBuilder {
 public:
  StepBuilder(const BufferAssignment& assignment, const StepOptions& options)
      : assignment_(assignment), options_(options) {}

  // Appends the steps of the operations.
  absl::Status Add(const std::vector<LinearOp>& ops, google::protobuf::RepeatedPtrField<Step>* steps) {
    for (const LinearOp& op : ops) {
      Step step;
      step.set_name(ToUtf8(op.instruction->name()));
      step.set_is_repeated(op.is_repeated);
      step.set_source(ToUtf8(NearestSource(*op.instruction)));
      XLAD_ASSIGN_OR_RETURN(bool needed, Fill(op, &step));
      if (!needed) continue;
      SetWork(op, &step);
      if (options_.check_numerics) SetChecked(op, &step);
      *steps->Add() = std::move(step);
    }
    return absl::OkStatus();
  }
  absl::StatusOr<StepProgram> Finish() {
    if (options_.schedules != nullptr) XLAD_RETURN_IF_ERROR(options_.schedules->CheckAllUsed(result_.kernels));
    return std::move(result_);
  }

 private:
  const BufferSlice& slice(int value) const { return assignment_.slices[value]; }

  // Sets the fields of an operation's step. Returns false if the operation needs no step, because it copies a buffer
  // onto itself, copies no bytes or only reserves memory.
  absl::StatusOr<bool> Fill(const LinearOp& op, Step* step) {
    switch (op.kind) {
      case LinearOp::Kind::kKernel:
        XLAD_RETURN_IF_ERROR(FillKernel(op, step->mutable_kernel()));
        return true;
      case LinearOp::Kind::kLibrary:
        FillLibrary(op, step->mutable_library());
        return true;
      case LinearOp::Kind::kCopy:
        if (SameSlice(slice(op.inputs[0]), slice(op.outputs[0]))) return false;
        *step->mutable_copy()->mutable_from() = slice(op.inputs[0]);
        *step->mutable_copy()->mutable_to() = slice(op.outputs[0]);
        return slice(op.inputs[0]).bytes() > 0;
      case LinearOp::Kind::kReserve:
        return false;
      case LinearOp::Kind::kCollective:
        XLAD_RETURN_IF_ERROR(FillCollective(op, step->mutable_collective()));
        return true;
      case LinearOp::Kind::kCollectiveDone:
        step->mutable_collective_done()->set_request(op.request);
        return true;
      case LinearOp::Kind::kWhile: {
        WhileStep* loop = step->mutable_while_();
        XLAD_RETURN_IF_ERROR(Add(op.condition, loop->mutable_condition()));
        *loop->mutable_predicate() = slice(op.predicate);
        XLAD_RETURN_IF_ERROR(Add(op.bodies[0], loop->mutable_body()));
        loop->set_trip_count(hlo::NotedTripCount(*op.instruction).value_or(-1));
        return true;
      }
      case LinearOp::Kind::kIf: {
        IfStep* branches = step->mutable_if_();
        *branches->mutable_selector() = slice(op.inputs[0]);
        branches->set_selector_is_predicate(op.instruction->operand(0)->shape().type() == ElementType::kPred);
        for (const std::vector<LinearOp>& body : op.bodies) {
          XLAD_RETURN_IF_ERROR(Add(body, branches->add_branches()->mutable_steps()));
        }
        return true;
      }
    }
    return false;
  }

  static void SetWork(const LinearOp& op, Step* step) {
    const auto add = [&](const google::protobuf::RepeatedPtrField<Step>& steps, double times) {
      for (const Step& inner : steps) {
        step->set_flops(step->flops() + times * inner.flops());
        step->set_bytes(step->bytes() + times * inner.bytes());
      }
    };
    if (step->has_while_()) {
      const double trips = static_cast<double>(std::max<int64_t>(step->while_().trip_count(), 1));
      add(step->while_().condition(), trips);
      return add(step->while_().body(), trips);
    }
    if (step->has_if_()) {
      // Only one branch is executed, so branches count as their mean.
      const double share = 1.0 / step->if_().branches_size();
      for (const IfStep::Branch& branch : step->if_().branches()) add(branch.steps(), share);
      return;
    }
    if (step->has_collective_done()) return;
    if (step->has_copy()) return step->set_bytes(2.0 * static_cast<double>(step->copy().to().bytes()));
    step->set_flops(FlopsOf(*op.instruction));
    step->set_bytes(BytesMoved(*op.instruction));
  }

  void SetChecked(const LinearOp& op, Step* step) const {
    // A collective is not checked: a NaN in its result may come from the operand of another device. On that device, the
    // step that computed the operand is checked.
    if (!step->has_kernel() && !step->has_library()) return;
    size_t input = 0, output = 0;
    const auto add = [&](ElementType type, int value, google::protobuf::RepeatedPtrField<CheckedArray>* arrays) {
      if (!tensor::IsFloating(type) && !tensor::IsComplex(type)) return;
      CheckedArray* array = arrays->Add();
      *array->mutable_buffer() = slice(value);
      tensor::TypeToWire(type, array);
    };
    for (const Instruction* operand : op.instruction->operands()) {
      const bool is_filler = op.instruction->opcode() == Opcode::kSelect && IsNanConstant(*operand);
      for (const Shape* leaf : Leaves(operand->shape())) {
        const int value = op.inputs[input++];
        if (leaf->is_array() && !is_filler) add(leaf->type(), value, step->mutable_checked_operands());
      }
    }
    for (const Shape* leaf : Leaves(op.instruction->shape())) {
      const int value = op.outputs[output++];
      if (leaf->is_array()) add(leaf->type(), value, step->mutable_checked_results());
    }
  }

  absl::Status FillKernel(const LinearOp& op, KernelStep* step) {
    KernelRequest request;
    request.root = op.instruction;
    for (const auto& [output, input] : op.may_share) {
      const BufferSlice& to = slice(op.outputs[output]);
      if (to.bytes() > 0 && SameSlice(to, slice(op.inputs[input]))) {
        request.in_place.emplace_back(output, input);
      }
    }
    for (int value : op.inputs) *step->add_buffers() = slice(value);
    for (int value : op.outputs) *step->add_buffers() = slice(value);
    XLAD_ASSIGN_OR_RETURN(*step->mutable_symbol(), FindOrAddKernel(std::move(request)));
    return absl::OkStatus();
  }

  // Returns the symbol of an earlier kernel with the same code. If there is none, adds the requested kernel and returns
  // its symbol.
  absl::StatusOr<std::string> FindOrAddKernel(KernelRequest request) {
    std::vector<size_t>& similar = kernels_by_hash_[CodeHash(*request.root)];
    for (size_t k : similar) {
      const KernelRequest& kernel = result_.kernels[k];
      if (kernel.in_place == request.in_place && SameCode(*kernel.root, *request.root)) return kernel.symbol;
    }
    similar.push_back(result_.kernels.size());
    request.symbol = Symbol(*request.root);
    request.wanted_tiles = options_.one_row_tiles ? kOneRowTiles : WantedTiles(*request.root);
    XLAD_ASSIGN_OR_RETURN(request.kernel, ScheduleRequest(request, options_.schedules));
    result_.kernels.push_back(std::move(request));
    return result_.kernels.back().symbol;
  }

  void FillLibrary(const LinearOp& op, LibraryStep* step) {
    LibraryOp library = MakeLibraryOp(*op.instruction);
    auto [entry, fresh] = library_numbers_.emplace(library.SerializeAsString(), result_.library_ops.size());
    if (fresh) result_.library_ops.push_back(std::move(library));
    step->set_op(entry->second);
    for (int value : op.inputs) *step->add_buffers() = slice(value);
    for (int value : op.outputs) *step->add_buffers() = slice(value);
  }

  absl::Status FillCollective(const LinearOp& op, CollectiveStep* step) {
    XLAD_ASSIGN_OR_RETURN(CollectiveSpec spec, MakeCollectiveSpec(*op.instruction, options_.devices));
    // Hand-written collectives may all have the same channel id, but the runtime needs distinct ids.
    while (!collective_ids_.insert(spec.collective_id()).second) spec.set_collective_id(spec.collective_id() + 1);
    if (spec.reduction() != CollectiveSpec::REDUCTION_UNSPECIFIED) spec.set_mode(options_.reduction_mode);
    step->set_spec(result_.collectives.size());
    step->set_request(op.request);
    result_.collectives.push_back(std::move(spec));
    for (int value : op.inputs) *step->add_inputs() = slice(value);
    for (int value : op.outputs) *step->add_outputs() = slice(value);
    return absl::OkStatus();
  }

  // A unique and readable name for the next kernel.
  std::string Symbol(const Instruction& instruction) {
    std::string name = instruction.name();
    for (char& c : name) {
      if (!absl::ascii_isalnum(c)) c = '_';
    }
    return absl::StrCat("xk", result_.kernels.size(), "_", name);
  }

  const BufferAssignment& assignment_;
  const StepOptions options_;
  StepProgram result_;
  absl::flat_hash_map<size_t, std::vector<size_t>> kernels_by_hash_;
  absl::flat_hash_map<std::string, int32_t> library_numbers_;
  absl::flat_hash_set<int64_t> collective_ids_;
};

}  // namespace

absl::StatusOr<StepProgram> BuildSteps(const LinearProgram& program, const BufferAssignment& assignment,
                                       const StepOptions& options) {
  StepBuilder builder(assignment, options);
  google::protobuf::RepeatedPtrField<Step> steps;
  XLAD_RETURN_IF_ERROR(builder.Add(program.ops, &steps));
  XLAD_ASSIGN_OR_RETURN(StepProgram result, builder.Finish());
  result.steps.assign(std::make_move_iterator(steps.begin()), std::make_move_iterator(steps.end()));
  return result;
}

}  // namespace xlad::compiler
