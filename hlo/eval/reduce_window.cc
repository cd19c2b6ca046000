// reduce-window and select-and-scatter.
#include <algorithm>

#include "hlo/eval/binary_ops.h"
#include "hlo/eval/reducer.h"
#include "hlo/eval/strided.h"
#include "hlo/eval/window.h"

namespace xlad::hlo::eval {
namespace {

// Positions of the last dimension at which `element` falls on the operand, without holes: [first, end) and the
// operand index of the first.
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

// One known operation: for each element of the window, all positions, lines of the last dimension at a time. Every
// result so combines its window in row-major order.
Value WindowFast(const Operation& operation, const FastReducer& reducer) {
  const Value operand = ConvertTo(operation.operand(0), reducer.type);
  const Value init = ConvertTo(operation.operand(1), reducer.type);
  const Window& window = *operation.attributes().window;
  const Dims &dims = operand.dims(), &result = operation.result().dims;
  const int64_t width = tensor::ByteWidth(reducer.type);
  Array acc = Filled({reducer.type, result}, init.bytes());
  if (acc.elements() == 0 || operand.elements() == 0) return ConvertTo(Value(std::move(acc)), operation.result().type);
  const size_t last = dims.size() - 1;
  const bool lines = window[last].base_dilation == 1 && !window[last].window_reversal;
  Dims outer = result;
  if (lines) outer[last] = 1;
  const Dims sizes = WindowSizes(window), strides = tensor::Strides(result);
  Dims element(dims.size(), 0);
  do {
    const Run run = lines ? RunOf(window[last], dims[last], result[last], element[last]) : Run{0, 1, 0};
    if (run.first >= run.end) continue;
    Dims position(dims.size(), 0);
    do {
      Dims at = position;
      if (lines) at[last] = run.first;
      const int64_t from = OperandOffset(window, dims, at, element);
      if (from < 0) continue;
      int64_t to = 0;
      for (size_t d = 0; d < at.size(); ++d) to += at[d] * strides[d];
      reducer.combine(acc.bytes().data() + to * width, 1, operand.bytes().data() + from * width, window[last].stride,
                      run.end - run.first);
    } while (tensor::NextIndex(outer, absl::MakeSpan(position)));
  } while (tensor::NextIndex(sizes, absl::MakeSpan(element)));
  return ConvertTo(Value(std::move(acc)), operation.result().type);
}

absl::StatusOr<Value> WindowByCalls(const Operation& operation) {
  const size_t count = operation.operands.size() / 2;
  const Window& window = *operation.attributes().window;
  const Dims dims = operation.operand(0).dims(), sizes = WindowSizes(window), &result = operation.result().dims;
  std::vector<Array> outs;
  for (size_t k = 0; k < count; ++k) outs.emplace_back(operation.result(static_cast<int64_t>(k)));
  Dims position(result.size(), 0);
  const int64_t results = tensor::Product(result), steps = tensor::Product(sizes);
  for (int64_t i = 0; i < results; ++i) {
    std::vector<Value> acc(operation.operands.begin() + static_cast<ptrdiff_t>(count), operation.operands.end());
    Dims element(sizes.size(), 0);
    for (int64_t step = 0; step < steps; ++step, tensor::NextIndex(sizes, absl::MakeSpan(element))) {
      const int64_t from = OperandOffset(window, dims, position, element);
      if (from < 0) continue;
      for (size_t k = 0; k < count; ++k) acc.push_back(ScalarAt(operation.operands[k], from));
      XLAD_ASSIGN_OR_RETURN(Value next, operation.caller.Call(*operation.instruction.called()[0], std::move(acc)));
      acc = ResultList(std::move(next));
    }
    for (size_t k = 0; k < count; ++k) SetElement(&outs[k], i, acc[k]);
    tensor::NextIndex(result, absl::MakeSpan(position));
  }
  std::vector<Value> values;
  for (Array& out : outs) values.emplace_back(std::move(out));
  return PackResults(std::move(values), operation.shape().is_tuple());
}

absl::StatusOr<Value> EvalReduceWindow(const Operation& operation) {
  const bool one_type = operation.operand(0).type() == operation.operand(1).type();
  if (operation.operands.size() == 2 && one_type && !operation.operand(0).dims().empty()) {
    const auto fast =
        RecogniseReducer(*operation.instruction.called()[0], operation.operand(0).type(), /*wide_sums=*/false);
    if (fast.has_value()) {
      std::vector<Value> results = {WindowFast(operation, *fast)};
      return PackResults(std::move(results), operation.shape().is_tuple());
    }
  }
  return WindowByCalls(operation);
}

// Whether the selected element stays, against the next one of the window: by a typed comparison, or a call.
class Selection {
 public:
  explicit Selection(const Operation& operation)
      : operation_(operation), operand_(operation.operand(0)), wide_(Widen(operand_)) {
    simple_ = RecogniseComparator(*operation.instruction.called()[0]);
    if (simple_.has_value() && (simple_->total_order || !tensor::IsFloating(CarrierOf(operand_.type()))))
      simple_.reset();
  }

  absl::StatusOr<bool> Keeps(int64_t selected, int64_t candidate) const {
    if (simple_.has_value()) {
      return VisitCarrier(wide_.type(), [&]<typename T>() -> bool {
        if constexpr (FloatCarrier<T>) {
          const T x = wide_.values<T>()[selected];
          const T y = wide_.values<T>()[candidate];
          switch (simple_->comparison) {
            case Comparison::kGe:
              return x >= y;
            case Comparison::kGt:
              return x > y;
            case Comparison::kLe:
              return x <= y;
            case Comparison::kLt:
              return x < y;
            case Comparison::kEq:
              return x == y;
            case Comparison::kNe:
              return x != y;
          }
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

// Each window of the operand sends its source element to the element that `select` leaves standing; what arrives at
// an element is combined by `scatter`, from the initial value on.
absl::StatusOr<Value> EvalSelectAndScatter(const Operation& operation) {
  const Value &operand = operation.operand(0), &source = operation.operand(1);
  const Window& window = *operation.attributes().window;
  const Computation& scatter = *operation.instruction.called()[1];
  const auto fast = RecogniseReducer(scatter, operand.type(), /*wide_sums=*/false);
  const ElementType type = fast.has_value() ? fast->type : operand.type();
  const Value updates = ConvertTo(source, type);
  Array out = Filled({type, operand.dims()}, ConvertTo(operation.operand(2), type).bytes());
  const Selection selection(operation);
  const Dims sizes = WindowSizes(window), &positions = source.dims();
  const int64_t width = tensor::ByteWidth(type), steps = tensor::Product(sizes), count = source.elements();
  Dims position(positions.size(), 0);
  for (int64_t i = 0; i < count; ++i, tensor::NextIndex(positions, absl::MakeSpan(position))) {
    int64_t selected = -1;
    Dims element(sizes.size(), 0);
    for (int64_t step = 0; step < steps; ++step, tensor::NextIndex(sizes, absl::MakeSpan(element))) {
      const int64_t candidate = OperandOffset(window, operand.dims(), position, element);
      if (candidate < 0) continue;
      bool keeps = selected >= 0;
      if (keeps) {
        XLAD_ASSIGN_OR_RETURN(keeps, selection.Keeps(selected, candidate));
      }
      if (!keeps) selected = candidate;
    }
    if (selected < 0) continue;  // A window of padding alone.
    if (fast.has_value()) {
      fast->combine(out.bytes().data() + selected * width, 1, updates.bytes().data() + i * width, 1, 1);
    } else {
      const Value current = ScalarAt(Value(out), selected);
      XLAD_ASSIGN_OR_RETURN(const Value sum, operation.caller.Call(scatter, {current, ScalarAt(updates, i)}));
      SetElement(&out, selected, sum);
    }
  }
  return ConvertTo(Value(std::move(out)), operand.type());
}

constexpr EvalRow kRows[] = {
    {Opcode::kReduceWindow, EvalReduceWindow},
    {Opcode::kSelectAndScatter, EvalSelectAndScatter},
};

}  // namespace

absl::Span<const EvalRow> WindowRows() { return kRows; }

}  // namespace xlad::hlo::eval
