#include "hlo/eval/reducer.h"

#include <cstring>

#include "hlo/build/builder.h"
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

// An operation on the bits of a small float, computed in f32 and rounded.
template <typename Op, ElementType kType>
struct OnBits {
  using Codec = tensor::SmallFloat<kType>;
  using Bits = typename Codec::Storage;
  static Bits Apply(Bits x, Bits y) { return Codec::Encode(Op::Apply(Codec::Decode(x), Codec::Decode(y))); }
};

template <typename Op, ElementType kType>
constexpr CombineLoop kOnBits = Combine<OnBits<Op, kType>, typename tensor::SmallFloat<kType>::Storage>;

template <typename Op>
CombineLoop CombineSmallFloat(ElementType type) {
  switch (type) {
    case ElementType::kBF16:
      return kOnBits<Op, ElementType::kBF16>;
    case ElementType::kF16:
      return kOnBits<Op, ElementType::kF16>;
    case ElementType::kF8E5M2:
      return kOnBits<Op, ElementType::kF8E5M2>;
    case ElementType::kF8E4M3:
      return kOnBits<Op, ElementType::kF8E4M3>;
    case ElementType::kF8E3M4:
      return kOnBits<Op, ElementType::kF8E3M4>;
    case ElementType::kF8E4M3FN:
      return kOnBits<Op, ElementType::kF8E4M3FN>;
    case ElementType::kF8E4M3B11FNUZ:
      return kOnBits<Op, ElementType::kF8E4M3B11FNUZ>;
    case ElementType::kF8E5M2FNUZ:
      return kOnBits<Op, ElementType::kF8E5M2FNUZ>;
    case ElementType::kF8E4M3FNUZ:
      return kOnBits<Op, ElementType::kF8E4M3FNUZ>;
    case ElementType::kF8E8M0FNU:
      return kOnBits<Op, ElementType::kF8E8M0FNU>;
    case ElementType::kF4E2M1FN:
      return kOnBits<Op, ElementType::kF4E2M1FN>;
    default:
      return nullptr;
  }
}

template <typename Op>
CombineLoop CombineFor(ElementType type) {
  if (IsSmallFloat(type)) {
    if constexpr (requires { Op::Apply(1.0f, 1.0f); }) return CombineSmallFloat<Op>(type);
    return nullptr;
  }
  return VisitCarrier(type, []<typename T>() -> CombineLoop {
    if constexpr (requires { Op::Apply(T{}, T{}); }) return Combine<Op, T>;
    return nullptr;
  });
}

// The type that sums of elements of `type` are computed in if they are rounded once.
ElementType SumType(ElementType type) {
  if (type == ElementType::kF32 || IsSmallFloat(type)) return ElementType::kF64;
  return type == ElementType::kC64 ? ElementType::kC128 : type;
}

}  // namespace

CombineLoop FindCombineLoop(Opcode opcode, ElementType type) {
  switch (opcode) {
    case Opcode::kAdd:
      return CombineFor<Add>(type);
    case Opcode::kMultiply:
      return CombineFor<Multiply>(type);
    case Opcode::kMaximum:
      return CombineFor<Maximum>(type);
    case Opcode::kMinimum:
      return CombineFor<Minimum>(type);
    case Opcode::kAnd:
      return CombineFor<And>(type);
    case Opcode::kOr:
      return CombineFor<Or>(type);
    case Opcode::kXor:
      return CombineFor<Xor>(type);
    default:
      return nullptr;
  }
}

std::optional<FastReducer> MatchReducer(const Computation& reducer, ElementType type, bool wide_sums) {
  const std::optional<Opcode> opcode = ReducerOpcode(reducer);
  if (!opcode.has_value() || reducer.root()->shape().type() != type) return std::nullopt;
  const bool sums = *opcode == Opcode::kAdd || *opcode == Opcode::kMultiply;
  const ElementType in = IsSmallFloat(type) ? type : CarrierOf(type);
  const ElementType step = sums && wide_sums ? SumType(in) : in;
  const CombineLoop combine = FindCombineLoop(*opcode, step);
  if (combine == nullptr) return std::nullopt;
  return FastReducer{combine, step};
}

std::optional<SimpleComparator> MatchComparator(const Computation& comparator) {
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

namespace {

Value ScalarOf(ElementType type, const std::byte* elements, int64_t i) {
  Array scalar({type, {}});
  const int64_t width = tensor::ByteWidth(type);
  std::memcpy(scalar.bytes().data(), elements + i * width, width);
  return Value(std::move(scalar));
}

}  // namespace

Value ScalarAt(const Value& value, int64_t i) { return ScalarOf(value.type(), value.bytes().data(), i); }
Value ScalarAt(const Array& array, int64_t i) { return ScalarOf(array.shape().type, array.bytes().data(), i); }

void SetElement(Array* array, int64_t i, const Value& value) {
  const Value scalar = value.type() == array->shape().type ? value : ConvertTo(value, array->shape().type);
  const int64_t width = tensor::ByteWidth(scalar.type());
  std::memcpy(array->bytes().data() + i * width, scalar.bytes().data(), width);
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

Value PackResults(std::vector<Array> arrays, bool tuple) {
  std::vector<Value> values;
  for (Array& array : arrays) values.emplace_back(std::move(array));
  return PackResults(std::move(values), tuple);
}

std::vector<Array> ResultArrays(const Operation& operation, int64_t count) {
  std::vector<Array> arrays;
  for (int64_t i = 0; i < count; ++i) arrays.emplace_back(operation.result(i));
  return arrays;
}

}  // namespace xlad::hlo::eval
