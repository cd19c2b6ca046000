// reduce-window and select-and-scatter.
#include <algorithm>

#include "hlo/eval/binary_ops.h"
#include "hlo/eval/reducer.h"
#include "hlo/eval/strided.h"
#include "hlo/eval/window.h"

namespace xlad::hlo::eval {
namespace {

// For one element of the window: the window positions [first, end) of the last dimension at which this element is on
// the operand and not on the padding, and the operand's index at position `first`. The positions are contiguous,
// because the dimension must have no base dilation and no reversal.
struct Run {
  int64_t first = 0, end = 0, operand_first = 0;
};

Run RunOf(const WindowDimension& window, int64_t size, int64_t positions, int64_t element) {
  const int64_t shift = element * window.window_dilation - window.padding_low;
  Run run;
  run.first = shift >= 0 ? 0 : (-shift - 1) / window.stride + 1;
  run.end = std::min(positions, size <= shift ? 0 : (size - 1 - shift) / window.stride + 1);
  run.operand_first = run.first * window.stride + shift;
  return run;
}

// reduce-window with a reducer that has a typed loop. The outer loop is over the elements of the window, and the inner
// one over positions: a line of the last dimension at a time if that dimension has no base dilation and no reversal,
// otherwise one position at a time. Each result thus combines the elements of its window in row-major order.
Value WindowFast(const Operation& operation, const FastReducer& reducer) {
  const Value operand = ConvertTo(operation.operand(0), reducer.type);
  const Value init = ConvertTo(operation.operand(1), reducer.type);
  const Window& window = *operation.attributes().window;
  const Dims &dims = operand.dims(), &result = operation.result().dims;
  const int64_t width = tensor::ByteWidth(reducer.type);
  Array acc = Filled({reducer.type, result}, init.bytes());
  if (acc.elements() == 0 || operand.elements() == 0) return ConvertTo(Value(std::move(acc)), operation.result().type);
  const int64_t last = std::ssize(dims) - 1;
  const bool lines = window[last].base_dilation == 1 && !window[last].window_reversal;
  Dims outer = result;
  if (lines) outer[last] = 1;
  const Dims sizes = WindowSizes(window), strides = tensor::Strides(result);
  for (const Dims& element : tensor::MultiIndices(sizes)) {
    const Run run = lines ? RunOf(window[last], dims[last], result[last], element[last]) : Run{0, 1, 0};
    if (run.first >= run.end) continue;
    for (const Dims& position : tensor::MultiIndices(outer)) {
      Dims at = position;
      if (lines) at[last] = run.first;
      const int64_t from = OperandOffset(window, dims, at, element);
      if (from < 0) continue;
      reducer.combine(acc.bytes().data() + Offset(at, strides) * width, 1, operand.bytes().data() + from * width,
                      window[last].stride, run.end - run.first);
    }
  }
  return ConvertTo(Value(std::move(acc)), operation.result().type);
}

absl::StatusOr<Value> WindowByCalls(const Operation& operation) {
  const int64_t count = std::ssize(operation.operands) / 2;
  const Window& window = *operation.attributes().window;
  const Dims dims = operation.operand(0).dims(), sizes = WindowSizes(window);
  std::vector<Array> outs = ResultArrays(operation, count);
  int64_t i = 0;
  for (const Dims& position : tensor::MultiIndices(operation.result().dims)) {
    std::vector<Value> acc(operation.operands.begin() + count, operation.operands.end());
    for (const Dims& element : tensor::MultiIndices(sizes)) {
      const int64_t from = OperandOffset(window, dims, position, element);
      if (from < 0) continue;
      for (int64_t k = 0; k < count; ++k) acc.push_back(ScalarAt(operation.operands[k], from));
      XLAD_ASSIGN_OR_RETURN(Value next, operation.caller.Call(*operation.instruction.called()[0], std::move(acc)));
      acc = ResultList(std::move(next));
    }
    for (int64_t k = 0; k < count; ++k) SetElement(&outs[k], i, acc[k]);
    ++i;
  }
  return PackResults(std::move(outs), operation.shape().is_tuple());
}

absl::StatusOr<Value> EvalReduceWindow(const Operation& operation) {
  const bool one_type = operation.operand(0).type() == operation.operand(1).type();
  if (operation.operands.size() == 2 && one_type && !operation.operand(0).dims().empty()) {
    const auto fast =
        MatchReducer(*operation.instruction.called()[0], operation.operand(0).type(), /*wide_sums=*/false);
    if (fast.has_value()) {
      return PackResults(std::vector<Value>{WindowFast(operation, *fast)}, operation.shape().is_tuple());
    }
  }
  return WindowByCalls(operation);
}

// The `select` computation of select-and-scatter, as a typed comparison if possible, otherwise by calls.
class Selection {
 public:
  explicit Selection(const Operation& operation)
      : operation_(operation), operand_(operation.operand(0)), wide_(Widen(operand_)) {
    simple_ = MatchComparator(*operation.instruction.called()[0]);
    if (simple_.has_value() && (simple_->total_order || !tensor::IsFloating(CarrierOf(operand_.type()))))
      simple_.reset();
  }

  // Whether the selected element remains selected when the next candidate of the window is considered.
  absl::StatusOr<bool> Keeps(int64_t selected, int64_t candidate) const {
    if (simple_.has_value()) {
      return VisitCarrier(wide_.type(), [&]<typename T>() -> bool {
        if constexpr (FloatCarrier<T>) {
          const T x = wide_.values<T>()[selected];
          const T y = wide_.values<T>()[candidate];
          return ComparisonHolds(simple_->comparison, x, y);
        }
        return false;
      });
    }
    XLAD_ASSIGN_OR_RETURN(const Value keeps,
                          operation_.caller.Call(*operation_.instruction.called()[0],
                                                 {ScalarAt(operand_, selected), ScalarAt(operand_, candidate)}));
    return IntAt(keeps, 0) != 0;
  }

 private:
  const Operation& operation_;
  const Value& operand_;
  Value wide_;
  std::optional<SimpleComparator> simple_;
};

// `select` chooses one element of each window of the operand. `scatter` combines the element of `source` at the
// window's position into the result at the chosen element. All elements of the result begin with the initial value.
absl::StatusOr<Value> EvalSelectAndScatter(const Operation& operation) {
  const Value &operand = operation.operand(0), &source = operation.operand(1);
  const Window& window = *operation.attributes().window;
  const Computation& scatter = *operation.instruction.called()[1];
  const auto fast = MatchReducer(scatter, operand.type(), /*wide_sums=*/false);
  const ElementType type = fast.has_value() ? fast->type : operand.type();
  const Value updates = ConvertTo(source, type);
  Array out = Filled({type, operand.dims()}, ConvertTo(operation.operand(2), type).bytes());
  const Selection selection(operation);
  const Dims sizes = WindowSizes(window), &positions = source.dims();
  const int64_t width = tensor::ByteWidth(type);
  int64_t next = 0;
  for (const Dims& position : tensor::MultiIndices(positions)) {
    const int64_t i = next++;
    int64_t selected = -1;
    for (const Dims& element : tensor::MultiIndices(sizes)) {
      const int64_t candidate = OperandOffset(window, operand.dims(), position, element);
      if (candidate < 0) continue;
      bool keeps = selected >= 0;
      if (keeps) {
        XLAD_ASSIGN_OR_RETURN(keeps, selection.Keeps(selected, candidate));
      }
      if (!keeps) selected = candidate;
    }
    if (selected < 0) continue;  // All of the window is in the padding.
    if (fast.has_value()) {
      fast->combine(out.bytes().data() + selected * width, 1, updates.bytes().data() + i * width, 1, 1);
    } else {
      const Value current = ScalarAt(out, selected);
      XLAD_ASSIGN_OR_RETURN(const Value sum, operation.caller.Call(scatter, {current, ScalarAt(updates, i)}));
      SetElement(&out, selected, sum);
    }
  }
  return ConvertTo(Value(std::move(out)), operand.type());
}

constexpr EvalRow kReduceWindowRows[] = {
    {Opcode::kReduceWindow, EvalReduceWindow},
    {Opcode::kSelectAndScatter, EvalSelectAndScatter},
};

}  // namespace

absl::Span<const EvalRow> WindowRows() { return kReduceWindowRows; }

}  // namespace xlad::hlo::eval
