// reduce: results at kept indices, elements combined in row-major order of the reduced ones.
#include <algorithm>

#include "hlo/eval/reducer.h"
#include "hlo/eval/strided.h"

namespace xlad::hlo::eval {
namespace {

// How an operand's dimensions split; strides are the operand's.
struct Split {
  Dims kept, kept_strides, reduced, reduced_strides;
  Dims result_strides;  // For each operand dimension; 0 where it is reduced.
};

Split SplitDims(const Dims& dims, const Dims& reduced) {
  Split split;
  const Dims strides = tensor::Strides(dims);
  for (size_t d = 0; d < dims.size(); ++d) {
    const bool is_reduced = std::find(reduced.begin(), reduced.end(), static_cast<int64_t>(d)) != reduced.end();
    (is_reduced ? split.reduced : split.kept).push_back(dims[d]);
    (is_reduced ? split.reduced_strides : split.kept_strides).push_back(strides[d]);
  }
  const Dims kept_result = tensor::Strides(split.kept);
  size_t next = 0;
  for (size_t d = 0; d < dims.size(); ++d) {
    const bool is_reduced = std::find(reduced.begin(), reduced.end(), static_cast<int64_t>(d)) != reduced.end();
    split.result_strides.push_back(is_reduced ? 0 : kept_result[next++]);
  }
  return split;
}

// One operand, one known operation: whole lines of the last dimension at a time.
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
    Dims index(outer.size(), 0);
    const std::byte* x = operand.bytes().data();
    do {
      int64_t at = 0;
      for (size_t d = 0; d < outer.size(); ++d) at += index[d] * split.result_strides[d];
      reducer.combine(acc.bytes().data() + at * width, step, x, 1, line);
      x += line * width;
    } while (tensor::NextIndex(outer, absl::MakeSpan(index)));
  }
  return ConvertTo(Value(std::move(acc)), operation.operand(0).type());
}

int64_t Offset(const Dims& index, const Dims& strides) {
  int64_t offset = 0;
  for (size_t d = 0; d < index.size(); ++d) offset += index[d] * strides[d];
  return offset;
}

// Any reducer, any number of operands: a call an element.
absl::StatusOr<Value> ReduceByCalls(const Operation& operation, const Split& split) {
  const Computation& reducer = *operation.instruction.called()[0];
  const auto count = operation.operands.size() / 2;
  std::vector<Array> outs;
  for (size_t k = 0; k < count; ++k) outs.emplace_back(operation.result(static_cast<int64_t>(k)));
  Dims kept(split.kept.size(), 0);
  const int64_t results = tensor::Product(split.kept), steps = tensor::Product(split.reduced);
  for (int64_t i = 0; i < results; ++i) {
    std::vector<Value> acc(operation.operands.begin() + static_cast<ptrdiff_t>(count), operation.operands.end());
    Dims reduced(split.reduced.size(), 0);
    for (int64_t step = 0; step < steps; ++step) {
      const int64_t at = Offset(kept, split.kept_strides) + Offset(reduced, split.reduced_strides);
      for (size_t k = 0; k < count; ++k) acc.push_back(ScalarAt(operation.operands[k], at));
      XLAD_ASSIGN_OR_RETURN(Value result, operation.caller.Call(reducer, std::move(acc)));
      acc = ResultList(std::move(result));
      tensor::NextIndex(split.reduced, absl::MakeSpan(reduced));
    }
    for (size_t k = 0; k < count; ++k) SetElement(&outs[k], i, acc[k]);
    tensor::NextIndex(split.kept, absl::MakeSpan(kept));
  }
  std::vector<Value> values;
  for (Array& out : outs) values.emplace_back(std::move(out));
  return PackResults(std::move(values), operation.shape().is_tuple());
}

absl::StatusOr<Value> EvalReduce(const Operation& operation) {
  const Value& operand = operation.operand(0);
  const Split split = SplitDims(operand.dims(), operation.instruction.dimensions());
  if (operation.operands.size() == 2 && operand.type() == operation.operand(1).type()) {
    const auto fast = RecogniseReducer(*operation.instruction.called()[0], operand.type(), /*wide_sums=*/true);
    if (fast.has_value()) {
      Value result = ReduceFast(operation, split, *fast);
      if (!operation.shape().is_tuple()) return result;
      return Value::Tuple({std::move(result)});
    }
  }
  return ReduceByCalls(operation, split);
}

constexpr EvalRow kRows[] = {
    {Opcode::kReduce, EvalReduce},
};

}  // namespace

absl::Span<const EvalRow> ReduceRows() { return kRows; }

}  // namespace xlad::hlo::eval
