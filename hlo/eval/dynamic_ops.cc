// Slices at positions known only when the program runs, and tuples.
#include <algorithm>

#include "hlo/eval/strided.h"

namespace xlad::hlo::eval {
namespace {

// Start indices from operand `first` on (one scalar a dimension, or one vector), clamped so that `sizes` fit.
Dims ClampedStarts(const Operation& operation, int64_t first, absl::Span<const int64_t> sizes) {
  const Dims& dims = operation.operand(0).dims();
  const bool vector = operation.instruction.operand_count() > first && operation.operand(first).dims().size() == 1;
  Dims starts;
  for (int64_t d = 0; d < std::ssize(dims); ++d) {
    const int64_t start = vector ? IntAt(operation.operand(first), d) : IntAt(operation.operand(first + d), 0);
    const size_t at = d;
    starts.push_back(std::clamp<int64_t>(start, 0, dims[at] - sizes[at]));
  }
  return starts;
}

Walk BoxWalk(absl::Span<const int64_t> dims, absl::Span<const int64_t> starts) {
  Walk walk = Dense(dims);
  for (size_t d = 0; d < dims.size(); ++d) walk.offset += starts[d] * walk.strides[d];
  return walk;
}

absl::StatusOr<Value> EvalDynamicSlice(const Operation& operation) {
  const Value& operand = operation.operand(0);
  const tensor::Shape& shape = operation.result();
  const Dims starts = ClampedStarts(operation, 1, shape.dims);
  return Value(ReadStrided(operand, BoxWalk(operand.dims(), starts), shape));
}

absl::StatusOr<Value> EvalDynamicUpdateSlice(const Operation& operation) {
  const Value& update = operation.operand(1);
  const Dims starts = ClampedStarts(operation, 2, update.dims());
  Array out = operation.operands[0].Take();
  CopyStrided({update.bytes(), Dense(update.dims())}, {out.bytes(), BoxWalk(out.shape().dims, starts)}, update.dims(),
              tensor::ByteWidth(update.type()));
  return Value(std::move(out));
}

absl::StatusOr<Value> EvalTuple(const Operation& operation) {
  return Value::Tuple(std::vector<Value>(operation.operands.begin(), operation.operands.end()));
}

absl::StatusOr<Value> EvalGetTupleElement(const Operation& operation) {
  return operation.operand(0).tuple()[operation.instruction.number()];
}

absl::StatusOr<Value> EvalAfterAll(const Operation&) { return Value(); }

absl::StatusOr<Value> EvalDynamicReshape(const Operation& operation) {
  return operation.operand(0).WithShape(operation.result());
}

absl::StatusOr<Value> EvalCopyStart(const Operation& operation) {
  const Array context({ElementType::kU32, {}});
  return Value::Tuple({operation.operand(0), operation.operand(0), Value(context)});
}

absl::StatusOr<Value> EvalCopyDone(const Operation& operation) { return operation.operand(0).tuple()[0]; }

constexpr EvalRow kDynamicRows[] = {
    {Opcode::kDynamicSlice, EvalDynamicSlice},
    {Opcode::kDynamicUpdateSlice, EvalDynamicUpdateSlice},
    {Opcode::kDynamicReshape, EvalDynamicReshape},
};

constexpr EvalRow kTupleRows[] = {
    {Opcode::kTuple, EvalTuple},       {Opcode::kGetTupleElement, EvalGetTupleElement},
    {Opcode::kAfterAll, EvalAfterAll}, {Opcode::kCopyStart, EvalCopyStart},
    {Opcode::kCopyDone, EvalCopyDone},
};

}  // namespace

absl::Span<const EvalRow> DynamicRows() { return kDynamicRows; }
absl::Span<const EvalRow> TupleRows() { return kTupleRows; }

}  // namespace xlad::hlo::eval
