// Each function of the builder sets attributes, infers the shape and appends the instruction.
#include "hlo/build/builder.h"

#include <complex>
#include <cstring>

#include "base/status.h"
#include "hlo/infer/infer.h"
#include "tensor/small_float.h"

namespace xlad::hlo {
namespace {

std::unique_ptr<Instruction> Make(Opcode opcode, Shape shape = Shape()) {
  return std::make_unique<Instruction>(opcode, std::move(shape));
}

// A shape of this element type, whose sizes Add() replaces by the inferred ones.
Shape OfType(ElementType type) { return Shape(type, {}); }

template <typename T>
void Put(T value, tensor::Array* array) {
  std::memcpy(array->bytes().data(), &value, sizeof(T));
}

// Copies the low bytes of the integer (little-endian).
tensor::Array IntegerArray(ElementType type, uint64_t bits) {
  tensor::Array array(tensor::Shape{type, {}});
  std::memcpy(array.bytes().data(), &bits, array.bytes().size());
  return array;
}

tensor::Array ScalarArray(ElementType type, double value) {
  tensor::Array array(tensor::Shape{type, {}});
  if (type == ElementType::kF32) {
    Put(static_cast<float>(value), &array);
  } else if (type == ElementType::kF64) {
    Put(value, &array);
  } else if (type == ElementType::kC64) {
    Put(std::complex<float>(static_cast<float>(value), 0), &array);
  } else if (type == ElementType::kC128) {
    Put(std::complex<double>(value, 0), &array);
  } else if (tensor::IsFloating(type)) {
    const uint16_t bits = tensor::EncodeSmallFloat(type, value);
    std::memcpy(array.bytes().data(), &bits, array.bytes().size());
  } else if (type == ElementType::kPred) {
    Put(static_cast<uint8_t>(value != 0), &array);
  } else if (value >= 0x1.0p63) {
    return IntegerArray(type, static_cast<uint64_t>(value));
  } else {
    // A negative double cannot be converted to an unsigned type, but its integer can.
    return IntegerArray(type, static_cast<uint64_t>(static_cast<int64_t>(value)));
  }
  return array;
}

// The permutation of `ndim` dimensions that moves dimension d to the front.
Dims ToFront(int64_t ndim, int64_t d) {
  Dims permutation = {d};
  for (int64_t other = 0; other < ndim; ++other) {
    if (other != d) permutation.push_back(other);
  }
  return permutation;
}

}  // namespace

Instruction* Builder::Add(std::unique_ptr<Instruction> instruction, absl::Span<Instruction* const> operands) {
  if (like_ != nullptr) {
    if (instruction->name().empty()) instruction->set_name(like_->name());
    instruction->set_metadata(like_->shared_metadata());
  }
  Instruction* const added = computation_->Add(std::move(instruction), operands);
  absl::StatusOr<Shape> shape = InferShape(*added);
  XLAD_CHECK(shape.ok()) << "building " << ToString(added->opcode()) << " %" << added->name() << ": "
                         << std::string(shape.status().message());
  if (!added->shape().SameIgnoringLayout(*shape)) added->mutable_shape() = *std::move(shape);
  return added;
}

Instruction* Builder::Parameter(int64_t number, Shape shape, absl::string_view name) {
  auto instruction = Make(Opcode::kParameter, std::move(shape));
  instruction->set_number(number);
  instruction->set_name(std::string(name));
  return Add(std::move(instruction), {});
}

Instruction* Builder::Constant(tensor::Array value) {
  auto instruction = Make(Opcode::kConstant, Shape(value.shape()));
  instruction->set_literal(std::make_shared<const Literal>(std::move(value)));
  return Add(std::move(instruction), {});
}

Instruction* Builder::Scalar(ElementType type, double value) { return Constant(ScalarArray(type, value)); }
Instruction* Builder::IntegerScalar(ElementType type, uint64_t bits) { return Constant(IntegerArray(type, bits)); }
Instruction* Builder::Zero(const Shape& shape) { return Full(shape, Scalar(shape.type(), 0)); }

Instruction* Builder::Full(const Shape& shape, Instruction* scalar) {
  return shape.is_scalar() ? scalar : Broadcast(scalar, shape.dims(), {});
}

Instruction* Builder::Iota(Shape shape, int64_t dimension) {
  auto instruction = Make(Opcode::kIota, std::move(shape));
  instruction->set_dimensions({dimension});
  return Add(std::move(instruction), {});
}

Instruction* Builder::Unary(Opcode opcode, Instruction* x) { return Add(Make(opcode), {x}); }
Instruction* Builder::Binary(Opcode opcode, Instruction* x, Instruction* y) { return Add(Make(opcode), {x, y}); }

Instruction* Builder::Compare(Comparison comparison, Instruction* x, Instruction* y) {
  auto instruction = Make(Opcode::kCompare);
  instruction->mutable_attributes().comparison = comparison;
  return Add(std::move(instruction), {x, y});
}

Instruction* Builder::Select(Instruction* condition, Instruction* yes, Instruction* no) {
  return Add(Make(Opcode::kSelect), {condition, yes, no});
}

Instruction* Builder::Convert(ElementType type, Instruction* x) {
  return Add(Make(Opcode::kConvert, OfType(type)), {x});
}

Instruction* Builder::ConvertTo(ElementType type, Instruction* x) {
  return x->shape().type() == type ? x : Convert(type, x);
}

Instruction* Builder::Broadcast(Instruction* x, Dims sizes, Dims dimensions) {
  auto instruction = Make(Opcode::kBroadcast, Shape(x->shape().type(), std::move(sizes)));
  instruction->set_dimensions(std::move(dimensions));
  return Add(std::move(instruction), {x});
}

Instruction* Builder::Reshape(Instruction* x, Dims sizes) {
  return Add(Make(Opcode::kReshape, Shape(x->shape().type(), std::move(sizes))), {x});
}

Instruction* Builder::Transpose(Instruction* x, Dims permutation) {
  auto instruction = Make(Opcode::kTranspose);
  instruction->set_dimensions(std::move(permutation));
  return Add(std::move(instruction), {x});
}

Instruction* Builder::SplitDimension(Instruction* x, int64_t d, int64_t parts) {
  Dims sizes = x->shape().dims();
  sizes[d] /= parts;
  sizes.insert(sizes.begin() + d, parts);
  return Reshape(x, std::move(sizes));
}

Instruction* Builder::MoveToFront(Instruction* x, int64_t d) { return Transpose(x, ToFront(x->shape().ndim(), d)); }

Instruction* Builder::MoveFromFront(Instruction* x, int64_t d) {
  return Transpose(x, tensor::Inverse(ToFront(x->shape().ndim(), d)));
}

Instruction* Builder::Element(Instruction* x, int64_t i) {
  const Dims& sizes = x->shape().dims();
  Dims start(sizes.size(), 0), limit = sizes, rest(sizes.begin() + 1, sizes.end());
  start[0] = i;
  limit[0] = i + 1;
  return Reshape(Slice(x, std::move(start), std::move(limit)), std::move(rest));
}

Instruction* Builder::Slice(Instruction* x, Dims start, Dims limit, Dims stride) {
  auto instruction = Make(Opcode::kSlice);
  XLAD_CHECK(start.size() == limit.size() && (stride.empty() || stride.size() == start.size()));
  for (size_t d = 0; d < start.size(); ++d) {
    instruction->mutable_attributes().slice.push_back({start[d], limit[d], stride.empty() ? 1 : stride[d]});
  }
  return Add(std::move(instruction), {x});
}

Instruction* Builder::DynamicSlice(Instruction* x, absl::Span<Instruction* const> starts, Dims sizes) {
  auto instruction = Make(Opcode::kDynamicSlice);
  instruction->mutable_attributes().slice_sizes = std::move(sizes);
  std::vector<Instruction*> operands = {x};
  operands.insert(operands.end(), starts.begin(), starts.end());
  return Add(std::move(instruction), operands);
}

Instruction* Builder::DynamicUpdateSlice(Instruction* x, Instruction* update, absl::Span<Instruction* const> starts) {
  std::vector<Instruction*> operands = {x, update};
  operands.insert(operands.end(), starts.begin(), starts.end());
  return Add(Make(Opcode::kDynamicUpdateSlice), operands);
}

Instruction* Builder::Pad(Instruction* x, Instruction* value, std::vector<PaddingDimension> padding) {
  auto instruction = Make(Opcode::kPad);
  instruction->mutable_attributes().padding = std::move(padding);
  return Add(std::move(instruction), {x, value});
}

Instruction* Builder::Concatenate(absl::Span<Instruction* const> parts, int64_t dimension) {
  auto instruction = Make(Opcode::kConcatenate);
  instruction->set_dimensions({dimension});
  return Add(std::move(instruction), parts);
}

Instruction* Builder::Dot(Instruction* lhs, Instruction* rhs, DotDimensions dimensions, ElementType result) {
  auto instruction = Make(Opcode::kDot, OfType(result));
  instruction->mutable_attributes().dot = std::move(dimensions);
  return Add(std::move(instruction), {lhs, rhs});
}

Instruction* Builder::Reduce(Instruction* x, Instruction* init, Dims dimensions, Computation* reducer) {
  auto instruction = Make(Opcode::kReduce);
  instruction->set_dimensions(std::move(dimensions));
  instruction->mutable_called() = {reducer};
  return Add(std::move(instruction), {x, init});
}

Instruction* Builder::PartitionId() { return Add(Make(Opcode::kPartitionId), {}); }
Instruction* Builder::Tuple(absl::Span<Instruction* const> elements) { return Add(Make(Opcode::kTuple), elements); }

Instruction* Builder::GetTupleElement(Instruction* tuple, int64_t index) {
  auto instruction = Make(Opcode::kGetTupleElement);
  instruction->set_number(index);
  return Add(std::move(instruction), {tuple});
}

Instruction* Builder::Call(Computation* callee, absl::Span<Instruction* const> arguments) {
  auto instruction = Make(Opcode::kCall);
  instruction->mutable_called() = {callee};
  return Add(std::move(instruction), arguments);
}

namespace {

// A channel id and use_global_device_ids make the ids in `groups` global device ids. All-to-all has no
// use_global_device_ids: its ids are partitions, which equal the global device ids if there is one replica.
std::unique_ptr<Instruction> MakeCollective(Opcode opcode, ReplicaGroups groups, int64_t channel_id) {
  auto instruction = Make(opcode);
  instruction->mutable_attributes().replica_groups = std::move(groups);
  instruction->mutable_attributes().channel_id = channel_id;
  instruction->mutable_attributes().use_global_device_ids = opcode != Opcode::kAllToAll;
  return instruction;
}

// The shape of x with dimension d multiplied (`grows`) or divided by the size of a group.
Shape Scaled(const Instruction& x, int64_t d, const ReplicaGroups& groups, bool grows) {
  const Module& module = *x.parent()->parent();
  const auto expanded = groups.Expand(module.replica_count * module.num_partitions);
  const auto size = expanded.empty() ? 1 : std::ssize(expanded[0]);
  Dims dims = x.shape().dims();
  int64_t& dim = dims[d];
  dim = grows ? dim * size : dim / size;
  return Shape(x.shape().type(), std::move(dims));
}

}  // namespace

Instruction* Builder::AllReduce(Instruction* x, Computation* reducer, ReplicaGroups groups, int64_t channel_id) {
  auto instruction = MakeCollective(Opcode::kAllReduce, std::move(groups), channel_id);
  instruction->mutable_called() = {reducer};
  return Add(std::move(instruction), {x});
}

Instruction* Builder::AllGather(Instruction* x, int64_t dimension, ReplicaGroups groups, int64_t channel_id) {
  Shape shape = Scaled(*x, dimension, groups, true);
  auto instruction = MakeCollective(Opcode::kAllGather, std::move(groups), channel_id);
  instruction->mutable_shape() = std::move(shape);
  instruction->set_dimensions({dimension});
  return Add(std::move(instruction), {x});
}

Instruction* Builder::ReduceScatter(Instruction* x, int64_t dimension, Computation* reducer, ReplicaGroups groups,
                                    int64_t channel_id) {
  Shape shape = Scaled(*x, dimension, groups, false);
  auto instruction = MakeCollective(Opcode::kReduceScatter, std::move(groups), channel_id);
  instruction->mutable_shape() = std::move(shape);
  instruction->set_dimensions({dimension});
  instruction->mutable_called() = {reducer};
  return Add(std::move(instruction), {x});
}

Instruction* Builder::AllToAll(Instruction* x, int64_t split_dimension, int64_t concat_dimension, ReplicaGroups groups,
                               int64_t channel_id) {
  const auto expanded = groups.Expand(x->parent()->parent()->num_partitions);
  const auto size = expanded.empty() ? 1 : std::ssize(expanded[0]);
  const int64_t s = split_dimension, c = concat_dimension;
  if (s == c) {
    auto instruction = MakeCollective(Opcode::kAllToAll, std::move(groups), channel_id);
    instruction->set_dimensions({s});
    return Add(std::move(instruction), {x});
  }
  // HLO's all-to-all splits and concatenates along the same dimension. For different dimensions, the parts become a new
  // first dimension, the all-to-all exchanges along it, and the received parts are merged into `concat_dimension`.
  Instruction* const parts = MoveToFront(SplitDimension(x, s, size), s);
  auto instruction = MakeCollective(Opcode::kAllToAll, std::move(groups), channel_id);
  instruction->set_dimensions({0});
  Instruction* const arrived = Add(std::move(instruction), {parts});
  // Transposes (part, d0, ..., dn) to (d0, ..., part, dc, ..., dn), where c is concat_dimension.
  Dims order;
  for (int64_t d = 0; d < x->shape().ndim(); ++d) {
    if (d == c) order.push_back(0);
    order.push_back(d + 1);
  }
  Dims result = x->shape().dims();
  result[s] /= size;
  result[c] *= size;
  return Reshape(Transpose(arrived, std::move(order)), std::move(result));
}

Instruction* Builder::CollectivePermute(Instruction* x, std::vector<std::pair<int64_t, int64_t>> pairs,
                                        int64_t channel_id) {
  auto instruction = Make(Opcode::kCollectivePermute);
  instruction->mutable_attributes().source_target_pairs = std::move(pairs);
  instruction->mutable_attributes().channel_id = channel_id;
  return Add(std::move(instruction), {x});
}

Computation* ScalarReducer(Module* module, Opcode opcode, ElementType type) {
  const Shape scalar(type, {});
  for (const auto& computation : module->computations()) {
    if (computation.get() != module->entry() && computation->parameters().size() == 2 &&
        computation->root() != nullptr && computation->root()->shape().SameIgnoringLayout(scalar) &&
        ReducerOpcode(*computation) == opcode) {
      return computation.get();
    }
  }
  auto computation = std::make_unique<Computation>(absl::StrCat(ToString(opcode), "_", tensor::ToString(type)));
  Computation* const added = module->Add(std::move(computation));
  Builder builder(added);
  Instruction* const x = builder.Parameter(0, scalar);
  Instruction* const y = builder.Parameter(1, scalar);
  added->set_root(builder.Binary(opcode, x, y));
  return added;
}

std::optional<Opcode> ReducerOpcode(const Computation& reducer) {
  const Instruction* const root = reducer.root();
  if (root == nullptr || reducer.parameters().size() != 2 || reducer.instructions().size() != 3) return std::nullopt;
  if (root->operand_count() != 2 || !IsElementwise(root->opcode()) || Arity(root->opcode()) != 2 ||
      !root->shape().SameIgnoringLayout(root->operand(0)->shape()) || root->opcode() == Opcode::kCompare) {
    return std::nullopt;
  }
  const Instruction* const first = reducer.parameter(0);
  const Instruction* const second = reducer.parameter(1);
  const bool in_order = root->operand(0) == first && root->operand(1) == second;
  const bool swapped = root->operand(0) == second && root->operand(1) == first;
  // A commutative opcode may have its operands in either order.
  constexpr Opcode kCommutative[] = {Opcode::kAdd, Opcode::kMultiply, Opcode::kMaximum, Opcode::kMinimum,
                                     Opcode::kAnd, Opcode::kOr,       Opcode::kXor};
  for (const Opcode opcode : kCommutative) {
    if (root->opcode() == opcode && (in_order || swapped)) return opcode;
  }
  return in_order ? std::optional<Opcode>(root->opcode()) : std::nullopt;
}

}  // namespace xlad::hlo
