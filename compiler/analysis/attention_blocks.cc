#include "compiler/analysis/attention_blocks.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "base/rounding.h"
#include "compiler/analysis/attention_op.h"
#include "compiler/analysis/hlo_names.h"
#include "tensor/wire.h"

namespace xlad::compiler {
namespace {

// An integer value as a linear function of the positions in batch, rows and column.
struct Linear {
  int64_t constant = 0;
  std::vector<int64_t> factors;
};

// What is known about a value in the masked columns.
enum class Tail {
  kAny,
  kUniform,  // Within a row, all masked columns have the same value.
  kZero,     // The value is zero if the checks at run time succeed.
};

class MaskAnalysis {
 public:
  explicit MaskAnalysis(AttentionOp* op) : op_(*op) {
    column_ = op_.batch_size() + op_.rows_size();
    for (const int64_t size : op_.rows()) rows_ *= size;
  }

  void Run() {
    op_.set_block_rows(BlockRows());
    const std::vector<int64_t> all(CeilDiv(rows_, op_.block_rows()), op_.columns());
    std::vector<int64_t> columns = all;
    if (FindTails()) {
      for (const int64_t block : tensor::Indices(columns)) columns[block] = ColumnsOf(block);
    }
    if (columns == all) {
      for (AttentionOp::Value& value : *op_.mutable_values()) value.set_zero_after_block_columns(false);
    }
    op_.mutable_block_columns()->Assign(columns.begin(), columns.end());
  }

 private:
  // The scores and operands of a block should fit into the second-level cache together. A register tile has 12 rows.
  int64_t BlockRows() const {
    const int64_t columns = op_.columns();
    // If blocks have fewer rows, more masked columns can be skipped.
    const int64_t rows = columns <= 2048 ? std::clamp<int64_t>(RoundUp(columns / 8, 12), 24, 48) : 24;
    return std::min(columns <= 8192 ? rows : 12, rows_);
  }

  // Returns the value as a linear function, or nullopt if it is not known to be one. A sum that may wrap around is not
  // linear, and neither is a conversion to f32 that may round. linear_ must contain the inputs of the value.
  std::optional<Linear> LinearOf(const AttentionOp::Value& value) const {
    Linear linear;
    linear.factors.assign(column_ + 1, 0);
    switch (value.opcode()) {
      case AttentionOp::INDEX:
        linear.factors[value.dimension()] = SizeOf(value.dimension()) > 1 ? 1 : 0;
        return linear;
      case AttentionOp::CONSTANT:
        if (tensor::TypeFromWire(value) != ElementType::kS32) return std::nullopt;
        linear.constant = static_cast<int32_t>(value.bits());
        return linear;
      case AttentionOp::ADD:
      case AttentionOp::SUBTRACT: {
        if (tensor::TypeFromWire(value) != ElementType::kS32) return std::nullopt;
        const std::optional<Linear>&x = linear_[value.inputs(0)], &y = linear_[value.inputs(1)];
        if (!x.has_value() || !y.has_value()) return std::nullopt;
        return AtMost(std::numeric_limits<int32_t>::max(), Sum(*x, *y, value.opcode() == AttentionOp::ADD ? 1 : -1));
      }
      case AttentionOp::CONVERT: {  // Positions are usually small enough to be exact in f32, but not in bf16.
        const std::optional<Linear>& x = linear_[value.inputs(0)];
        if (tensor::TypeFromWire(value) != ElementType::kF32 || !x.has_value()) return std::nullopt;
        return AtMost(1 << 24, *x);
      }
      default:
        return std::nullopt;
    }
  }

  static Linear Sum(const Linear& x, const Linear& y, int64_t factor) {
    Linear sum = x;
    sum.constant += factor * y.constant;
    for (size_t d = 0; d < sum.factors.size(); ++d) sum.factors[d] += factor * y.factors[d];
    return sum;
  }

  // Returns x if its magnitude is at most `limit` at all positions.
  std::optional<Linear> AtMost(int64_t limit, Linear x) const {
    int64_t low = x.constant, high = x.constant;
    for (int d = 0; d <= column_; ++d) {
      const int64_t factor = x.factors[d], last = SizeOf(d) - 1;
      if (factor != 0 && last > 2 * limit / std::abs(factor)) return std::nullopt;
      (factor < 0 ? low : high) += factor * last;
    }
    return low >= -limit && high <= limit ? std::optional<Linear>(std::move(x)) : std::nullopt;
  }

  // The size of a dimension, counted as in Operand.strides.
  int64_t SizeOf(int d) const {
    if (d < op_.batch_size()) return op_.batch(d);
    return d < column_ ? op_.rows(d - op_.batch_size()) : op_.columns();
  }

  static AttentionOp::Opcode Opposite(AttentionOp::Opcode comparison) {
    switch (comparison) {
      case AttentionOp::GREATER: return AttentionOp::LESS_EQUAL;
      case AttentionOp::GREATER_EQUAL: return AttentionOp::LESS;
      case AttentionOp::LESS: return AttentionOp::GREATER_EQUAL;
      case AttentionOp::LESS_EQUAL: return AttentionOp::GREATER;
      case AttentionOp::EQUAL: return AttentionOp::NOT_EQUAL;
      default: return AttentionOp::EQUAL;
    }
  }

  // The number of columns of a row up to and including the last one in which a predicate (or its negation) may be true.
  // `position` has the indices in batch and rows. The batch indices are not used.
  int64_t LastTrue(int v, bool negated, const std::vector<int64_t>& position) const {
    const AttentionOp::Value& value = op_.values(v);
    switch (value.opcode()) {
      case AttentionOp::NOT:
        return LastTrue(value.inputs(0), !negated, position);
      case AttentionOp::AND:
      case AttentionOp::OR: {
        const int64_t x = LastTrue(value.inputs(0), negated, position);
        const int64_t y = LastTrue(value.inputs(1), negated, position);
        return (value.opcode() == AttentionOp::AND) != negated ? std::min(x, y) : std::max(x, y);
      }
      case AttentionOp::CONVERT:
        return LastTrue(value.inputs(0), negated, position);
      case AttentionOp::SELECT: {
        const auto chosen = [&](int input, bool otherwise) {
          return std::min(LastTrue(value.inputs(0), otherwise, position), LastTrue(input, negated, position));
        };
        return std::max(chosen(value.inputs(1), false), chosen(value.inputs(2), true));
      }
      case AttentionOp::CONSTANT:
        return (value.bits() != 0) != negated ? op_.columns() : 0;
      case AttentionOp::EQUAL:
      case AttentionOp::NOT_EQUAL:
      case AttentionOp::GREATER:
      case AttentionOp::GREATER_EQUAL:
      case AttentionOp::LESS:
      case AttentionOp::LESS_EQUAL:
        return LastTrueComparison(value, negated ? Opposite(value.opcode()) : value.opcode(), position);
      default:
        return op_.columns();
    }
  }

  // For x - y = rest - factor * column with factor > 0, the comparisons >, >= and = of x with y are false after some
  // column.
  int64_t LastTrueComparison(const AttentionOp::Value& value, AttentionOp::Opcode comparison,
                             const std::vector<int64_t>& position) const {
    const std::optional<Linear>&x = linear_[value.inputs(0)], &y = linear_[value.inputs(1)];
    if (!x.has_value() || !y.has_value()) return op_.columns();
    const Linear difference = Sum(*x, *y, -1);
    int64_t rest = difference.constant, factor = -difference.factors[column_];
    for (int d = 0; d < column_; ++d) {
      if (difference.factors[d] != 0 && d < op_.batch_size()) return op_.columns();
      rest += difference.factors[d] * position[d];
    }
    bool or_equal = comparison == AttentionOp::GREATER_EQUAL || comparison == AttentionOp::EQUAL;
    bool greater = or_equal || comparison == AttentionOp::GREATER;
    if (factor < 0 && comparison != AttentionOp::EQUAL) {  // Exchange x and y.
      rest = -rest;
      factor = -factor;
      or_equal = comparison == AttentionOp::LESS_EQUAL;
      greater = or_equal || comparison == AttentionOp::LESS;
    }
    if (factor <= 0 || !greater) return op_.columns();
    // The predicate is false after the last column with rest - factor * column >= 0, or > 0 if equality is excluded.
    const int64_t bound = or_equal ? rest : rest - 1;
    return bound < 0 ? 0 : std::min(op_.columns(), bound / factor + 1);
  }

  // Whether the predicate (or its negation) is known to be false in the last columns of the first row.
  bool Ends(int v, bool negated) const {
    std::vector<int64_t> position(column_, 0);
    return LastTrue(v, negated, position) < op_.columns();
  }

  Tail OfSelect(const AttentionOp::Value& value) {
    for (const bool negated : {false, true}) {
      if (!Ends(value.inputs(0), negated)) continue;
      masks_.emplace_back(value.inputs(0), negated);
      return tails_[value.inputs(negated ? 1 : 2)];
    }
    const Tail x = tails_[value.inputs(1)], y = tails_[value.inputs(2)];
    return x == Tail::kZero && y == Tail::kZero ? Tail::kZero : Tail::kAny;
  }

  Tail TailOf(AttentionOp::Value* value) {
    Tail least = Tail::kZero, most = Tail::kAny;
    for (const int input : value->inputs()) {
      const Tail tail = tails_[input];
      least = std::min(least, tail);
      most = std::max(most, tail);
    }
    const Tail uniform = std::min(least, Tail::kUniform);
    switch (value->opcode()) {
      case AttentionOp::PRODUCT:
        return Tail::kAny;
      case AttentionOp::READ:
        return op_.operands(value->operands(0)).strides(column_) == 0 ? Tail::kUniform : Tail::kAny;
      case AttentionOp::CONSTANT:
        return value->bits() == 0 ? Tail::kZero : Tail::kUniform;
      case AttentionOp::INDEX:
        return value->dimension() == column_ ? Tail::kAny : Tail::kUniform;
      case AttentionOp::SELECT:
        return OfSelect(*value);
      case AttentionOp::EXP:
        value->set_zero_after_block_columns(least == Tail::kUniform);
        return least == Tail::kUniform ? Tail::kZero : uniform;
      case AttentionOp::MULTIPLY:
        return most == Tail::kZero ? Tail::kZero : uniform;
      case AttentionOp::DIVIDE:
        return tails_[value->inputs(0)] == Tail::kZero ? Tail::kZero : uniform;
      case AttentionOp::ADD:
      case AttentionOp::SUBTRACT:
      case AttentionOp::MAXIMUM:
      case AttentionOp::MINIMUM:
      case AttentionOp::NEGATE:
      case AttentionOp::ABS:
      case AttentionOp::TANH:
        return least;
      case AttentionOp::CONVERT:
        return OfConvert(*value, least);
      case AttentionOp::ROW_MAX:
        if (least == Tail::kAny) valid_ = false;
        return Tail::kUniform;
      case AttentionOp::ROW_SUM:
        if (least != Tail::kZero) valid_ = false;
        return Tail::kUniform;
      default:
        return uniform;
    }
  }

  Tail OfConvert(const AttentionOp::Value& value, Tail least) {
    const bool mask = tensor::TypeFromWire(op_.values(value.inputs(0))) == ElementType::kPred;
    if (!mask || !Ends(value.inputs(0), false)) return least;
    masks_.emplace_back(value.inputs(0), false);
    return Tail::kZero;
  }

  // Returns whether there are masks and all reductions and products can skip the masked columns. The operands of sums
  // and products must be zero in these columns. The operands of row maxima must have the same value in all masked
  // columns of a row.
  bool FindTails() {
    for (AttentionOp::Value& value : *op_.mutable_values()) {
      linear_.push_back(LinearOf(value));
      const bool wide = IsWide(op_, value, wide_), constant = value.opcode() == AttentionOp::CONSTANT;
      const bool reduction = value.opcode() == AttentionOp::ROW_MAX || value.opcode() == AttentionOp::ROW_SUM;
      tails_.push_back(wide || constant || reduction ? TailOf(&value) : Tail::kUniform);
      wide_.push_back(wide);
    }
    for (const AttentionOp::Result& result : op_.results()) {
      const bool is_product = result.kind() != AttentionOp::Result::ROW_VALUE;
      if (is_product && tails_[result.value()] != Tail::kZero) valid_ = false;
    }
    return valid_ && !masks_.empty();
  }

  // The number of columns that a block computes. If the block has masked columns, one of them is included, because the
  // checks at run time use its values. The number is rounded up to a multiple of 16, but is at most the number of
  // columns of the op.
  int64_t ColumnsOf(int64_t block) const {
    std::vector<int64_t> position(column_, 0);
    int64_t columns = 0;
    const int64_t first = block * op_.block_rows(), last = std::min(rows_, first + op_.block_rows());
    for (int64_t row = first; row < last; ++row) {
      int64_t rest = row;
      for (int d = op_.rows_size() - 1; d >= 0; rest /= op_.rows(d--)) {
        position[op_.batch_size() + d] = rest % op_.rows(d);
      }
      for (const auto& [mask, negated] : masks_) columns = std::max(columns, LastTrue(mask, negated, position));
    }
    return std::min(op_.columns(), RoundUp(columns + 1, 16));
  }

  AttentionOp& op_;
  int column_ = 0;  // The position of the column in Operand.strides.
  int64_t rows_ = 1;
  // One for each value of op_.
  std::vector<std::optional<Linear>> linear_;
  std::vector<Tail> tails_;
  std::vector<bool> wide_;
  // Predicates that are false in the masked columns. If the second member is true, the predicate's negation is false
  // there instead.
  std::vector<std::pair<int, bool>> masks_;
  bool valid_ = true;
};

}  // namespace

void ChooseBlocks(AttentionOp* op) { MaskAnalysis(op).Run(); }

}  // namespace xlad::compiler
