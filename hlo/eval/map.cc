// map and scan: a computation applied to elements, or to slices in order.
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

// Writes slice `i` of `dimension`. The inverse of SliceAt.
void SetSlice(Array* array, int64_t dimension, int64_t i, const Value& slice) {
  StridedView view = RowMajor(array->shape().dims);
  view.offset = i * view.strides[dimension];
  view.strides.erase(view.strides.begin() + dimension);
  CopyStrided({slice.bytes(), RowMajor(slice.dims())}, {array->bytes(), view}, slice.dims(),
              tensor::ByteWidth(array->shape().type));
}

// The operands are inputs and initial carries. The computation maps a slice of each input and the carries to a slice of
// each output and the next carries. The results are outputs and final carries.
absl::StatusOr<Value> EvalScan(const Operation& operation) {
  const int64_t carries = operation.attributes().num_carries;
  const int64_t inputs = std::ssize(operation.operands) - carries;
  const int64_t dimension = operation.instruction.dimensions()[0];
  const Shape& shape = operation.shape();
  const int64_t outputs = (shape.is_tuple() ? std::ssize(shape.tuple()) : 1) - carries;
  std::vector<Array> outs = ResultArrays(operation, outputs);
  std::vector<Value> state(operation.operands.begin() + inputs, operation.operands.end());
  const tensor::Shape& scanned = inputs > 0 ? operation.operand(0).shape() : operation.result(0);
  const int64_t steps = scanned.dims[dimension];
  for (int64_t step = 0; step < steps; ++step) {
    const int64_t at = operation.attributes().is_reverse ? steps - 1 - step : step;
    std::vector<Value> arguments;
    for (int64_t k = 0; k < inputs; ++k) arguments.push_back(SliceAt(operation.operands[k], dimension, at));
    for (Value& carry : state) arguments.push_back(std::move(carry));
    XLAD_ASSIGN_OR_RETURN(Value result,
                          operation.caller.Call(*operation.instruction.called()[0], std::move(arguments)));
    std::vector<Value> results = ResultList(std::move(result));
    for (int64_t k = 0; k < outputs; ++k) SetSlice(&outs[k], dimension, at, results[k]);
    state.assign(results.begin() + outputs, results.end());
  }
  std::vector<Value> values;
  for (Array& out : outs) values.emplace_back(std::move(out));
  for (Value& carry : state) values.push_back(std::move(carry));
  return PackResults(std::move(values), shape.is_tuple());
}

constexpr EvalRow kMapRows[] = {
    {Opcode::kMap, EvalMap},
    {Opcode::kScan, EvalScan},
};

}  // namespace

absl::Span<const EvalRow> MapRows() { return kMapRows; }

}  // namespace xlad::hlo::eval
