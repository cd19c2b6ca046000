// reduce: the elements at each kept index are combined in row-major order of the reduced indices.
#include "base/containers.h"
#include "hlo/eval/reducer.h"
#include "hlo/eval/strided.h"

namespace xlad::hlo::eval {
namespace {

// The kept and reduced dimensions of an operand, with their strides in the operand.
struct Split {
  Dims kept, kept_strides, reduced, reduced_strides;
  Dims result_strides;  // The stride of each operand dimension in the result, 0 if it is reduced.
};

Split SplitDims(const Dims& dims, const Dims& reduced) {
  Split split;
  const Dims strides = tensor::Strides(dims);
  for (const int64_t d : tensor::Indices(dims)) {
    const bool is_reduced = Contains(reduced, d);
    (is_reduced ? split.reduced : split.kept).push_back(dims[d]);
    (is_reduced ? split.reduced_strides : split.kept_strides).push_back(strides[d]);
  }
  const Dims kept_result = tensor::Strides(split.kept);
  int64_t next = 0;
  for (const int64_t d : tensor::Indices(dims)) {
    const bool is_reduced = Contains(reduced, d);
    split.result_strides.push_back(is_reduced ? 0 : kept_result[next++]);
  }
  return split;
}

// Reduces one operand with the typed loop of the reducer. Each call of the loop combines a line of the last dimension.
Value ReduceFast(const Operation& operation, const Split& split, const FastReducer& reducer) {
  const Value operand = ConvertTo(operation.operand(0), reducer.type);
  const Value init = ConvertTo(operation.operand(1), reducer.type);
  const auto width = tensor::ByteWidth(reducer.type);
  Array acc = Filled({reducer.type, split.kept}, init.bytes());
  const Dims& dims = operand.dims();
  if (operand.elements() > 0) {
    const Dims outer(dims.begin(), dims.empty() ? dims.end() : dims.end() - 1);
    const int64_t line = dims.empty() ? 1 : dims.back();
    const int64_t step = dims.empty() ? 0 : split.result_strides.back();
    const std::byte* x = operand.bytes().data();
    for (const Dims& index : tensor::MultiIndices(outer)) {
      const int64_t at = Offset(index, split.result_strides);
      reducer.combine(acc.bytes().data() + at * width, step, x, 1, line);
      x += line * width;
    }
  }
  return ConvertTo(Value(std::move(acc)), operation.operand(0).type());
}

// Reduces any number of operands by one call of the reducer per element.
absl::StatusOr<Value> ReduceByCalls(const Operation& operation, const Split& split) {
  const Computation& reducer = *operation.instruction.called()[0];
  const int64_t count = std::ssize(operation.operands) / 2;
  std::vector<Array> outs = ResultArrays(operation, count);
  int64_t i = 0;
  for (const Dims& kept : tensor::MultiIndices(split.kept)) {
    std::vector<Value> acc(operation.operands.begin() + count, operation.operands.end());
    for (const Dims& reduced : tensor::MultiIndices(split.reduced)) {
      const int64_t at = Offset(kept, split.kept_strides) + Offset(reduced, split.reduced_strides);
      for (int64_t k = 0; k < count; ++k) acc.push_back(ScalarAt(operation.operands[k], at));
      XLAD_ASSIGN_OR_RETURN(Value result, operation.caller.Call(reducer, std::move(acc)));
      acc = ResultList(std::move(result));
    }
    for (int64_t k = 0; k < count; ++k) SetElement(&outs[k], i, acc[k]);
    ++i;
  }
  return PackResults(std::move(outs), operation.shape().is_tuple());
}

absl::StatusOr<Value> EvalReduce(const Operation& operation) {
  const Value& operand = operation.operand(0);
  const Split split = SplitDims(operand.dims(), operation.instruction.dimensions());
  if (operation.operands.size() == 2 && operand.type() == operation.operand(1).type()) {
    const auto fast = MatchReducer(*operation.instruction.called()[0], operand.type(), /*wide_sums=*/true);
    if (fast.has_value()) {
      Value result = ReduceFast(operation, split, *fast);
      if (!operation.shape().is_tuple()) return result;
      return Value::Tuple({std::move(result)});
    }
  }
  return ReduceByCalls(operation, split);
}

constexpr EvalRow kReduceRows[] = {
    {Opcode::kReduce, EvalReduce},
};

}  // namespace

absl::Span<const EvalRow> ReduceRows() { return kReduceRows; }

}  // namespace xlad::hlo::eval
