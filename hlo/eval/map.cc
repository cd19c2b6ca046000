// map and scan: a computation applied to elements or slices one after the other.
#include "hlo/eval/reducer.h"
#include "hlo/eval/strided.h"

namespace xlad::hlo::eval {
namespace {

absl::StatusOr<Value> EvalMap(const Operation& operation) {
  Array out(operation.result());
  const int64_t elements = out.elements();
  for (int64_t i = 0; i < elements; ++i) {
    std::vector<Value> arguments;
    for (const Value& operand : operation.operands) arguments.push_back(ScalarAt(operand, i));
    XLAD_ASSIGN_OR_RETURN(const Value result,
                          operation.caller.Call(*operation.instruction.called()[0], std::move(arguments)));
    SetElement(&out, i, result);
  }
  return Value(std::move(out));
}

// Slice `i` of `dimension`, without it.
Value SliceAt(const Value& value, int64_t dimension, int64_t i) {
  Walk walk = Dense(value.dims());
  walk.offset = i * walk.strides[dimension];
  walk.strides.erase(walk.strides.begin() + dimension);
  tensor::Shape shape = value.shape();
  shape.dims.erase(shape.dims.begin() + dimension);
  return Value(ReadStrided(value, walk, shape));
}

void SetSlice(Array* array, int64_t dimension, int64_t i, const Value& slice) {
  Walk walk = Dense(array->shape().dims);
  walk.offset = i * walk.strides[dimension];
  walk.strides.erase(walk.strides.begin() + dimension);
  CopyStrided({slice.bytes(), Dense(slice.dims())}, {array->bytes(), walk}, slice.dims(),
              tensor::ByteWidth(array->shape().type));
}

// Operands: inputs, then initial carries. The computation takes a slice of each input and the carries and gives a
// slice of each output and the next carries; results are outputs, then final carries.
absl::StatusOr<Value> EvalScan(const Operation& operation) {
  const size_t carries = operation.attributes().num_carries;
  const size_t inputs = operation.operands.size() - carries;
  const int64_t dimension = operation.instruction.dimensions()[0];
  const Shape& shape = operation.shape();
  const size_t outputs = (shape.is_tuple() ? shape.tuple().size() : 1) - carries;
  std::vector<Array> outs;
  for (size_t k = 0; k < outputs; ++k) outs.emplace_back(operation.result(static_cast<int64_t>(k)));
  std::vector<Value> state(operation.operands.begin() + static_cast<ptrdiff_t>(inputs), operation.operands.end());
  const tensor::Shape& scanned = inputs > 0 ? operation.operand(0).shape() : operation.result(0);
  const int64_t steps = scanned.dims[dimension];
  for (int64_t step = 0; step < steps; ++step) {
    const int64_t at = operation.attributes().is_reverse ? steps - 1 - step : step;
    std::vector<Value> arguments;
    for (size_t k = 0; k < inputs; ++k) arguments.push_back(SliceAt(operation.operands[k], dimension, at));
    for (Value& carry : state) arguments.push_back(std::move(carry));
    XLAD_ASSIGN_OR_RETURN(Value result,
                          operation.caller.Call(*operation.instruction.called()[0], std::move(arguments)));
    std::vector<Value> results = ResultList(std::move(result));
    for (size_t k = 0; k < outputs; ++k) SetSlice(&outs[k], dimension, at, results[k]);
    state.assign(results.begin() + static_cast<ptrdiff_t>(outputs), results.end());
  }
  std::vector<Value> values;
  for (Array& out : outs) values.emplace_back(std::move(out));
  for (Value& carry : state) values.push_back(std::move(carry));
  return PackResults(std::move(values), shape.is_tuple());
}

constexpr EvalRow kRows[] = {
    {Opcode::kMap, EvalMap},
    {Opcode::kScan, EvalScan},
};

}  // namespace

absl::Span<const EvalRow> MapRows() { return kRows; }

}  // namespace xlad::hlo::eval
