#include "sharding/partition/loop_invariants.h"

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "hlo/analysis/constants.h"
#include "hlo/analysis/trip_count.h"
#include "sharding/model/axes.h"
#include "sharding/partition/reshard_plan.h"

namespace xlad::sharding {
namespace {

using hlo::Instruction;
using hlo::Opcode;

// The limit for the memory of hoisted values, as a fraction of the memory of the values that the loop carries. With
// this limit, a model whose weights are split to fit into memory still gathers only a few weights at a time.
constexpr double kMemoryFraction = 0.5;

double LocalBytes(const LocalArray& array) {
  return static_cast<double>(tensor::Shape{array.global.type, LocalDims(array.global.dims, array.sharding)}.bytes());
}

// Whether element i of the tuple is array leaf i, for every i. Tokens are elements, but not array leaves.
bool HasOnlyArrays(const hlo::Shape& tuple) {
  return absl::c_all_of(tuple.tuple(), [](const hlo::Shape& element) { return element.is_array(); });
}

bool IsHoistable(const Instruction& instruction) {
  switch (instruction.opcode()) {
    case Opcode::kConstant:
    case Opcode::kIota:
    case Opcode::kPartitionId:
    case Opcode::kBroadcast:
    case Opcode::kReshape:
    case Opcode::kTranspose:
    case Opcode::kSlice:
    case Opcode::kDynamicSlice:
    case Opcode::kConcatenate:
    case Opcode::kPad:
    case Opcode::kReverse: return true;
    default: return hlo::IsElementwise(instruction.opcode());
  }
}

}  // namespace

LoopInvariants::LoopInvariants(const Instruction& loop, ReshardEmitter* reshards, LocalBuilder* local,
                               const LocalValue& init)
    : reshards_(*reshards), local_(*local), init_(init) {
  const Instruction* root = loop.called()[1]->root();
  const Instruction* parameter = loop.called()[1]->parameter(0);
  const bool runs_once = TripCount(loop).value_or(2) < 2;
  if (runs_once || root->opcode() != Opcode::kTuple || !HasOnlyArrays(root->shape())) return;
  for (int64_t i = 0; i < std::ssize(init); ++i) {
    const Instruction* next = root->operand(i);
    unchanged_.push_back(next->opcode() == Opcode::kGetTupleElement && next->operand(0) == parameter &&
                         next->number() == i);
    memory_budget_ += kMemoryFraction * LocalBytes(init[i]);
  }
}

std::optional<LocalArray> LoopInvariants::Reshard(const ReshardEmitter& body, const LocalArray& array,
                                                  const TensorSharding& to, const ReshardCause& cause) {
  if (unchanged_.empty() || !to.unreduced.empty() || body.ReshardBytes(array, to) == 0) return std::nullopt;
  for (const Hoisted& hoisted : hoisted_) {
    // A slice can have the same local instruction as its operand, but other global sizes.
    if (hoisted.from != array.local || hoisted.outside.global.dims != array.global.dims ||
        DimensionAxesOf(hoisted.outside.sharding) != DimensionAxesOf(to)) {
      continue;
    }
    LocalArray result = hoisted.outside;
    result.local = hoisted.inside;
    return result;
  }
  LocalArray resharded = array;
  resharded.sharding = to;
  const double bytes = LocalBytes(resharded);
  if (bytes > memory_budget_) return std::nullopt;
  LocalArray outside = array;
  outside.local = Outside(array.local);
  if (outside.local == nullptr) return std::nullopt;
  // A repeated scalar is resharded in the body only if it differs between devices. It then also differs before the
  // loop.
  if (hlo::RepeatedValue(array.local)->shape().is_scalar()) reshards_.MarkNonUniform(outside.local);
  memory_budget_ -= bytes;
  outside = reshards_.Reshard(outside, to, cause);
  hlo::Computation* computation = array.local->parent();
  Instruction* parameter = computation->parameter(0);
  std::vector<hlo::Shape>& shapes = parameter->mutable_shape().tuple();
  shapes.push_back(outside.local->shape());
  hlo::Builder builder(computation);
  builder.set_template(cause.op);
  Instruction* inside = builder.GetTupleElement(parameter, std::ssize(shapes) - 1);
  outside_[inside] = outside.local;
  hoisted_.push_back({array.local, outside, inside});
  outside.local = inside;
  return outside;
}

Instruction* LoopInvariants::Outside(Instruction* inside) {
  const auto found = outside_.find(inside);
  if (found != outside_.end()) return found->second;
  Instruction* outside = EmitOutside(inside);
  outside_[inside] = outside;
  return outside;
}

Instruction* LoopInvariants::EmitOutside(Instruction* inside) {
  if (inside->opcode() == Opcode::kGetTupleElement && inside->operand(0)->opcode() == Opcode::kParameter) {
    const int64_t i = inside->number();
    return unchanged_[i] ? init_[i].local : nullptr;
  }
  if (!IsHoistable(*inside)) return nullptr;
  std::vector<Instruction*> operands;
  for (Instruction* operand : inside->operands()) {
    operands.push_back(Outside(operand));
    if (operands.back() == nullptr) return nullptr;
  }
  return local_.CloneLocal(*inside, inside->shape(), operands);
}

std::vector<Instruction*> LoopInvariants::AddToLoop(hlo::Computation* condition, hlo::Computation* body) {
  if (hoisted_.empty()) return {};
  absl::flat_hash_set<const Instruction*> alive;
  for (const auto& instruction : body->instructions()) alive.insert(instruction.get());
  std::erase_if(hoisted_, [&](const Hoisted& hoisted) { return !alive.contains(hoisted.inside); });
  Instruction* parameter = body->parameter(0);
  std::vector<hlo::Shape>& shapes = parameter->mutable_shape().tuple();
  shapes.resize(init_.size());
  std::vector<Instruction*> outside, next(body->root()->operands().begin(), body->root()->operands().end());
  for (const Hoisted& hoisted : hoisted_) {
    hoisted.inside->set_number(std::ssize(shapes));
    shapes.push_back(hoisted.inside->shape());
    next.push_back(hoisted.inside);
    outside.push_back(hoisted.outside.local);
  }
  if (outside.empty()) return outside;
  condition->parameter(0)->mutable_shape() = parameter->shape();
  hlo::Builder builder(body);
  builder.set_template(body->root());
  Instruction* old = body->root();
  body->set_root(builder.Tuple(next));
  body->Remove(old);
  return outside;
}

}  // namespace xlad::sharding
