// Simplify's rules for instructions that move elements.
#include <algorithm>
#include <numeric>

#include "base/rounding.h"
#include "compiler/passes/kernel_limits.h"
#include "compiler/passes/simplify_rules.h"
#include "hlo/analysis/constants.h"

namespace xlad::compiler {

namespace {

// The sizes other than 1.
Dims WithoutUnits(const Dims& dims) {
  Dims kept;
  std::copy_if(dims.begin(), dims.end(), std::back_inserter(kept), [](int64_t size) { return size != 1; });
  return kept;
}

// Whether the dimensions are 0, 1, 2, ...
bool IsIota(const Dims& dims) {
  for (int64_t i = 0; i < std::ssize(dims); ++i) {
    if (dims[i] != i) return false;
  }
  return true;
}

bool IsScalarBroadcast(const Instruction* x) {
  return x->opcode() == Opcode::kBroadcast && x->operand(0)->shape().is_scalar();
}

Instruction* SimplifyReshape(Instruction* reshape, hlo::Builder& builder) {
  Instruction* x = reshape->operand(0);
  const Dims& to = reshape->shape().dims();
  if (x->shape().dims() == to) return x;
  if (x->opcode() == Opcode::kReshape) return builder.Reshape(x->operand(0), to);
  if (IsScalarBroadcast(x)) return builder.Full(reshape->shape(), x->operand(0));
  const hlo::Literal* literal = hlo::KnownLiteral(*x);
  if (literal != nullptr && x->shape().elements() <= 65536) {
    const auto bytes = literal->array.bytes();
    return builder.Constant(tensor::Array(reshape->shape().array(), {bytes.begin(), bytes.end()}));
  }
  return nullptr;
}

Instruction* SimplifyBroadcast(Instruction* broadcast, hlo::Builder& builder) {
  Instruction* x = broadcast->operand(0);
  const Dims& to = broadcast->shape().dims();
  const Dims& dimensions = broadcast->dimensions();
  if (x->shape().dims() == to && IsIota(dimensions)) return x;
  if (x->shape().elements() == broadcast->shape().elements() && std::is_sorted(dimensions.begin(), dimensions.end())) {
    return builder.Reshape(x, to);
  }
  if (x->opcode() == Opcode::kBroadcast) {
    return builder.Broadcast(x->operand(0), to, tensor::Select(dimensions, x->dimensions()));
  }
  if (x->opcode() != Opcode::kReshape) return nullptr;
  // broadcast(reshape(y)) is a broadcast of y if the reshape only adds dimensions of size 1.
  Instruction* y = x->operand(0);
  const Dims& inner = y->shape().dims();
  if (WithoutUnits(inner) != inner || WithoutUnits(x->shape().dims()) != inner) return nullptr;
  Dims kept;
  for (size_t d = 0; d < dimensions.size(); ++d) {
    if (x->shape().dims()[d] != 1) kept.push_back(dimensions[d]);
  }
  return builder.Broadcast(y, to, kept);
}

// Whether the transpose only moves dimensions of size 1, so that the order of the elements in memory is unchanged.
bool IsReshape(const Instruction* transpose) {
  int64_t last = -1;
  for (int64_t from : transpose->dimensions()) {
    if (transpose->operand(0)->shape().dim(from) == 1) continue;
    if (from < last) return false;
    last = from;
  }
  return true;
}

Instruction* SimplifyTranspose(Instruction* transpose, hlo::Builder& builder) {
  Instruction* x = transpose->operand(0);
  const Dims& permutation = transpose->dimensions();
  if (IsIota(permutation)) return x;
  if (IsReshape(transpose)) return builder.Reshape(x, transpose->shape().dims());
  if (x->opcode() == Opcode::kTranspose) {
    return builder.Transpose(x->operand(0), tensor::Select(x->dimensions(), permutation));
  }
  if (x->opcode() != Opcode::kBroadcast) return nullptr;
  const Dims dimensions = tensor::Select(tensor::Inverse(permutation), x->dimensions());
  return builder.Broadcast(x->operand(0), transpose->shape().dims(), dimensions);
}

// A slice of a concatenation that reads only one operand is a slice of this operand.
Instruction* SliceOfPiece(Instruction* slice, hlo::Builder& builder) {
  Instruction* x = slice->operand(0);
  const int64_t dimension = x->dimensions()[0];
  const auto& wanted = slice->attributes().slice;
  const hlo::SliceDimension& along = wanted[dimension];
  int64_t offset = 0;
  for (Instruction* piece : x->operands()) {
    const int64_t size = piece->shape().dim(dimension);
    if (along.start >= offset && along.limit <= offset + size && along.limit > along.start) {
      Dims start, limit, stride;
      for (const hlo::SliceDimension& d : wanted) {
        start.push_back(d.start);
        limit.push_back(d.limit);
        stride.push_back(d.stride);
      }
      start[dimension] -= offset;
      limit[dimension] -= offset;
      return builder.Slice(piece, start, limit, stride);
    }
    offset += size;
  }
  return nullptr;
}

Instruction* SimplifySlice(Instruction* slice, hlo::Builder& builder) {
  Instruction* x = slice->operand(0);
  if (x->shape().dims() == slice->shape().dims()) return x;
  if (IsScalarBroadcast(x)) return builder.Full(slice->shape(), x->operand(0));
  if (x->opcode() == Opcode::kConcatenate) return SliceOfPiece(slice, builder);
  if (x->opcode() != Opcode::kSlice) return nullptr;
  const auto& outer = slice->attributes().slice;
  const auto& inner = x->attributes().slice;
  Dims start, limit, stride;
  for (size_t d = 0; d < outer.size(); ++d) {
    const int64_t size = slice->shape().dims()[d];
    // An empty slice may start past the last element that the inner slice keeps.
    start.push_back(size == 0 ? 0 : inner[d].start + outer[d].start * inner[d].stride);
    stride.push_back(inner[d].stride * outer[d].stride);
    limit.push_back(size == 0 ? 0 : start.back() + (size - 1) * stride.back() + 1);
  }
  return builder.Slice(x->operand(0), start, limit, stride);
}

// Concatenates several parts of the arrays, and then their results.
Instruction* ConcatenateInParts(const std::vector<Instruction*>& arrays, int64_t dimension, hlo::Builder& builder) {
  const int64_t count = std::ssize(arrays), size = CeilDiv(count, CeilDiv(count, kMaxKernelOperands));
  std::vector<Instruction*> parts;
  for (int64_t at = 0; at < count; at += size) {
    parts.push_back(builder.Concatenate(absl::MakeConstSpan(arrays).subspan(at, size), dimension));
  }
  return builder.Concatenate(parts, dimension);
}

Instruction* SimplifyConcatenate(Instruction* concatenate, hlo::Builder& builder) {
  if (concatenate->operand_count() == 1) return concatenate->operand(0);
  const int64_t dimension = concatenate->dimensions()[0];
  std::vector<Instruction*> kept;
  for (Instruction* piece : concatenate->operands()) {
    if (piece->shape().dim(dimension) != 0) kept.push_back(piece);
  }
  if (std::ssize(kept) > kMaxKernelOperands) return ConcatenateInParts(kept, dimension, builder);
  if (kept.empty() || std::ssize(kept) == concatenate->operand_count()) return nullptr;
  return builder.Concatenate(kept, dimension);
}

Instruction* SimplifyPad(Instruction* pad) {
  for (const hlo::PaddingDimension& d : pad->attributes().padding) {
    if (d.low != 0 || d.high != 0 || d.interior != 0) return nullptr;
  }
  return pad->operand(0);
}

Instruction* SimplifyReverse(Instruction* reverse) {
  for (int64_t d : reverse->dimensions()) {
    if (reverse->shape().dim(d) > 1) return nullptr;
  }
  return reverse->operand(0);
}

Instruction* SimplifyDynamicSlice(Instruction* slice, hlo::Builder& builder) {
  Instruction* x = slice->operand(0);
  if (x->shape().dims() == slice->shape().dims()) return x;
  if (IsScalarBroadcast(x)) return builder.Full(slice->shape(), x->operand(0));
  if (slice->operand_count() != x->shape().ndim() + 1) return nullptr;
  Dims start, limit;
  for (int64_t d = 0; d < x->shape().ndim(); ++d) {
    const int64_t size = slice->shape().dim(d);
    const int64_t room = x->shape().dim(d) - size;
    const std::optional<int64_t> at = room > 0 ? hlo::ConstantInteger(*slice->operand(d + 1)) : 0;
    if (!at) return nullptr;
    start.push_back(std::clamp<int64_t>(*at, 0, room));  // dynamic-slice clamps its starts.
    limit.push_back(start.back() + size);
  }
  return builder.Slice(x, start, limit);
}

Instruction* SimplifyDynamicUpdateSlice(Instruction* update) {
  return update->operand(1)->shape().dims() == update->shape().dims() ? update->operand(1) : nullptr;
}

}  // namespace

Instruction* SimplifyShape(Instruction* instruction, hlo::Builder& builder) {
  switch (instruction->opcode()) {
    case Opcode::kReshape:
      return SimplifyReshape(instruction, builder);
    case Opcode::kBroadcast:
      return SimplifyBroadcast(instruction, builder);
    case Opcode::kTranspose:
      return SimplifyTranspose(instruction, builder);
    case Opcode::kSlice:
      return SimplifySlice(instruction, builder);
    case Opcode::kConcatenate:
      return SimplifyConcatenate(instruction, builder);
    case Opcode::kPad:
      return SimplifyPad(instruction);
    case Opcode::kReverse:
      return SimplifyReverse(instruction);
    case Opcode::kDynamicSlice:
      return SimplifyDynamicSlice(instruction, builder);
    case Opcode::kDynamicUpdateSlice:
      return SimplifyDynamicUpdateSlice(instruction);
    default:
      return nullptr;
  }
}

}  // namespace xlad::compiler
