#include "runtime/devices/cuda/gpu_attention.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <vector>

#include "base/rounding.h"
#include "runtime/devices/cpu/attention_program.h"
#include "runtime/devices/cuda/gpu_attention_kernels.h"

XLAD_EMBED_PTX(xlad_gpu_attention_kernels, XLAD_GPU_ATTENTION_KERNELS);  // The PTX of gpu_attention_kernels.c.

namespace xlad::runtime::cuda {
namespace {

using tensor::ElementType;

#define XLAD_CHECK_ROW_OPCODE(name) static_assert(static_cast<int>(RowOpcode::k##name) == XLAD_ROW_##name);
XLAD_ROW_OPCODES(XLAD_CHECK_ROW_OPCODE)
#undef XLAD_CHECK_ROW_OPCODE

// The number of tasks to aim for, and the largest number of thread blocks: about one block for each multiprocessor of a
// large GPU. It is a constant, so that the order of sums does not depend on the GPU. It is not larger, because every
// thread block needs scratch memory.
constexpr int64_t kWantedTasks = 128;

XladElement KernelElementOf(ElementType type) {
  switch (type) {
    case ElementType::kBF16:
      return XLAD_BF16;
    case ElementType::kF16:
      return XLAD_F16;
    case ElementType::kS32:
      return XLAD_S32;
    case ElementType::kPred:
      return XLAD_PRED;
    default:
      return XLAD_F32;
  }
}

// Writes an AttentionProgram in the form that the kernels read.
class ProblemWriter {
 public:
  explicit ProblemWriter(const AttentionProgram& program) : program_(program) {}

  // Returns nullopt if the program is larger than a problem can be.
  std::optional<XladAttentionProblem> Write() {
    if (!Fits()) return std::nullopt;
    WriteSizes();
    for (const AttentionArray& array : program_.operands) problem_.array[problem_.arrays++] = ArrayOf(array);
    for (const AttentionResult& result : program_.results) problem_.array[problem_.arrays++] = ArrayOf(result.array);
    for (const AttentionProduct& product : program_.products) {
      const XladElement left = ElementOf(product.left), right = ElementOf(product.right);
      problem_.product[problem_.products++] = {product.left, product.right, SlotOf(product.slot).number,
                                               left == right ? left : XLAD_F32, product.depth};
    }
    for (const AttentionStep& step : program_.steps) problem_.step[problem_.steps++] = StepOf(step);
    for (const AttentionResult& result : program_.results) AddResult(result);
    for (const uint32_t bits : program_.constants) problem_.constant[problem_.constants++] = bits;
    WritePartition();
    return problem_;
  }

 private:
  bool Fits() const {
    return program_.batch.size() <= XLAD_ATTENTION_DIMS && program_.rows.size() <= XLAD_ATTENTION_DIMS &&
           program_.operands.size() + program_.results.size() <= XLAD_ATTENTION_ARRAYS &&
           program_.products.size() <= XLAD_ATTENTION_PRODUCTS && program_.steps.size() <= XLAD_ATTENTION_STEPS &&
           program_.constants.size() <= XLAD_ATTENTION_CONSTANTS;
  }

  void WriteSizes() {
    std::fill_n(problem_.batch, XLAD_ATTENTION_DIMS, 1);
    std::fill_n(problem_.rows, XLAD_ATTENTION_DIMS, 1);
    std::copy(program_.batch.begin(), program_.batch.end(), problem_.batch);
    std::copy(program_.rows.begin(), program_.rows.end(), problem_.rows);
    problem_.batches = program_.Batches();
    problem_.all_rows = program_.Rows();
    problem_.columns = program_.columns;
    problem_.row_stride = RoundUp(program_.columns, XLAD_ATTENTION_LANES);
    problem_.narrow_slots = std::max(1, program_.narrow_slots);  // Steps read slot 0 for inputs that they do not have.
    const int64_t wide_slots = program_.tiles + program_.row_slots;
    problem_.block_scratch =
        problem_.narrow_slots * XLAD_ATTENTION_THREADS + wide_slots * XLAD_ATTENTION_ROWS * problem_.row_stride;
  }

  // Divides the rows into pieces and groups of pieces.
  void WritePartition() {
    problem_.block_rows = program_.block_rows;
    problem_.block_pieces = CeilDiv(program_.block_rows, XLAD_ATTENTION_ROWS);
    problem_.pieces = std::ssize(program_.block_columns) * problem_.block_pieces;
    const int64_t wanted = std::clamp<int64_t>(CeilDiv(kWantedTasks, problem_.batches), 1, problem_.pieces);
    problem_.group_pieces = CeilDiv(problem_.pieces, wanted);
    problem_.groups = CeilDiv(problem_.pieces, problem_.group_pieces);
    problem_.tasks = problem_.batches * problem_.groups;
    problem_.blocks = std::min(problem_.tasks, kWantedTasks);
  }

  XladAttentionArray ArrayOf(const AttentionArray& array) const {
    XladAttentionArray to = {};
    const auto strides = array.strides.begin();
    std::copy_n(strides, program_.batch.size(), to.batch);
    std::copy_n(strides + std::ssize(program_.batch), program_.rows.size(), to.rows);
    to.column = array.strides[program_.ColumnDimension()];
    to.feature = array.strides[program_.FeatureDimension()];
    to.element = KernelElementOf(array.type);
    return to;
  }

  XladElement ElementOf(int operand) const { return KernelElementOf(program_.operands[operand].type); }

  // The type of the final contents of a slot: bf16 or f16 if all elements are numbers of this type, otherwise f32. A
  // matrix product that no step rounds has type f32.
  XladElement ElementIn(const AttentionSlot& slot) const {
    const auto last = std::find_if(program_.steps.rbegin(), program_.steps.rend(), [&](const AttentionStep& step) {
      return step.result.kind == slot.kind && step.result.number == slot.number;
    });
    if (last == program_.steps.rend()) return XLAD_F32;
    return last->kind == AttentionStep::Kind::kRead ? ElementOf(last->source) : KernelElementOf(last->rounded_to);
  }

  // Tiles are the first wide slots.
  XladAttentionSlot SlotOf(const AttentionSlot& slot) const {
    switch (slot.kind) {
      case AttentionSlot::Kind::kNarrow:
        return {XLAD_NARROW, slot.number};
      case AttentionSlot::Kind::kTile:
        return {XLAD_WIDE, slot.number};
      case AttentionSlot::Kind::kRow:
        if (program_.has_column_index && slot.number == 0) return {XLAD_COLUMN_INDEX, 0};
        return {XLAD_WIDE, program_.tiles + slot.number};
    }
    return {};
  }

  XladAttentionStep StepOf(const AttentionStep& step) const {
    static constexpr std::array<XladStepKind, 5> kKinds = {XLAD_STEP_APPLY, XLAD_STEP_READ, XLAD_STEP_INDEX,
                                                           XLAD_STEP_MAX, XLAD_STEP_SUM};
    XladAttentionStep to = {};
    to.kind = kKinds[static_cast<size_t>(step.kind)];
    to.opcode = static_cast<int32_t>(step.opcode);
    to.source = step.source;
    const int32_t batch_dims = std::ssize(program_.batch);
    if (step.kind == AttentionStep::Kind::kIndex && step.source >= batch_dims) {
      to.source = XLAD_ATTENTION_DIMS + step.source - batch_dims;
    }
    to.rounded_to = KernelElementOf(step.rounded_to);
    to.check_zero = step.check_zero;
    to.result = SlotOf(step.result);
    for (size_t k = 0; k < step.inputs.size(); ++k) to.inputs[k] = SlotOf(step.inputs[k]);
    return to;
  }

  void AddResult(const AttentionResult& result) {
    XladAttentionResult to = {};
    to.slot = SlotOf(result.slot).number;
    to.operand = result.operand;
    to.array = std::ssize(program_.operands) + problem_.results;
    to.width = result.width;
    to.kind = XLAD_ROW_VALUE;
    const bool is_product = result.kind != AttentionOp::Result::ROW_VALUE;
    const XladElement element = is_product ? ElementOf(result.operand) : XLAD_F32;
    to.mma = element == ElementIn(result.slot) ? element : XLAD_F32;
    if (result.kind == AttentionOp::Result::ROW_PRODUCT) to.kind = XLAD_ROW_PRODUCT;
    if (result.kind == AttentionOp::Result::COLUMN_PRODUCT) {
      to.kind = XLAD_COLUMN_PRODUCT;
      to.sums = problem_.task_sums;
      problem_.task_sums += program_.columns * result.width;
    }
    problem_.result[problem_.results++] = to;
  }

  const AttentionProgram& program_;
  XladAttentionProblem problem_ = {};
};

}  // namespace

const char* GpuAttention::Kernels() { return xlad_gpu_attention_kernels; }

absl::StatusOr<std::unique_ptr<GpuAttention>> GpuAttention::Make(std::shared_ptr<const Gpu> gpu,
                                                                 const CudaModule& module, const AttentionOp& op) {
  XLAD_ASSIGN_OR_RETURN(const AttentionProgram program, ReadAttentionProgram(op));
  const std::optional<XladAttentionProblem> problem = ProblemWriter(program).Write();
  if (!problem.has_value()) return nullptr;
  std::unique_ptr<GpuAttention> attention(new GpuAttention(gpu));
  XLAD_ASSIGN_OR_RETURN(attention->kernel_, module.Find("xlad_attention"));
  attention->blocks_ = problem->blocks;
  if (problem->task_sums > 0) {
    const int64_t blocks = CeilDiv(problem->batches * problem->task_sums, XLAD_ATTENTION_THREADS);
    if (blocks > INT32_MAX) return nullptr;
    XLAD_ASSIGN_OR_RETURN(attention->sums_kernel_, module.Find("xlad_attention_sums"));
    attention->sums_blocks_ = blocks;
  }
  attention->scratch_bytes_ =
      (problem->blocks * problem->block_scratch + problem->tasks * problem->task_sums) * sizeof(float);
  std::vector<std::byte> bytes(sizeof(*problem) + program.block_columns.size() * sizeof(int32_t));
  std::memcpy(bytes.data(), &*problem, sizeof(*problem));
  for (size_t b = 0; b < program.block_columns.size(); ++b) {
    const int32_t columns = program.block_columns[b];
    std::memcpy(bytes.data() + sizeof(*problem) + b * sizeof(columns), &columns, sizeof(columns));
  }
  XLAD_ASSIGN_OR_RETURN(attention->problem_, AllocateCopy(gpu, bytes));
  return attention;
}

GpuAttention::~GpuAttention() {
  if (problem_ != 0) gpu_->Free(problem_);
}

absl::Status GpuAttention::Run(CudaStream* stream, absl::Span<void* const> buffers, DevicePointer scratch) const {
  std::vector<void*> parameters = {reinterpret_cast<void*>(problem_), reinterpret_cast<void*>(scratch)};
  parameters.insert(parameters.end(), buffers.begin(), buffers.end());
  parameters.resize(2 + XLAD_ATTENTION_ARRAYS, nullptr);
  XLAD_RETURN_IF_ERROR(stream->Launch(kernel_, {blocks_, XLAD_ATTENTION_THREADS}, parameters));
  if (sums_kernel_ == nullptr) return absl::OkStatus();
  return stream->Launch(sums_kernel_, {sums_blocks_, XLAD_ATTENTION_THREADS}, parameters);
}

}  // namespace xlad::runtime::cuda
