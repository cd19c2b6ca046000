// Slices at start indices that are operands, and tuples.
#include <algorithm>

#include "hlo/eval/strided.h"

namespace xlad::hlo::eval {
namespace {

// Returns the start indices, clamped so that a slice of the given sizes is inside operand 0. Operand `first` is a
// vector of all indices, or the first of one scalar operand per index.
Dims ClampedStarts(const Operation& operation, int64_t first, absl::Span<const int64_t> sizes) {
  const Dims& dims = operation.operand(0).dims();
  const bool vector = operation.instruction.operand_count() > first && operation.operand(first).dims().size() == 1;
  Dims starts;
  for (const int64_t d : tensor::Indices(dims)) {
    const int64_t start = vector ? IntAt(operation.operand(first), d) : IntAt(operation.operand(first + d), 0);
    starts.push_back(std::clamp<int64_t>(start, 0, dims[d] - sizes[d]));
  }
  return starts;
}

// The view of the slice at `starts` of a row-major array.
StridedView BoxView(absl::Span<const int64_t> dims, absl::Span<const int64_t> starts) {
  StridedView view = RowMajor(dims);
  view.offset = Offset(starts, view.strides);
  return view;
}

absl::StatusOr<Value> EvalDynamicSlice(const Operation& operation) {
  const Value& operand = operation.operand(0);
  const tensor::Shape& shape = operation.result();
  const Dims starts = ClampedStarts(operation, 1, shape.dims);
  return Value(ReadStrided(operand, BoxView(operand.dims(), starts), shape));
}

absl::StatusOr<Value> EvalDynamicUpdateSlice(const Operation& operation) {
  const Value& update = operation.operand(1);
  const Dims starts = ClampedStarts(operation, 2, update.dims());
  Array out = operation.operands[0].Take();
  CopyStrided({update.bytes(), RowMajor(update.dims())}, {out.bytes(), BoxView(out.shape().dims, starts)},
              update.dims(), tensor::ByteWidth(update.type()));
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
