// sort and topk.
#include <algorithm>
#include <numeric>

#include "hlo/eval/binary_ops.h"
#include "hlo/eval/reducer.h"
#include "hlo/eval/strided.h"

namespace xlad::hlo::eval {
namespace {

using Less = absl::StatusOr<bool>;

// A stable merge sort of `order`. `less` is the comparator of the program, which may fail or be inconsistent. Even then
// the sort must end and must not read outside of its arrays.
template <typename F>
absl::Status MergeSort(std::vector<int64_t>* order, const F& less) {
  std::vector<int64_t> other(order->size());
  const int64_t n = std::ssize(*order);
  for (int64_t width = 1; width < n; width *= 2) {
    for (int64_t begin = 0; begin < n; begin += 2 * width) {
      const int64_t middle = std::min(begin + width, n), end = std::min(begin + 2 * width, n);
      int64_t left = begin, right = middle;
      for (int64_t to = begin; to < end; ++to) {
        bool take_right = left == middle;
        if (!take_right && right < end) {
          XLAD_ASSIGN_OR_RETURN(take_right, less((*order)[right], (*order)[left]));
        }
        other[to] = (*order)[take_right ? right++ : left++];
      }
    }
    order->swap(other);
  }
  return absl::OkStatus();
}

// The comparator of a sort. Elements are given by their linear index in the operands.
class Comparator {
 public:
  explicit Comparator(const Operation& operation) : operation_(operation), key_(Widen(operation.operand(0))) {
    simple_ = MatchComparator(*operation.instruction.called()[0]);
    if (simple_.has_value()) {
      const bool orders = simple_->comparison == Comparison::kLt || simple_->comparison == Comparison::kGt;
      if (!orders || simple_->total_order || tensor::IsComplex(key_.type())) simple_.reset();
    }
  }

  Less operator()(int64_t x, int64_t y) const {
    if (simple_.has_value()) {
      return VisitCarrier(key_.type(), [&]<typename T>() -> bool {
        if constexpr (!ComplexCarrier<T>) {
          const T a = key_.values<T>()[x], b = key_.values<T>()[y];
          return simple_->comparison == Comparison::kLt ? a < b : a > b;
        }
        return false;
      });
    }
    std::vector<Value> arguments;
    for (const Value& operand : operation_.operands) {
      arguments.push_back(ScalarAt(operand, x));
      arguments.push_back(ScalarAt(operand, y));
    }
    XLAD_ASSIGN_OR_RETURN(const Value less,
                          operation_.caller.Call(*operation_.instruction.called()[0], std::move(arguments)));
    return IntAt(less, 0) != 0;
  }

 private:
  const Operation& operation_;
  Value key_;
  std::optional<SimpleComparator> simple_;
};

// Sorts are stable, which is_stable=false allows as well.
absl::StatusOr<Value> EvalSort(const Operation& operation) {
  const Dims& dims = operation.operand(0).dims();
  const int64_t dimension = operation.instruction.dimensions()[0];
  const int64_t size = dims[dimension], stride = tensor::Strides(dims)[dimension];
  std::vector<Array> outs;
  for (const Value& operand : operation.operands) outs.emplace_back(operand.shape());
  const Comparator less(operation);
  const int64_t elements = tensor::Product(dims);
  std::vector<int64_t> order(size);
  for (int64_t first = 0; first < elements; ++first) {
    if (first / stride % size != 0) continue;  // `first` is not the first element of a line.
    for (int64_t i = 0; i < size; ++i) order[i] = first + i * stride;
    XLAD_RETURN_IF_ERROR(MergeSort(&order, less));
    for (const int64_t k : tensor::Indices(outs)) {
      const int64_t width = tensor::ByteWidth(outs[k].shape().type);
      for (int64_t i = 0; i < size; ++i) {
        const std::byte* from = operation.operands[k].bytes().data() + order[i] * width;
        std::copy_n(from, width, outs[k].bytes().data() + (first + i * stride) * width);
      }
    }
  }
  return PackResults(std::move(outs), operation.shape().is_tuple());
}

// Floats are compared by their total order: NaN is the largest and -NaN the smallest.
template <typename T>
bool TopkGreater(T x, T y) {
  if constexpr (FloatCarrier<T>) return TotalOrder(x) > TotalOrder(y);
  return x > y;
}

// The k largest (or smallest) elements of each line of the last dimension in order; equal ones in order of their index.
absl::StatusOr<Value> EvalTopk(const Operation& operation) {
  const Value& operand = operation.operand(0);
  if (tensor::IsComplex(operand.type())) return NotDefined(operation, operand.type());
  const bool largest = operation.attributes().largest;
  const int64_t size = operand.dims().back(), k = operation.result(0).dims.back();
  const Value wide = Widen(operand);
  Array values(operation.result(0)), indices(operation.result(1));
  const int64_t lines = size == 0 ? 0 : operand.elements() / size, width = tensor::ByteWidth(operand.type());
  std::vector<int64_t> order(size);
  for (int64_t line = 0; line < lines; ++line) {
    std::iota(order.begin(), order.end(), line * size);
    VisitCarrier(wide.type(), [&]<typename T>() {
      if constexpr (!ComplexCarrier<T>) {
        const auto x = wide.values<T>();
        std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
          const T left = x[a], right = x[b];
          return largest ? TopkGreater(left, right) : TopkGreater(right, left);
        });
      }
    });
    for (int64_t i = 0; i < k; ++i) {
      const int64_t from = order[i], to = line * k + i;
      std::copy_n(operand.bytes().data() + from * width, width, values.bytes().data() + to * width);
      indices.values<int32_t>()[to] = from - line * size;
    }
  }
  return Value::Tuple({Value(std::move(values)), Value(std::move(indices))});
}

constexpr EvalRow kSortRows[] = {
    {Opcode::kSort, EvalSort},
    {Opcode::kTopk, EvalTopk},
};

}  // namespace

absl::Span<const EvalRow> SortRows() { return kSortRows; }

}  // namespace xlad::hlo::eval
