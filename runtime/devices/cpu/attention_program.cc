#include "runtime/devices/cpu/attention_program.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/rounding.h"
#include "base/sort_distinct.h"
#include "tensor/wire.h"

namespace xlad::runtime {
namespace {

using tensor::ElementType;
using Kind = AttentionSlot::Kind;

absl::Status Misfit(const std::string& found, const std::string& expected) {
  return absl::InvalidArgumentError("library op attention: found " + found + ", expected " + expected);
}

constexpr int64_t kMaxElements = int64_t{1} << 40;

// Whether the type is a float of 16 bits. Its values are computed in f32 and rounded.
bool IsHalf(ElementType type) { return type == ElementType::kBF16 || type == ElementType::kF16; }
bool IsFloat(ElementType type) { return type == ElementType::kF32 || IsHalf(type); }

std::optional<int64_t> Product(absl::Span<const int64_t> sizes) {
  int64_t product = 1;
  for (const int64_t size : sizes) {
    if (size < 1 || size > kMaxElements / product) return std::nullopt;
    product *= size;
  }
  return product;
}

// The opcode of the loops that compute `opcode` for operands of a type, or nullopt if there is none.
std::optional<RowOpcode> RowOpcodeOf(AttentionOp::Opcode opcode, ElementType from, ElementType to) {
  using Op = AttentionOp;
  const bool is_float = IsFloat(from);
  struct Entry {
    Op::Opcode opcode;
    RowOpcode of_floats, of_integers;  // kCopy if there is no such loop.
  };
  constexpr RowOpcode kNone = RowOpcode::kCopy;
  static constexpr Entry kEntries[] = {
      {Op::ADD, RowOpcode::kAdd, RowOpcode::kAddInteger},
      {Op::SUBTRACT, RowOpcode::kSubtract, RowOpcode::kSubtractInteger},
      {Op::MULTIPLY, RowOpcode::kMultiply, RowOpcode::kMultiplyInteger},
      {Op::DIVIDE, RowOpcode::kDivide, kNone},
      {Op::MAXIMUM, RowOpcode::kMaximum, kNone},
      {Op::MINIMUM, RowOpcode::kMinimum, kNone},
      {Op::NEGATE, RowOpcode::kNegate, kNone},
      {Op::ABS, RowOpcode::kAbs, kNone},
      {Op::EXP, RowOpcode::kExp, kNone},
      {Op::TANH, RowOpcode::kTanh, kNone},
      {Op::LOG, RowOpcode::kLog, kNone},
      {Op::AND, kNone, RowOpcode::kAnd},
      {Op::OR, kNone, RowOpcode::kOr},
      {Op::EQUAL, RowOpcode::kEqual, RowOpcode::kEqualInteger},
      {Op::NOT_EQUAL, RowOpcode::kNotEqual, RowOpcode::kNotEqualInteger},
      {Op::GREATER, RowOpcode::kGreater, RowOpcode::kGreaterInteger},
      {Op::GREATER_EQUAL, RowOpcode::kGreaterEqual, RowOpcode::kGreaterEqualInteger},
      {Op::LESS, RowOpcode::kLess, RowOpcode::kLessInteger},
      {Op::LESS_EQUAL, RowOpcode::kLessEqual, RowOpcode::kLessEqualInteger},
  };
  if (opcode == Op::NOT && from == ElementType::kPred) return RowOpcode::kNot;
  if (opcode == Op::SELECT) return RowOpcode::kSelect;
  if (opcode == Op::CONVERT) {
    if (is_float && !IsFloat(to)) return std::nullopt;
    if (to == ElementType::kPred && from != ElementType::kPred) return std::nullopt;
    return !is_float && IsFloat(to) ? RowOpcode::kFromInteger : RowOpcode::kCopy;
  }
  for (const Entry& entry : kEntries) {
    if (entry.opcode != opcode) continue;
    const RowOpcode found = is_float ? entry.of_floats : entry.of_integers;
    if (found == kNone) return std::nullopt;
    return found;
  }
  return std::nullopt;
}

class Reader {
 public:
  explicit Reader(const AttentionOp& op) : op_(op) {}

  absl::StatusOr<AttentionProgram> Read() {
    XLAD_RETURN_IF_ERROR(ReadSizes());
    for (const AttentionOp::Operand& operand : op_.operands()) {
      XLAD_ASSIGN_OR_RETURN(AttentionArray array, ReadArray(operand, 0));
      program_.operands.push_back(std::move(array));
    }
    XLAD_RETURN_IF_ERROR(FindUses());
    ReserveFixedSlots();
    for (int v = 0; v < op_.values_size(); ++v) {
      XLAD_RETURN_IF_ERROR(Annotate(ReadValue(v), absl::StrCat("value ", v)));
    }
    for (const AttentionOp::Result& result : op_.results()) XLAD_RETURN_IF_ERROR(ReadResult(result));
    return std::move(program_);
  }

 private:
  struct State {
    bool wide = false;
    bool in_product = false;  // True if a result is a product of the value.
    int last_use = -1;        // The last value that reads this value.
    AttentionSlot slot;
  };

  absl::Status ReadSizes() {
    program_.batch.assign(op_.batch().begin(), op_.batch().end());
    program_.rows.assign(op_.rows().begin(), op_.rows().end());
    program_.columns = op_.columns();
    program_.block_rows = op_.block_rows();
    sizes_ = program_.batch;
    sizes_.insert(sizes_.end(), program_.rows.begin(), program_.rows.end());
    sizes_.push_back(program_.columns);
    if (!Product(sizes_).has_value() || program_.columns > INT32_MAX || program_.Rows() > INT32_MAX) {
      return Misfit("sizes out of range",
                    "positive sizes, at most 2^31-1 rows and 2^31-1 columns, and at most 2^40 scores");
    }
    if (program_.block_rows < 1 || program_.block_rows > 4096) {
      return Misfit(absl::StrCat("blocks of ", program_.block_rows, " rows"), "1 to 4096");
    }
    program_.block_columns.assign(op_.block_columns().begin(), op_.block_columns().end());
    if (std::ssize(program_.block_columns) != CeilDiv(program_.Rows(), program_.block_rows)) {
      return Misfit(absl::StrCat(program_.block_columns.size(), " numbers of columns"), "one per block of rows");
    }
    for (const int64_t columns : program_.block_columns) {
      if (columns < 1 || columns > program_.columns) {
        return Misfit(absl::StrCat(columns, " columns for a block of rows"), absl::StrCat("1 to ", program_.columns));
      }
    }
    return absl::OkStatus();
  }

  // `width`: the number of features.
  absl::StatusOr<AttentionArray> ReadArray(const AttentionOp::Operand& operand, int64_t width) {
    AttentionArray array;
    array.type = tensor::TypeFromWire(operand.shape());
    array.strides.assign(operand.strides().begin(), operand.strides().end());
    const bool known = IsFloat(array.type) || array.type == ElementType::kS32 || array.type == ElementType::kPred;
    if (!known) return Misfit("an array of another element type", "f32, bf16, f16, s32 or pred");
    if (array.strides.size() != sizes_.size() + 1) {
      return Misfit(absl::StrCat(array.strides.size(), " strides"), absl::StrCat(sizes_.size() + 1));
    }
    const std::optional<int64_t> elements =
        Product(std::vector<int64_t>(operand.shape().dims().begin(), operand.shape().dims().end()));
    int64_t last = 0;
    for (size_t d = 0; d < array.strides.size(); ++d) {
      const int64_t size = d < sizes_.size() ? sizes_[d] : std::max<int64_t>(1, width);
      if (array.strides[d] < 0 || array.strides[d] > kMaxElements / size) {
        return Misfit(absl::StrCat("stride ", array.strides[d]), absl::StrCat("0 to ", kMaxElements / size));
      }
      last += (size - 1) * array.strides[d];
    }
    if (!elements.has_value() || last >= *elements) return Misfit("strides beyond the array's end", "smaller ones");
    return array;
  }

  absl::Status CheckNumber(int64_t number, int64_t end, const char* what) const {
    if (number >= 0 && number < end) return absl::OkStatus();
    if (end < 1) return Misfit(absl::StrCat(what, " ", number), "none");
    return Misfit(absl::StrCat(what, " ", number), absl::StrCat("0 to ", end - 1));
  }

  // Checks the numbers of inputs, operands and values, and finds the last use of each value.
  absl::Status FindUses() {
    states_.resize(op_.values_size());
    for (int v = 0; v < op_.values_size(); ++v) {
      const AttentionOp::Value& value = op_.values(v);
      for (const int input : value.inputs()) {
        XLAD_RETURN_IF_ERROR(CheckNumber(input, v, "input"));
        states_[input].last_use = v;
      }
      for (const int k : value.operands()) XLAD_RETURN_IF_ERROR(CheckNumber(k, op_.operands_size(), "operand"));
    }
    for (const AttentionOp::Result& result : op_.results()) {
      XLAD_RETURN_IF_ERROR(CheckNumber(result.value(), op_.values_size(), "value"));
      states_[result.value()].last_use = op_.values_size();
      if (result.kind() != AttentionOp::Result::ROW_VALUE) states_[result.value()].in_product = true;
    }
    return absl::OkStatus();
  }

  // Constants use the first narrow slots. If a value is a column's index, row slot 0 holds the indices 0, 1, 2, ...
  void ReserveFixedSlots() {
    for (int v = 0; v < op_.values_size(); ++v) {
      const AttentionOp::Value& value = op_.values(v);
      if (value.opcode() == AttentionOp::CONSTANT) {
        const int number = std::ssize(program_.constants);
        states_[v].slot = {Kind::kNarrow, number};
        program_.constants.push_back(value.bits());
      }
      if (value.opcode() == AttentionOp::INDEX && value.dimension() == std::ssize(sizes_) - 1) {
        program_.has_column_index = true;
        states_[v].slot = {Kind::kRow, 0};
        states_[v].wide = true;
      }
    }
    program_.narrow_slots = std::ssize(program_.constants);
    program_.row_slots = program_.has_column_index ? 1 : 0;
  }

  bool IsFixed(int v) const {
    return op_.values(v).opcode() == AttentionOp::CONSTANT ||
           (op_.values(v).opcode() == AttentionOp::INDEX && states_[v].wide);
  }

  int* CountOf(Kind kind) {
    return kind == Kind::kTile ? &program_.tiles : kind == Kind::kRow ? &program_.row_slots : &program_.narrow_slots;
  }

  // Assigns a free slot to value `v`.
  void Allocate(int v) {
    State& state = states_[v];
    const bool is_product = op_.values(v).opcode() == AttentionOp::PRODUCT;
    const Kind kind = !state.wide ? Kind::kNarrow : state.in_product || is_product ? Kind::kTile : Kind::kRow;
    std::vector<int>& free = free_[static_cast<int>(kind)];
    if (free.empty()) {
      state.slot = {kind, (*CountOf(kind))++};
    } else {
      state.slot = {kind, free.back()};
      free.pop_back();
    }
  }

  // The result may use the slot of an input that is not used again, because operations are elementwise.
  void Release(int v) {
    std::vector<int> inputs(op_.values(v).inputs().begin(), op_.values(v).inputs().end());
    SortDistinct(&inputs);
    for (const int input : inputs) {
      if (states_[input].last_use != v || IsFixed(input)) continue;
      free_[static_cast<int>(states_[input].slot.kind)].push_back(states_[input].slot.number);
    }
  }

  absl::Status ReadProduct(int v) {
    const AttentionOp::Value& value = op_.values(v);
    if (value.operands_size() != 2 || value.inputs_size() != 0) {
      return Misfit(
          absl::StrCat("a product of ", value.operands_size(), " operands and ", value.inputs_size(), " values"),
          "2 operands and no value");
    }
    if (value.depth() < 1 || value.depth() > (1 << 20)) return Misfit("a number of features out of range", "1 to 2^20");
    XLAD_RETURN_IF_ERROR(CheckFloat(tensor::TypeFromWire(value)));
    for (const int k : value.operands()) {
      XLAD_RETURN_IF_ERROR(ReadArray(op_.operands(k), value.depth()).status());
      XLAD_RETURN_IF_ERROR(CheckFloat(program_.operands[k].type));
    }
    states_[v].wide = true;
    Allocate(v);
    program_.products.push_back({value.operands(0), value.operands(1), value.depth(), states_[v].slot});
    // All products are computed before the row operations, so they cannot reuse the slots of other values.
    const auto type = tensor::TypeFromWire(value);
    if (!IsHalf(type)) return absl::OkStatus();
    AttentionStep step;
    step.inputs = {states_[v].slot};
    step.result = states_[v].slot;
    step.wide = true;
    step.rounded_to = type;
    program_.steps.push_back(std::move(step));
    return absl::OkStatus();
  }

  static absl::Status CheckFloat(ElementType type) {
    if (IsFloat(type)) return absl::OkStatus();
    return Misfit("another element type in a product or reduction", "f32, bf16 or f16");
  }

  absl::Status ReadValue(int v) {
    const AttentionOp::Value& value = op_.values(v);
    const auto type = tensor::TypeFromWire(value);
    if (value.opcode() == AttentionOp::PRODUCT) {
      if (!program_.steps.empty() && !OnlyRounds()) return Misfit("a product after other values", "products first");
      return ReadProduct(v);
    }
    if (IsFixed(v)) return absl::OkStatus();
    AttentionStep step;
    if (value.opcode() == AttentionOp::READ) {
      if (value.operands_size() != 1) {
        return Misfit(absl::StrCat("a read of ", value.operands_size(), " operands"), "one operand");
      }
      step.kind = AttentionStep::Kind::kRead;
      step.source = value.operands(0);
      step.wide = program_.operands[step.source].strides[program_.ColumnDimension()] != 0;
      if (program_.operands[step.source].type != type) return Misfit("another element type", "that of the operand");
    } else if (value.opcode() == AttentionOp::INDEX) {
      step.kind = AttentionStep::Kind::kIndex;
      XLAD_RETURN_IF_ERROR(CheckNumber(value.dimension(), std::ssize(sizes_), "dimension"));
      step.source = value.dimension();
    } else {
      XLAD_RETURN_IF_ERROR(ReadOperation(v, &step));
    }
    states_[v].wide = step.wide;
    if (states_[v].in_product && !step.wide) return Misfit("a product of a value without columns", "columns");
    Release(v);
    Allocate(v);
    step.result = states_[v].slot;
    if (IsHalf(type) && step.kind != AttentionStep::Kind::kRead) step.rounded_to = type;
    program_.steps.push_back(std::move(step));
    return absl::OkStatus();
  }

  bool OnlyRounds() const {
    return std::all_of(program_.steps.begin(), program_.steps.end(), [](const AttentionStep& step) {
      return step.kind == AttentionStep::Kind::kApply && step.opcode == RowOpcode::kCopy &&
             step.rounded_to != ElementType::kF32 && step.result.kind == Kind::kTile;
    });
  }

  absl::Status ReadOperation(int v, AttentionStep* step) {
    const AttentionOp::Value& value = op_.values(v);
    const auto type = tensor::TypeFromWire(value);
    const int wanted = WantedInputs(value.opcode());
    if (value.inputs_size() != wanted) {
      return Misfit(absl::StrCat(value.inputs_size(), " inputs"), absl::StrCat(wanted));
    }
    for (const int input : value.inputs()) {
      step->inputs.push_back(states_[input].slot);
      step->wide |= states_[input].wide;
    }
    const auto from = tensor::TypeFromWire(op_.values(value.inputs(0)));
    const bool is_max = value.opcode() == AttentionOp::ROW_MAX;
    if (is_max || value.opcode() == AttentionOp::ROW_SUM) {
      if (!step->wide) return Misfit("a reduction of a value without columns", "columns");
      step->wide = false;
      step->kind = is_max ? AttentionStep::Kind::kMax : AttentionStep::Kind::kSum;
      return CheckFloat(from);
    }
    const std::optional<RowOpcode> opcode = RowOpcodeOf(value.opcode(), from, type);
    if (!opcode.has_value()) return Misfit(AttentionOp::Opcode_Name(value.opcode()), "an opcode for this element type");
    step->opcode = *opcode;
    step->check_zero = value.zero_after_block_columns() && step->wide;
    return absl::OkStatus();
  }

  static int WantedInputs(AttentionOp::Opcode opcode) {
    switch (opcode) {
      case AttentionOp::SELECT:
        return 3;
      case AttentionOp::NEGATE:
      case AttentionOp::ABS:
      case AttentionOp::EXP:
      case AttentionOp::TANH:
      case AttentionOp::LOG:
      case AttentionOp::NOT:
      case AttentionOp::CONVERT:
      case AttentionOp::ROW_MAX:
      case AttentionOp::ROW_SUM:
        return 1;
      default:
        return 2;
    }
  }

  absl::Status ReadResult(const AttentionOp::Result& result) {
    AttentionResult read;
    if (!AttentionOp::Result::Kind_IsValid(result.kind())) return Misfit("an unknown kind of result", "a known one");
    read.kind = result.kind();
    read.slot = states_[result.value()].slot;
    const bool is_product = result.kind() != AttentionOp::Result::ROW_VALUE;
    if (is_product != states_[result.value()].wide) {
      return Misfit("a result of the wrong kind", "a product of a value with columns, or a value without columns");
    }
    if (is_product) {
      // The index of the column is in a row slot, but products read tiles.
      if (read.slot.kind != Kind::kTile) return Misfit("a product of a column's index", "other values");
      XLAD_RETURN_IF_ERROR(CheckFloat(tensor::TypeFromWire(op_.values(result.value()))));
      read.operand = result.operand();
      read.width = result.width();
      XLAD_RETURN_IF_ERROR(CheckNumber(read.operand, op_.operands_size(), "operand"));
      if (read.width < 1 || read.width > (1 << 20)) return Misfit("a number of features out of range", "1 to 2^20");
      XLAD_RETURN_IF_ERROR(ReadArray(op_.operands(read.operand), read.width).status());
      XLAD_RETURN_IF_ERROR(CheckFloat(program_.operands[read.operand].type));
    }
    XLAD_ASSIGN_OR_RETURN(read.array, ReadArray(result.array(), result.width()));
    if (is_product) XLAD_RETURN_IF_ERROR(CheckFloat(read.array.type));
    read.number = counts_[is_product ? result.kind() : AttentionOp::Result::ROW_VALUE]++;
    program_.results.push_back(std::move(read));
    return absl::OkStatus();
  }

  const AttentionOp& op_;
  AttentionProgram program_;
  std::vector<int64_t> sizes_;  // The sizes of the dimensions of the batch, the rows and the columns.
  std::vector<State> states_;   // Indexed by value.
  std::vector<int> free_[3];    // Indexed by kind of slot.
  int counts_[3] = {0, 0, 0};
};

}  // namespace

int64_t AttentionProgram::Batches() const { return Product(batch).value_or(0); }
int64_t AttentionProgram::Rows() const { return Product(rows).value_or(0); }

absl::StatusOr<AttentionProgram> ReadAttentionProgram(const AttentionOp& op) { return Reader(op).Read(); }

}  // namespace xlad::runtime
