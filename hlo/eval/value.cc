#include "hlo/eval/value.h"

#include <algorithm>

namespace xlad::hlo::eval {
namespace {

// The value with the structure of `literal` and the leaves that `make_leaf` returns.
template <typename MakeLeaf>
Value MapLeaves(const Literal& literal, const MakeLeaf& make_leaf) {
  if (!literal.is_tuple) return make_leaf(literal);
  std::vector<Value> elements;
  for (const Literal& element : literal.tuple) elements.push_back(MapLeaves(element, make_leaf));
  return Value::Tuple(std::move(elements));
}

// Returns false for a constant whose values were elided when the program was printed.
bool HasBytes(const Literal& literal) {
  return std::ssize(literal.array.bytes()) == literal.array.shape().bytes();
}

}  // namespace

absl::Status MemoryMeter::CheckLimit(int64_t bytes) const {
  if (bytes <= limit_bytes_ - live_bytes_) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("found ", live_bytes_, " live bytes and a result of ", bytes,
                                                   ", expected at most ", limit_bytes_,
                                                   " bytes in one evaluation; raise EvaluateLimits.live_bytes"));
}

Value Value::Tuple(std::vector<Value> elements) {
  Value value;
  value.tuple_ = std::move(elements);
  return value;
}

Value Value::FromShared(const std::shared_ptr<const Literal>& literal) {
  return MapLeaves(*literal, [&](const Literal& leaf) {
    if (!HasBytes(leaf)) return Value(Array(leaf.array.shape()));
    return Value(std::shared_ptr<const Array>(literal, &leaf.array));
  });
}

int64_t Value::MissingBytes(const Literal& literal) {
  int64_t bytes = literal.is_tuple || HasBytes(literal) ? 0 : literal.array.shape().bytes();
  for (const Literal& element : literal.tuple) bytes += MissingBytes(element);
  return bytes;
}

Value Value::Borrow(const Literal& literal) {
  return MapLeaves(literal, [](const Literal& leaf) {
    if (!HasBytes(leaf)) return Value(Array(leaf.array.shape()));
    return Value(std::shared_ptr<const Array>(std::shared_ptr<void>(), &leaf.array));
  });
}

Value Value::Zeros(const Shape& shape) {
  if (shape.is_array()) return Value(Array(shape.array()));
  std::vector<Value> elements;
  for (const Shape& element : shape.tuple()) elements.push_back(Zeros(element));
  return Tuple(std::move(elements));
}

Literal Value::ToLiteral() const {
  if (!is_tuple_) {
    return Literal(Array(shape_, std::vector<std::byte>(array_->bytes().begin(), array_->bytes().end())));
  }
  std::vector<Literal> elements;
  for (const Value& element : tuple_) elements.push_back(element.ToLiteral());
  return Literal::Tuple(std::move(elements));
}

Value Value::WithShape(tensor::Shape shape) const {
  XLAD_CHECK(!is_tuple_ && shape.bytes() == shape_.bytes()) << shape.ToString() << " from " << shape_.ToString();
  Value value = *this;
  value.shape_ = std::move(shape);
  return value;
}

Array Value::Take() {
  const bool unshared = array_.use_count() == 1 && array_->shape() == shape_;
  Array array = unshared ? std::move(const_cast<Array&>(*array_))  // The array was created non-const.
                         : Array(shape_, std::vector<std::byte>(array_->bytes().begin(), array_->bytes().end()));
  *this = Value();
  return array;
}

void Value::Charge(MemoryMeter* meter) {
  for (Value& element : tuple_) element.Charge(meter);
  if (is_tuple_ || charge_ != nullptr || array_.use_count() != 1) return;
  const int64_t bytes = shape_.bytes();
  meter->Add(bytes);
  charge_ = std::shared_ptr<void>(meter, [meter, bytes](void*) { meter->Add(-bytes); });
}

bool Value::HasShape(const Shape& shape) const {
  if (shape.is_array()) {
    return !is_tuple_ && shape_.type == shape.type() && shape_.dims == shape.dims();
  }
  if (!shape.is_tuple()) return is_tuple_ && tuple_.empty();
  return is_tuple_ && std::equal(tuple_.begin(), tuple_.end(), shape.tuple().begin(), shape.tuple().end(),
                                 [](const Value& value, const Shape& expected) { return value.HasShape(expected); });
}

}  // namespace xlad::hlo::eval
