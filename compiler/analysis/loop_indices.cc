#include "compiler/analysis/loop_indices.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "hlo/analysis/constants.h"

namespace xlad::compiler {
namespace {

// Limits on the time, memory and stack of the analysis: the iterations of a loop, the values of all of its scalars
// together, and the length of a chain of instructions. Scalars beyond these limits have unknown values.
constexpr int64_t kMaxTrips = 1 << 16, kMaxValues = 1 << 22;
constexpr int kMaxChain = 64;
// The largest number of operands of the opcodes that Evaluate knows.
constexpr int64_t kMaxScalarOperands = 3;

// Whether `value` is in the range of a type, or in the range of 62 bits if the type is larger. Sums and differences of
// such values do not overflow int64_t.
bool Holds(ElementType type, int64_t value) {
  if (type == ElementType::kPred) return value == 0 || value == 1;
  const int64_t bits = std::min<int64_t>(tensor::BitWidth(type), 62);
  if (tensor::IsSigned(type)) return value >= -(int64_t{1} << (bits - 1)) && value < int64_t{1} << (bits - 1);
  return value >= 0 && value < int64_t{1} << bits;
}

bool Compare(hlo::Comparison comparison, int64_t a, int64_t b) {
  switch (comparison) {
    case hlo::Comparison::kEq: return a == b;
    case hlo::Comparison::kNe: return a != b;
    case hlo::Comparison::kLt: return a < b;
    case hlo::Comparison::kLe: return a <= b;
    case hlo::Comparison::kGt: return a > b;
    case hlo::Comparison::kGe: return a >= b;
  }
  return false;
}

// The result of an opcode for scalar operands, or nullopt for opcodes that this analysis does not know.
std::optional<int64_t> Evaluate(const Instruction& scalar, const int64_t* x) {
  constexpr int64_t kSmall = int64_t{1} << 31;
  switch (scalar.opcode()) {
    case Opcode::kCopy:
    case Opcode::kConvert:
    case Opcode::kReshape: return x[0];
    case Opcode::kNegate: return -x[0];
    case Opcode::kAdd: return x[0] + x[1];
    case Opcode::kSubtract: return x[0] - x[1];
    case Opcode::kMultiply:
      if (std::max(std::abs(x[0]), std::abs(x[1])) >= kSmall) return std::nullopt;
      return x[0] * x[1];
    case Opcode::kMaximum: return std::max(x[0], x[1]);
    case Opcode::kMinimum: return std::min(x[0], x[1]);
    case Opcode::kCompare: return Compare(scalar.attributes().comparison, x[0], x[1]) ? 1 : 0;
    case Opcode::kSelect: return x[0] != 0 ? x[1] : x[2];
    case Opcode::kClamp: return std::min(std::max(x[0], x[1]), x[2]);
    default: return std::nullopt;
  }
}

bool IsIntegerScalar(const Instruction& x) {
  if (!x.shape().is_array() || !x.shape().is_scalar()) return false;
  return tensor::IsInteger(x.shape().type()) || x.shape().type() == ElementType::kPred;
}

}  // namespace

Instruction* FindElement(const Computation& computation, int64_t index) {
  for (Instruction* user : computation.parameter(0)->users()) {
    if (user->opcode() == Opcode::kGetTupleElement && user->number() == index) return user;
  }
  return nullptr;
}

bool HasTupleForm(const Instruction& loop) {
  if (!loop.shape().is_tuple() || loop.operand(0)->opcode() != Opcode::kTuple) return false;
  if (loop.called()[1]->root()->opcode() != Opcode::kTuple) return false;
  for (const Computation* computation : loop.called()) {
    absl::flat_hash_set<int64_t> elements;
    for (const Instruction* user : computation->parameter(0)->users()) {
      if (user->opcode() != Opcode::kGetTupleElement || !elements.insert(user->number()).second) return false;
    }
    if (computation->parameter(0) == computation->root()) return false;
  }
  return true;
}

bool IsInvariant(const Instruction& loop, int64_t index) {
  const Instruction* next = loop.called()[1]->root()->operand(index);
  return next->opcode() == Opcode::kGetTupleElement && next->number() == index &&
         next->operand(0) == loop.called()[1]->parameter(0);
}

bool IsInvariantElement(const Instruction& loop, const Instruction& value) {
  return value.opcode() == Opcode::kGetTupleElement && value.operand(0) == loop.called()[1]->parameter(0) &&
         IsInvariant(loop, value.number());
}

bool AccessesOneRow(const Instruction& slice_or_update) {
  const bool is_update = slice_or_update.opcode() == Opcode::kDynamicUpdateSlice;
  if (!is_update && slice_or_update.opcode() != Opcode::kDynamicSlice) return false;
  const Dims& whole = slice_or_update.operand(0)->shape().dims();
  const Dims& part = is_update ? slice_or_update.operand(1)->shape().dims() : slice_or_update.shape().dims();
  if (whole.empty() || part[0] != 1) return false;
  return std::equal(whole.begin() + 1, whole.end(), part.begin() + 1);
}

LoopIndices::LoopIndices(const Instruction& loop) : loop_(loop), counted_(hlo::FindCountedLoop(loop)) {
  if (counted_.has_value() && counted_->element >= 0 && counted_->trips <= kMaxTrips) trips_ = counted_->trips;
}

const LoopIndices::Values& LoopIndices::ValuesOf(const Instruction* scalar, int chain) {
  const auto found = known_.find(scalar);
  if (found != known_.end()) return found->second;
  if (trips_ == 0 || !IsIntegerScalar(*scalar) || chain == kMaxChain || computed_values_ > kMaxValues - trips_) {
    return known_[scalar] = Values();
  }
  computed_values_ += trips_;
  const Values values = Compute(scalar, chain);
  for (const int64_t value : values) {
    if (!Holds(scalar->shape().type(), value)) return known_[scalar] = Values();
  }
  return known_[scalar] = values;
}

LoopIndices::Values LoopIndices::Compute(const Instruction* scalar, int chain) {
  Values values(trips_);
  if (const std::optional<int64_t> constant = hlo::ConstantInteger(*scalar)) {
    std::fill(values.begin(), values.end(), *constant);
    return values;
  }
  if (scalar->opcode() == Opcode::kGetTupleElement) {
    if (scalar->operand(0) != loop_.called()[1]->parameter(0) || scalar->number() != counted_->element) return {};
    for (int64_t k = 0; k < trips_; ++k) {
      int64_t offset = 0;
      if (__builtin_mul_overflow(k, counted_->step, &offset)) return {};
      if (__builtin_add_overflow(counted_->start, offset, &values[k])) return {};
    }
    return values;
  }
  const int64_t count = scalar->operand_count();
  if (count == 0 || count > kMaxScalarOperands) return {};
  const int64_t none[kMaxScalarOperands] = {1, 1, 1};
  if (!Evaluate(*scalar, none).has_value()) return {};  // The opcode is unknown, so its operands are not analyzed.
  std::vector<Values> operands;
  for (const Instruction* operand : scalar->operands()) {
    operands.push_back(ValuesOf(operand, chain + 1));
    if (operands.back().empty()) return {};
  }
  for (int64_t k = 0; k < trips_; ++k) {
    int64_t x[kMaxScalarOperands] = {};
    for (int64_t i = 0; i < count; ++i) x[i] = operands[i][k];
    const std::optional<int64_t> value = Evaluate(*scalar, x);
    if (!value.has_value()) return {};
    values[k] = *value;
  }
  return values;
}

bool LoopIndices::VisitsAll(const Instruction* index, int64_t size) {
  const Values& values = ValuesOf(index);
  if (values.empty() || std::ssize(values) != size) return false;
  std::vector<bool> visited(size, false);
  for (const int64_t value : values) {
    if (value < 0 || value >= size || visited[value]) return false;
    visited[value] = true;
  }
  return true;
}

bool LoopIndices::AreEqual(const Instruction* a, const Instruction* b) {
  if (a == b) return true;
  ValuesOf(a);  // ValuesOf(b) may move the values of a.
  const Values of_b = ValuesOf(b);
  const Values& of_a = ValuesOf(a);
  return !of_a.empty() && of_a == of_b;
}

Instruction* LoopIndices::StackingUpdate(int64_t element) {
  Instruction* next = loop_.called()[1]->root()->operand(element);
  if (next->opcode() != Opcode::kDynamicUpdateSlice || !AccessesOneRow(*next)) return nullptr;
  const Instruction* now = next->operand(0);
  if (now != FindElement(*loop_.called()[1], element)) return nullptr;
  return VisitsAll(next->operand(2), now->shape().dim(0)) ? next : nullptr;
}

}  // namespace xlad::compiler
