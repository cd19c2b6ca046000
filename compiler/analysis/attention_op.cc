#include "compiler/analysis/attention_op.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "base/containers.h"
#include "compiler/analysis/attention_blocks.h"
#include "compiler/analysis/plain_reducer.h"
#include "hlo/analysis/constants.h"
#include "tensor/wire.h"

namespace xlad::compiler {
namespace {

bool IsFloat(ElementType type) {
  return type == ElementType::kF32 || type == ElementType::kBF16 || type == ElementType::kF16;
}
bool IsKnown(ElementType type) {
  return IsFloat(type) || type == ElementType::kS32 || type == ElementType::kPred;
}

AttentionOp::Opcode ComparisonOf(hlo::Comparison comparison) {
  switch (comparison) {
    case hlo::Comparison::kEq: return AttentionOp::EQUAL;
    case hlo::Comparison::kNe: return AttentionOp::NOT_EQUAL;
    case hlo::Comparison::kGe: return AttentionOp::GREATER_EQUAL;
    case hlo::Comparison::kGt: return AttentionOp::GREATER;
    case hlo::Comparison::kLe: return AttentionOp::LESS_EQUAL;
    case hlo::Comparison::kLt: return AttentionOp::LESS;
  }
  return AttentionOp::OPCODE_UNSPECIFIED;
}

// An elementwise opcode, and whether it is supported with results of floats (f32, bf16, f16), of s32 and of pred.
struct Entry {
  Opcode from;
  AttentionOp::Opcode to;
  bool floats, integers, predicates;
};
constexpr Entry kEntries[] = {
    {Opcode::kAdd, AttentionOp::ADD, true, true, false},
    {Opcode::kSubtract, AttentionOp::SUBTRACT, true, true, false},
    {Opcode::kMultiply, AttentionOp::MULTIPLY, true, true, false},
    {Opcode::kDivide, AttentionOp::DIVIDE, true, false, false},
    {Opcode::kMaximum, AttentionOp::MAXIMUM, true, false, false},
    {Opcode::kMinimum, AttentionOp::MINIMUM, true, false, false},
    {Opcode::kNegate, AttentionOp::NEGATE, true, false, false},
    {Opcode::kAbs, AttentionOp::ABS, true, false, false},
    {Opcode::kExponential, AttentionOp::EXP, true, false, false},
    {Opcode::kTanh, AttentionOp::TANH, true, false, false},
    {Opcode::kLog, AttentionOp::LOG, true, false, false},
    {Opcode::kSelect, AttentionOp::SELECT, true, true, true},
    {Opcode::kAnd, AttentionOp::AND, false, false, true},
    {Opcode::kOr, AttentionOp::OR, false, false, true},
    {Opcode::kNot, AttentionOp::NOT, false, false, true},
};

AttentionOp::Opcode OpcodeOf(const Instruction& instruction) {
  const ElementType type = instruction.shape().type();
  if (instruction.opcode() == Opcode::kCompare) {
    const ElementType from = instruction.operand(0)->shape().type();
    const hlo::ComparisonType kind = instruction.attributes().comparison_type;
    const bool usual = kind == hlo::ComparisonType::kDefault || kind == hlo::ComparisonType::kFloat ||
                       kind == hlo::ComparisonType::kSigned;
    if (!usual || !(IsFloat(from) || from == ElementType::kS32)) return AttentionOp::OPCODE_UNSPECIFIED;
    return ComparisonOf(instruction.attributes().comparison);
  }
  if (instruction.opcode() == Opcode::kConvert) {
    const ElementType from = instruction.operand(0)->shape().type();
    const bool fits = IsKnown(from) && (IsFloat(type) || (type == from) ||
                                        (from == ElementType::kPred && type == ElementType::kS32));
    return fits ? AttentionOp::CONVERT : AttentionOp::OPCODE_UNSPECIFIED;
  }
  for (const Entry& entry : kEntries) {
    if (entry.from != instruction.opcode()) continue;
    const bool fits = IsFloat(type) ? entry.floats : type == ElementType::kS32 ? entry.integers : entry.predicates;
    return fits && IsKnown(type) ? entry.to : AttentionOp::OPCODE_UNSPECIFIED;
  }
  return AttentionOp::OPCODE_UNSPECIFIED;
}

// ROW_MAX or ROW_SUM if the instruction is such a reduction over the columns that starts from its neutral element;
// otherwise OPCODE_UNSPECIFIED.
AttentionOp::Opcode ReductionOf(const Instruction& reduce, const ScoreSpace& space) {
  if (reduce.opcode() != Opcode::kReduce || reduce.operand_count() != 2 || !IsFloat(reduce.shape().type())) {
    return AttentionOp::OPCODE_UNSPECIFIED;
  }
  const ScoreDims* dims = space.DimsOf(*reduce.operand(0));
  if (dims == nullptr || !space.IsFull(*reduce.operand(0))) return AttentionOp::OPCODE_UNSPECIFIED;
  bool only_columns = true, columns = false;
  for (const int64_t d : reduce.dimensions()) {
    only_columns &= (*dims)[d] < 0 || (*dims)[d] == space.column();
    columns |= (*dims)[d] == space.column();
  }
  const std::optional<double> start = hlo::SplatValue(*reduce.operand(1));
  const std::optional<Opcode> plain = PlainReducer(*reduce.called()[0]);
  if (!only_columns || !columns || !start.has_value()) return AttentionOp::OPCODE_UNSPECIFIED;
  if (plain == Opcode::kMaximum && std::isinf(*start) && *start < 0) return AttentionOp::ROW_MAX;
  return plain == Opcode::kAdd && *start == 0 ? AttentionOp::ROW_SUM : AttentionOp::OPCODE_UNSPECIFIED;
}

class Maker {
 public:
  Maker(const Instruction& fusion, const ScoreSpace& space) : fusion_(fusion), space_(space) {}

  std::optional<AttentionOp> Make() {
    for (const int d : space_.batch()) op_.add_batch(space_.SizeOf(d));
    for (const int d : space_.rows()) op_.add_rows(space_.SizeOf(d));
    op_.set_columns(space_.SizeOf(space_.column()));
    // The runtime computes the products that compute scores before all other values.
    for (const auto& inner : fusion_.called()[0]->instructions()) {
      if (space_.IsScoreProduct(*inner) && Emit(*inner, *space_.DimsOf(*inner)) < 0) return std::nullopt;
    }
    const Instruction* root = fusion_.called()[0]->root();
    std::vector<const Instruction*> results = {root};
    if (root->opcode() == Opcode::kTuple) results.assign(root->operands().begin(), root->operands().end());
    for (const Instruction* result : results) {
      if (!AddResult(*result)) return std::nullopt;
    }
    ChooseBlocks(&op_);
    return std::move(op_);
  }

 private:
  // The position in Operand.strides of a dimension of the scores. Operand.strides has batch, rows, column, feature.
  int64_t Position(int d) const {
    const std::vector<int>&batch = space_.batch(), &rows = space_.rows();
    const auto in_batch = std::find(batch.begin(), batch.end(), d), in_rows = std::find(rows.begin(), rows.end(), d);
    if (in_batch != batch.end()) return in_batch - batch.begin();
    return std::ssize(batch) + (in_rows - rows.begin());  // The column follows the rows.
  }
  size_t Feature() const { return space_.batch().size() + space_.rows().size() + 1; }

  static constexpr int kFeature = -2;
  // `dims` has, for each dimension of the array, the corresponding dimension of the scores, or kFeature.
  AttentionOp::Operand Describe(const Shape& shape, const ScoreDims& dims) const {
    AttentionOp::Operand operand;
    tensor::ShapeToWire(shape.array(), operand.mutable_shape());
    const Dims strides = tensor::Strides(shape.dims());
    Dims by_position(Feature() + 1, 0);
    for (size_t d = 0; d < dims.size(); ++d) {
      if (dims[d] == kFeature) by_position[Feature()] = strides[d];
      if (dims[d] >= 0) by_position[Position(dims[d])] = strides[d];
    }
    operand.mutable_strides()->Add(by_position.begin(), by_position.end());
    return operand;
  }

  // Returns the number of a parameter's operand, or -1 if the parameter has been read with other strides. There is one
  // operand per parameter.
  int OperandNumber(const Instruction& parameter, const ScoreDims& dims) {
    while (op_.operands_size() < fusion_.operand_count()) {
      const Instruction& next = *fusion_.called()[0]->parameter(op_.operands_size());
      *op_.add_operands() = Describe(next.shape(), ScoreDims(next.shape().ndim(), -1));
      described_.push_back(false);
    }
    const AttentionOp::Operand operand = Describe(parameter.shape(), dims);
    const int number = parameter.number();
    if (!described_[number]) {
      *op_.mutable_operands(number) = operand;
      described_[number] = true;
    }
    return op_.operands(number).SerializeAsString() == operand.SerializeAsString() ? number : -1;
  }

  int Add(AttentionOp::Value value, const Instruction& of) {
    tensor::TypeToWire(of.shape().type(), &value);
    *op_.add_values() = std::move(value);
    return op_.values_size() - 1;
  }

  // Returns the number of the value of an instruction whose dimensions are `dims`. Returns -1 if an AttentionOp cannot
  // have such a value.
  int Emit(const Instruction& at, const ScoreDims& dims) {
    const auto known = numbers_.find({&at, dims});
    if (known != numbers_.end()) return known->second;
    const int number = EmitNew(at, dims);
    numbers_[{&at, dims}] = number;
    return number;
  }

  int EmitNew(const Instruction& at, const ScoreDims& dims) {
    AttentionOp::Value value;
    switch (at.opcode()) {
      case Opcode::kParameter: {
        const int operand = OperandNumber(at, dims);
        if (operand < 0) return -1;
        value.set_opcode(AttentionOp::READ);
        value.add_operands(operand);
        return IsKnown(at.shape().type()) ? Add(std::move(value), at) : -1;
      }
      case Opcode::kConstant:
        return EmitConstant(at);
      case Opcode::kIota:
        if (dims[at.dimensions()[0]] < 0 || at.shape().type() != ElementType::kS32) return -1;
        value.set_opcode(AttentionOp::INDEX);
        value.set_dimension(Position(dims[at.dimensions()[0]]));
        return Add(std::move(value), at);
      case Opcode::kBroadcast:
      case Opcode::kReshape:
      case Opcode::kTranspose: {
        const std::optional<ScoreDims> operand = OperandScoreDims(at, 0, dims);
        return operand.has_value() ? Emit(*at.operand(0), *operand) : -1;
      }
      case Opcode::kDot:
        return EmitProduct(at, dims);
      case Opcode::kReduce: {
        value.set_opcode(ReductionOf(at, space_));
        if (value.opcode() == AttentionOp::OPCODE_UNSPECIFIED || dims != *space_.DimsOf(at)) return -1;
        const int input = Emit(*at.operand(0), *space_.DimsOf(*at.operand(0)));
        value.add_inputs(input);
        return input < 0 ? -1 : Add(std::move(value), at);
      }
      default:
        break;
    }
    value.set_opcode(OpcodeOf(at));
    if (value.opcode() == AttentionOp::OPCODE_UNSPECIFIED) return -1;
    for (int64_t k = 0; k < at.operand_count(); ++k) {
      const std::optional<ScoreDims> operand = OperandScoreDims(at, k, dims);
      const int input = operand.has_value() ? Emit(*at.operand(k), *operand) : -1;
      if (input < 0) return -1;
      value.add_inputs(input);
    }
    return Add(std::move(value), at);
  }

  int EmitConstant(const Instruction& at) {
    const std::optional<double> number = hlo::SplatValue(at);
    if (!number.has_value() || !IsKnown(at.shape().type())) return -1;
    AttentionOp::Value value;
    value.set_opcode(AttentionOp::CONSTANT);
    uint32_t bits;
    if (IsFloat(at.shape().type())) {
      const float as_float = static_cast<float>(*number);
      std::memcpy(&bits, &as_float, sizeof(bits));
    } else {
      bits = static_cast<uint32_t>(static_cast<int32_t>(*number));
    }
    value.set_bits(bits);
    return Add(std::move(value), at);
  }

  // Returns `rest` with kFeature at the dimension in `features` whose size is not 1. Nullopt if more than one has such
  // a size.
  std::optional<ScoreDims> SideDims(const Shape& shape, const Dims& features, const ScoreDims& rest) const {
    ScoreDims dims = rest;
    bool found = false;
    for (const int64_t d : features) {
      if (shape.dim(d) == 1) continue;
      if (found) return std::nullopt;
      found = true;
      dims[d] = kFeature;
    }
    return dims;
  }

  int EmitProduct(const Instruction& dot, const ScoreDims& dims) {
    if (!space_.IsScoreProduct(dot) || dims != *space_.DimsOf(dot) || !IsFloat(dot.shape().type())) return -1;
    const hlo::DotDimensions& numbers = *dot.attributes().dot;
    const FreeDimensions free = FreeDimensionsOf(dot);
    ScoreDims lhs(dot.operand(0)->shape().ndim(), -1);
    ScoreDims rhs(dot.operand(1)->shape().ndim(), -1);
    size_t next = 0;
    for (size_t i = 0; i < numbers.lhs_batch.size(); ++i) {
      lhs[numbers.lhs_batch[i]] = rhs[numbers.rhs_batch[i]] = dims[next++];
    }
    bool columns_left = false;
    for (const int64_t d : free.lhs) columns_left |= (lhs[d] = dims[next++]) == space_.column();
    for (const int64_t d : free.rhs) rhs[d] = dims[next++];
    int64_t depth = 1;
    for (const int64_t d : numbers.lhs_contracting) depth *= dot.operand(0)->shape().dim(d);
    const std::optional<ScoreDims> sides[] = {SideDims(dot.operand(0)->shape(), numbers.lhs_contracting, lhs),
                                              SideDims(dot.operand(1)->shape(), numbers.rhs_contracting, rhs)};
    AttentionOp::Value value;
    value.set_opcode(AttentionOp::PRODUCT);
    value.set_depth(depth);
    for (const int side : {columns_left ? 1 : 0, columns_left ? 0 : 1}) {
      const Instruction& operand = *dot.operand(side);
      if (!sides[side].has_value() || operand.opcode() != Opcode::kParameter) return -1;
      if (!IsFloat(operand.shape().type())) return -1;
      value.add_operands(OperandNumber(operand, *sides[side]));
      if (value.operands(value.operands_size() - 1) < 0) return -1;
    }
    return Add(std::move(value), dot);
  }

  bool AddResult(const Instruction& result) {
    const ScoreDims* dims = space_.DimsOf(result);
    if (dims == nullptr) return AddProductResult(result);
    if (Contains(*dims, space_.column())) return false;
    AttentionOp::Result* added = op_.add_results();
    added->set_kind(AttentionOp::Result::ROW_VALUE);
    added->set_value(Emit(result, *dims));
    *added->mutable_array() = Describe(result.shape(), *dims);
    return added->value() >= 0;
  }

  // Adds the result of a product of the scores and another matrix. The product sums over the columns or over the rows.
  bool AddProductResult(const Instruction& dot) {
    if (dot.opcode() != Opcode::kDot || !IsFloat(dot.shape().type())) return false;
    const int side = space_.DimsOf(*dot.operand(0)) != nullptr && space_.IsFull(*dot.operand(0)) ? 0 : 1;
    const Instruction &scores = *dot.operand(side), &other = *dot.operand(1 - side);
    if (!space_.IsFull(scores) || other.opcode() != Opcode::kParameter || !IsFloat(other.shape().type())) return false;
    const ScoreDims& dims = *space_.DimsOf(scores);
    const hlo::DotDimensions& numbers = *dot.attributes().dot;
    const auto pick = [&](bool first, const Dims& lhs, const Dims& rhs) -> const Dims& { return first ? lhs : rhs; };
    const Dims& score_batch = pick(side == 0, numbers.lhs_batch, numbers.rhs_batch);
    const Dims& other_batch = pick(side == 0, numbers.rhs_batch, numbers.lhs_batch);
    const Dims& score_summed = pick(side == 0, numbers.lhs_contracting, numbers.rhs_contracting);
    const Dims& other_summed = pick(side == 0, numbers.rhs_contracting, numbers.lhs_contracting);
    const FreeDimensions free = FreeDimensionsOf(dot);
    const Dims& score_free = pick(side == 0, free.lhs, free.rhs);
    const Dims& other_free = pick(side == 0, free.rhs, free.lhs);
    ScoreDims other_dims(other.shape().ndim(), -1), result_dims;
    for (size_t i = 0; i < score_batch.size(); ++i) {
      other_dims[other_batch[i]] = dims[score_batch[i]];
      result_dims.push_back(dims[score_batch[i]]);
    }
    std::vector<int> summed;
    for (size_t i = 0; i < score_summed.size(); ++i) {
      other_dims[other_summed[i]] = dims[score_summed[i]];
      if (dims[score_summed[i]] >= 0) summed.push_back(dims[score_summed[i]]);
    }
    std::vector<int> rows = space_.rows();
    std::sort(summed.begin(), summed.end());
    std::sort(rows.begin(), rows.end());
    const bool columns = summed == std::vector<int>{space_.column()};
    if (!columns && summed != rows) return false;
    const std::optional<ScoreDims> matrix = SideDims(other.shape(), other_free, other_dims);
    if (!matrix.has_value() || !CoversBatch(result_dims)) return false;
    AttentionOp::Result* added = op_.add_results();
    ScoreDims score_side, other_side;
    int64_t width = 1;
    for (const int64_t d : score_free) score_side.push_back(dims[d]);
    for (const int64_t d : other_free) other_side.push_back((*matrix)[d]), width *= other.shape().dim(d);
    const ScoreDims &first = side == 0 ? score_side : other_side, &second = side == 0 ? other_side : score_side;
    result_dims.insert(result_dims.end(), first.begin(), first.end());
    result_dims.insert(result_dims.end(), second.begin(), second.end());
    added->set_kind(columns ? AttentionOp::Result::ROW_PRODUCT : AttentionOp::Result::COLUMN_PRODUCT);
    added->set_value(Emit(scores, dims));
    added->set_operand(OperandNumber(other, *matrix));
    added->set_width(width);
    *added->mutable_array() = Describe(dot.shape(), result_dims);
    return added->value() >= 0 && added->operand() >= 0;
  }

  bool CoversBatch(const ScoreDims& result_batch) const {
    std::vector<int> found, wanted = space_.batch();
    std::copy_if(result_batch.begin(), result_batch.end(), std::back_inserter(found), [](int d) { return d >= 0; });
    std::sort(found.begin(), found.end());
    std::sort(wanted.begin(), wanted.end());
    return found == wanted;
  }

  const Instruction& fusion_;
  const ScoreSpace& space_;
  AttentionOp op_;
  std::vector<bool> described_;
  std::map<std::pair<const Instruction*, ScoreDims>, int> numbers_;
};

}  // namespace

bool IsScoreOperation(const Instruction& instruction, const ScoreSpace& space) {
  if (!instruction.shape().is_array() || !IsKnown(instruction.shape().type())) return false;
  switch (instruction.opcode()) {
    case Opcode::kReduce:
      return ReductionOf(instruction, space) != AttentionOp::OPCODE_UNSPECIFIED;
    case Opcode::kBroadcast:
    case Opcode::kReshape:
    case Opcode::kTranspose:
      return true;
    case Opcode::kIota:
      return instruction.shape().type() == ElementType::kS32;
    case Opcode::kConstant:
      return instruction.shape().is_scalar() && hlo::SplatValue(instruction).has_value();
    default:
      return OpcodeOf(instruction) != AttentionOp::OPCODE_UNSPECIFIED;
  }
}

std::optional<AttentionOp> MakeAttentionOp(const Instruction& fusion) {
  if (!IsAttention(fusion)) return std::nullopt;
  for (const auto& inner : fusion.called()[0]->instructions()) {
    if (inner->opcode() != Opcode::kExponential) continue;
    const std::optional<ScoreSpace> space = ScoreSpace::Around(*inner);
    if (!space.has_value()) continue;
    std::optional<AttentionOp> op = Maker(fusion, *space).Make();
    if (op.has_value()) return op;
  }
  return std::nullopt;
}

bool IsWide(const AttentionOp& op, const AttentionOp::Value& value, const std::vector<bool>& wide) {
  const int column = op.batch_size() + op.rows_size();  // The position of the column in Operand.strides.
  switch (value.opcode()) {
    case AttentionOp::PRODUCT:
      return true;
    case AttentionOp::READ:
      return op.operands(value.operands(0)).strides(column) != 0;
    case AttentionOp::INDEX:
      return value.dimension() == column;
    case AttentionOp::ROW_MAX:
    case AttentionOp::ROW_SUM:
      return false;
    default:
      return std::any_of(value.inputs().begin(), value.inputs().end(), [&](int input) { return wide[input]; });
  }
}

}  // namespace xlad::compiler
