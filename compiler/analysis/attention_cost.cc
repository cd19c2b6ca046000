#include "compiler/analysis/attention_cost.h"

#include <algorithm>
#include <cmath>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/string_view.h"
#include "base/rounding.h"
#include "compiler/analysis/attention_op.h"
#include "hlo/analysis/counts.h"
#include "tensor/wire.h"

namespace xlad::compiler {
namespace {

// The terms of a library op, in nanoseconds, fitted by bench/attention_cost/attention_cost.py --fit.
constexpr CostTerm kFused[] = {
    {"call", 0, 100},          // Library ops.
    {"batch", 0, 230},         // Batch entries.
    {"multiply", 0, 0.016},    // Multiplications in products.
    {"scores", 0, 0.43},       // Elements of products that compute scores.
    {"sums", 0, 0.06},         // Elements that a block adds to the results of products over rows.
    {"expensive", 0, 0.025},   // Elements of exp, tanh and log.
    {"round", 0, 0.02},        // Elements that are rounded to 16 bits.
    {"chunk_step", 0, 65},     // Operations, each on a chunk of rows that fits into the first-level cache.
    {"transposed", 0, 0.02},   // Elements of operands that are transposed.
    {"packed", 0, 0.71},       // Other elements of operands and results that are copied.
    {"stored_half", 0, 0.17},  // Elements of results that are converted to 16 bits.
};
constexpr CostTerm kSeparate[] = {
    {"call", 0, 70},               // Products.
    {"batch", 0, 415},             // Batch entries of the products.
    {"multiply", 0, 0.02},         // Multiplications of the products in f32.
    {"multiply_bf16", 0, 0.0065},  // Multiplications of the products in bf16.
    {"widened", 0, 0.4},           // Elements of f16 that the products convert from or to f32.
    {"cheap", 0, 0.08},            // Elements of operations on scores.
    {"select", 0, 0.17},           // Elements of comparisons and selects.
    {"round", 0, 0.19},            // Elements that are rounded to 16 bits.
    {"expensive", 0, 0.46},        // Elements of exp, tanh and log.
    {"reduced", 0, 0.015},         // Elements of operands of reductions.
    {"rest", 0, 1},                // Reduced elements in the last, incomplete group of lanes of each row.
    {"near_bytes", 0, 0.002},      // Bytes of scores that are written or read in a cache of the core.
    {"far_bytes", 0, 0.045},       // Bytes of scores that are written or read outside of caches of the core.
};

// The number of floats in a vector, and the maximum numbers of rows and of elements in a chunk. An operation is applied
// to one chunk at a time (runtime/devices/cpu/attention.cc). The chunks of the library op have up to 32 rows and are
// padded to 32 columns. The constants above were fitted to the counts here, and must be measured again if these change.
constexpr int64_t kLanes = 16, kMaxChunkRows = 16, kChunkElements = 2048;
// The lanes of a reduction along a row (compiler/kernel). Columns in the last, incomplete group of lanes are not
// vectorized.
constexpr int64_t kReductionLanes = 64;
// Larger arrays of scores do not stay in the second-level cache from one step to the next.
constexpr double kCacheBytes = 1 << 20;

// Whether values of the type are computed in f32 and rounded to 16 bits.
bool IsHalf(ElementType type) {
  return type == ElementType::kBF16 || type == ElementType::kF16;
}

void Count(absl::string_view name, double count, CostTerms* terms) {
  for (CostTerm& term : *terms) {
    if (term.name == name) term.count += count;
  }
}

// Counts the work of one library op.
class FusedCounter {
 public:
  FusedCounter(const AttentionOp& op, CostTerms* terms) : op_(op), terms_(*terms) {
    for (const int64_t size : op_.batch()) batches_ *= static_cast<double>(size);
    for (const int64_t size : op_.rows()) rows_ *= size;
    int64_t left = rows_;
    for (int block = 0; block < op_.block_columns_size(); ++block, left -= op_.block_rows()) {
      const int64_t columns = op_.block_columns(block);
      computed_ += static_cast<double>(std::min(left, op_.block_rows()) * columns);
      block_columns_ += static_cast<double>(columns);
    }
  }

  void Run() {
    Add("call", 1 / batches_);
    Add("batch", 1);
    for (const AttentionOp::Value& value : op_.values()) CountValue(value);
    for (const AttentionOp::Result& result : op_.results()) CountResult(result);
    const auto rows = static_cast<double>(rows_);
    const int64_t chunk = std::clamp<int64_t>(kChunkElements / RoundUp(op_.columns(), kLanes), 1, kMaxChunkRows);
    Add("chunk_step", std::ceil(rows / static_cast<double>(std::min(chunk, op_.block_rows()))) * steps_);
  }

 private:
  // `count` is the count for one batch entry.
  void Add(absl::string_view name, double count) { Count(name, batches_ * count, &terms_); }

  // Whether the library op uses rows of the operand without copying them.
  bool IsDirect(int operand) const {
    const AttentionOp::Operand& array = op_.operands(operand);
    return tensor::TypeFromWire(array.shape()) == ElementType::kF32 && op_.rows_size() == 1 &&
           array.strides(op_.batch_size() + op_.rows_size() + 1) == 1;
  }

  void CountValue(const AttentionOp::Value& value) {
    wide_.push_back(IsWide(op_, value, wide_));
    const auto rows = static_cast<double>(rows_), columns = static_cast<double>(op_.columns());
    switch (value.opcode()) {
      case AttentionOp::PRODUCT: {
        const auto depth = static_cast<double>(value.depth());
        Add("multiply", computed_ * depth);
        Add("scores", computed_);
        Add("transposed", columns * depth);
        if (!IsDirect(value.operands(0))) Add("packed", rows * depth);
        break;
      }
      case AttentionOp::CONSTANT:
        return;
      case AttentionOp::INDEX:
        if (wide_.back()) return;
        break;
      case AttentionOp::EXP:
      case AttentionOp::TANH:
      case AttentionOp::LOG:
        if (wide_.back()) Add("expensive", computed_);
        break;
      default:
        break;
    }
    const bool is_step = value.opcode() != AttentionOp::PRODUCT;
    const bool rounds = IsHalf(tensor::TypeFromWire(value)) && value.opcode() != AttentionOp::READ;
    if (rounds && wide_.back()) Add("round", computed_);
    const double count = (is_step ? 1 : 0) + (rounds ? 1 : 0);
    steps_ += count;
  }

  void CountResult(const AttentionOp::Result& result) {
    if (result.kind() == AttentionOp::Result::ROW_VALUE) return;
    const auto width = static_cast<double>(result.width()), rows = static_cast<double>(rows_);
    const auto columns = static_cast<double>(op_.columns());
    Add("multiply", computed_ * static_cast<double>(RoundUp(result.width(), kLanes)));
    const bool is_row_product = result.kind() == AttentionOp::Result::ROW_PRODUCT;
    const bool is_half = IsHalf(tensor::TypeFromWire(result.array().shape()));
    Add(is_half ? "stored_half" : "packed", (is_row_product ? rows : columns) * width);
    if (is_row_product) {
      Add("packed", columns * width);
    } else {
      Add("sums", block_columns_ * width);
      if (!IsDirect(result.operand()) || result.width() % kLanes != 0) Add("packed", rows * width);
    }
  }

  const AttentionOp& op_;
  CostTerms& terms_;
  double batches_ = 1;
  int64_t rows_ = 1;
  // For one batch entry: the number of scores that are computed, and the sum of the columns of all blocks.
  double computed_ = 0, block_columns_ = 0;
  std::vector<bool> wide_;  // For each value that has been counted, whether it has one element for each column.
  double steps_ = 0;        // The number of operations on each chunk.
};

// Counts the work of separate steps.
class SeparateCounter {
 public:
  SeparateCounter(const ScoreSpace& space, CostTerms* terms) : space_(space), terms_(*terms) {
    for (const int d : space_.batch()) batches_ *= static_cast<double>(space_.SizeOf(d));
    scores_ = batches_ * static_cast<double>(space_.SizeOf(space_.column()));
    for (const int d : space_.rows()) scores_ *= static_cast<double>(space_.SizeOf(d));
  }

  void Add(const Instruction& at) {
    if (at.opcode() == Opcode::kDot) return AddDot(at);
    if (at.opcode() == Opcode::kReduce) return AddReduction();
    if (!space_.IsFull(at)) return;
    const bool is_moved = at.opcode() == Opcode::kBroadcast || at.opcode() == Opcode::kReshape;
    if (IsHalf(at.shape().type()) && !is_moved) Count("round", scores_, &terms_);
    switch (at.opcode()) {
      case Opcode::kExponential:
      case Opcode::kTanh:
      case Opcode::kLog:
        return Count("expensive", scores_, &terms_);
      case Opcode::kSelect:
      case Opcode::kCompare:
        return Count("select", scores_, &terms_);
      case Opcode::kBroadcast:
      case Opcode::kIota:
      case Opcode::kReshape:
      case Opcode::kConstant:
        return;
      default:
        return Count("cheap", scores_, &terms_);
    }
  }

 private:
  bool IsScores(const Instruction& value) const { return space_.IsFull(value) && space_.DependsOnScores(value); }

  void AddReduction() {
    const int64_t columns = space_.SizeOf(space_.column());
    Count("reduced", scores_, &terms_);
    Count("rest", scores_ / static_cast<double>(columns) * static_cast<double>(columns % kReductionLanes), &terms_);
  }

  void AddDot(const Instruction& dot) {
    Count("call", 1, &terms_);
    Count("batch", batches_, &terms_);
    const bool is_bf16 = dot.operand(0)->shape().type() == ElementType::kBF16;
    Count(is_bf16 ? "multiply_bf16" : "multiply",
          static_cast<double>(dot.shape().elements()) * hlo::ContractedElements(dot), &terms_);
    for (const Shape* shape : {&dot.operand(0)->shape(), &dot.operand(1)->shape(), &dot.shape()}) {
      if (shape->type() == ElementType::kF16) Count("widened", static_cast<double>(shape->elements()), &terms_);
    }
    if (space_.IsScoreProduct(dot)) Move(dot, 2);  // The scores are written once and read once.
    for (const Instruction* operand : dot.operands()) {
      if (!IsScores(*operand) || space_.IsScoreProduct(*operand)) continue;
      Move(*operand, stored_.insert(operand).second ? 2 : 1);
    }
  }

  void Move(const Instruction& value, double times) {
    const auto bytes = static_cast<double>(value.shape().bytes());
    Count(bytes > kCacheBytes ? "far_bytes" : "near_bytes", times * bytes, &terms_);
  }

  const ScoreSpace& space_;
  CostTerms& terms_;
  double batches_ = 1, scores_ = 0;
  absl::flat_hash_set<const Instruction*> stored_;
};

}  // namespace

double TotalNs(const CostTerms& terms) {
  double ns = 0;
  for (const CostTerm& term : terms) ns += term.count * term.ns;
  return ns;
}

void AddFusedTerms(const AttentionOp& op, CostTerms* terms) {
  if (terms->empty()) terms->assign(std::begin(kFused), std::end(kFused));
  FusedCounter(op, terms).Run();
}

CostTerms SeparateTerms(const std::vector<const Instruction*>& instructions, const ScoreSpace& space) {
  CostTerms terms(std::begin(kSeparate), std::end(kSeparate));
  SeparateCounter counter(space, &terms);
  for (const Instruction* instruction : instructions) counter.Add(*instruction);
  return terms;
}

}  // namespace xlad::compiler
