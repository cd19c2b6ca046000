#include "sharding/partition/loop_values.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "hlo/analysis/trip_count.h"
#include "sharding/model/axes.h"
#include "sharding/partition/reshard_plan.h"
#include "sharding/rules/linear.h"

namespace xlad::sharding {
namespace {

using hlo::Instruction;
using hlo::Opcode;

// What is held through a loop beside what it carries takes at most this part of it, so that the weights of a model
// that is split to fit are gathered a few at a time still.
constexpr double kRoom = 0.5;

double LocalBytes(const LocalArray& array) {
  return static_cast<double>(tensor::Shape{array.global.type, LocalDims(array.global.dims, array.sharding)}.bytes());
}

bool MovesOrConverts(const Instruction& instruction) {
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

LoopValues::LoopValues(const Instruction& loop, Emitter* before, const LocalValue& init)
    : before_(*before), init_(init) {
  const Instruction* root = loop.called()[1]->root();
  const Instruction* parameter = loop.called()[1]->parameter(0);
  const bool once = TripCount(loop).value_or(2) < 2;
  if (once || root->opcode() != Opcode::kTuple || root->operand_count() != init.size()) return;
  for (size_t i = 0; i < init.size(); ++i) {
    const Instruction* next = root->operand(i);
    unchanged_.push_back(next->opcode() == Opcode::kGetTupleElement && next->operand(0) == parameter &&
                         next->number() == static_cast<int64_t>(i));
    room_ += kRoom * LocalBytes(init[i]);
  }
}

std::optional<LocalArray> LoopValues::Reshard(Emitter& body, const LocalArray& array, const TensorSharding& to,
                                              const Why& why) {
  if (unchanged_.empty() || !to.unreduced.empty() || body.ReshardBytes(array, to) == 0) return std::nullopt;
  for (const Moved& moved : moved_) {
    if (moved.from != array.local || DimensionAxesOf(moved.outside.sharding) != DimensionAxesOf(to)) continue;
    LocalArray result = moved.outside;
    result.local = moved.inside;
    return result;
  }
  LocalArray wanted = array;
  wanted.sharding = to;
  const double bytes = LocalBytes(wanted);
  if (bytes > room_) return std::nullopt;
  LocalArray outside = array;
  outside.local = Outside(array.local);
  if (outside.local == nullptr) return std::nullopt;
  // A scalar that each device made by hand in the body is one of its own before the loop too.
  if (RepeatedValue(array.local)->shape().is_scalar()) before_.TakeAsData(outside.local);
  room_ -= bytes;
  outside = before_.Reshard(outside, to, why);
  Instruction* parameter = body.builder().computation()->parameter(0);
  std::vector<hlo::Shape>& shapes = parameter->mutable_shape().tuple();
  shapes.push_back(outside.local->shape());
  Instruction* inside = body.builder().GetTupleElement(parameter, std::ssize(shapes) - 1);
  outside_[inside] = outside.local;
  moved_.push_back({array.local, outside, inside});
  outside.local = inside;
  return outside;
}

Instruction* LoopValues::Outside(Instruction* inside) {
  const auto found = outside_.find(inside);
  if (found != outside_.end()) return found->second;
  Instruction* outside = MakeOutside(inside);
  outside_[inside] = outside;
  return outside;
}

Instruction* LoopValues::MakeOutside(Instruction* inside) {
  if (inside->opcode() == Opcode::kGetTupleElement && inside->operand(0)->opcode() == Opcode::kParameter) {
    const size_t i = inside->number();
    return unchanged_[i] ? init_[i].local : nullptr;
  }
  if (!MovesOrConverts(*inside)) return nullptr;
  std::vector<Instruction*> operands;
  for (Instruction* operand : inside->operands()) {
    operands.push_back(Outside(operand));
    if (operands.back() == nullptr) return nullptr;
  }
  return before_.CloneLocal(*inside, inside->shape(), operands);
}

std::vector<Instruction*> LoopValues::Close(hlo::Computation* condition, hlo::Computation* body) {
  absl::flat_hash_set<const Instruction*> left;
  for (const auto& instruction : body->instructions()) left.insert(instruction.get());
  std::erase_if(moved_, [&](const Moved& moved) { return !left.contains(moved.inside); });
  Instruction* parameter = body->parameter(0);
  std::vector<hlo::Shape>& shapes = parameter->mutable_shape().tuple();
  shapes.resize(init_.size());
  std::vector<Instruction*> outside, next(body->root()->operands().begin(), body->root()->operands().end());
  for (const Moved& moved : moved_) {
    moved.inside->set_number(std::ssize(shapes));
    shapes.push_back(moved.inside->shape());
    next.push_back(moved.inside);
    outside.push_back(moved.outside.local);
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
