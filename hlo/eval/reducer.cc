#include "hlo/eval/reducer.h"

#include <cstring>

#include "hlo/builder.h"
#include "hlo/eval/binary_ops.h"

namespace xlad::hlo::eval {
namespace {

template <typename Op, typename T>
void Combine(std::byte* acc, int64_t acc_stride, const std::byte* x, int64_t x_stride, int64_t n) {
  T* to = reinterpret_cast<T*>(acc);
  const T* from = reinterpret_cast<const T*>(x);
  if (acc_stride == 0) {
    T sum = *to;
    for (int64_t i = 0; i < n; ++i) sum = Op::Apply(sum, from[i * x_stride]);
    *to = sum;
  } else if (acc_stride == 1 && x_stride == 1) {
    for (int64_t i = 0; i < n; ++i) to[i] = Op::Apply(to[i], from[i]);
  } else {
    for (int64_t i = 0; i < n; ++i) to[i * acc_stride] = Op::Apply(to[i * acc_stride], from[i * x_stride]);
  }
}

template <typename Op>
CombineRun CombineFor(ElementType carrier) {
  return VisitCarrier(carrier, []<typename T>() -> CombineRun {
    if constexpr (requires { Op::Apply(T{}, T{}); }) return Combine<Op, T>;
    return nullptr;
  });
}

ElementType SumType(ElementType carrier) {
  if (carrier == ElementType::kF32) return ElementType::kF64;
  return carrier == ElementType::kC64 ? ElementType::kC128 : carrier;
}

}  // namespace

CombineRun FindCombine(Opcode opcode, ElementType carrier) {
  switch (opcode) {
    case Opcode::kAdd: return CombineFor<Add>(carrier);
    case Opcode::kMultiply: return CombineFor<Multiply>(carrier);
    case Opcode::kMaximum: return CombineFor<Maximum>(carrier);
    case Opcode::kMinimum: return CombineFor<Minimum>(carrier);
    case Opcode::kAnd: return CombineFor<And>(carrier);
    case Opcode::kOr: return CombineFor<Or>(carrier);
    case Opcode::kXor: return CombineFor<Xor>(carrier);
    default: return nullptr;
  }
}

std::optional<FastReducer> RecogniseReducer(const Computation& reducer, ElementType type, bool wide_sums) {
  const std::optional<Opcode> opcode = ReducerOpcode(reducer);
  if (!opcode.has_value() || reducer.root()->shape().type() != type) return std::nullopt;
  ElementType carrier = CarrierOf(type);
  const bool sums = *opcode == Opcode::kAdd || *opcode == Opcode::kMultiply;
  if (sums && wide_sums) carrier = SumType(carrier);
  const CombineRun combine = FindCombine(*opcode, carrier);
  if (combine == nullptr) return std::nullopt;
  return FastReducer{combine, carrier};
}

std::optional<SimpleComparator> RecogniseComparator(const Computation& comparator) {
  const Instruction& root = *comparator.root();
  if (root.opcode() != Opcode::kCompare) return std::nullopt;
  const Instruction &x = *root.operand(0), &y = *root.operand(1);
  if (x.opcode() != Opcode::kParameter || y.opcode() != Opcode::kParameter || x.number() != 0 || y.number() != 1) {
    return std::nullopt;
  }
  if (!x.shape().is_scalar() || tensor::IsComplex(x.shape().type())) return std::nullopt;
  const Attributes& attributes = root.attributes();
  return SimpleComparator{attributes.comparison, attributes.comparison_type == ComparisonType::kFloatTotalOrder};
}

Value ScalarAt(const Value& value, int64_t i) {
  Array scalar({value.type(), {}});
  const size_t width = scalar.bytes().size();
  std::memcpy(scalar.bytes().data(), value.bytes().data() + static_cast<size_t>(i) * width, width);
  return Value(std::move(scalar));
}

void SetElement(Array* array, int64_t i, const Value& scalar) {
  const size_t width = scalar.bytes().size();
  std::memcpy(array->bytes().data() + static_cast<size_t>(i) * width, scalar.bytes().data(), width);
}

std::vector<Value> ResultList(Value result) {
  if (result.is_tuple()) return std::move(result.tuple());
  std::vector<Value> list;
  list.push_back(std::move(result));
  return list;
}

Value PackResults(std::vector<Value> values, bool tuple) {
  return tuple ? Value::Tuple(std::move(values)) : std::move(values[0]);
}

}  // namespace xlad::hlo::eval
