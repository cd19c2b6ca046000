// Values inside the evaluator: arrays shared without copies, and tuples of values.
//
// A copy of a Value shares its bytes; get-tuple-element, tuple and reshape cost nothing. Bytes are immutable while
// more than one Value holds them.
#pragma once

#include <memory>
#include <vector>

#include "base/status.h"
#include "hlo/literal.h"
#include "tensor/array.h"

namespace xlad::hlo::eval {

using tensor::Array;
using tensor::Dims;
using tensor::ElementType;

// Bytes of all live arrays of one evaluation. Must outlive the values that it counts.
class Meter {
 public:
  explicit Meter(int64_t limit_bytes) : limit_bytes_(limit_bytes) {}
  // ResourceExhausted where `bytes` more would go over the limit.
  absl::Status CheckRoom(int64_t bytes) const;
  void Add(int64_t bytes) { live_bytes_ += bytes; }

 private:
  int64_t limit_bytes_;
  int64_t live_bytes_ = 0;
};

class Value {
 public:
  Value() = default;  // The empty tuple; also a token.
  explicit Value(Array array) : Value(std::make_shared<const Array>(std::move(array))) {}
  explicit Value(std::shared_ptr<const Array> array)
      : is_tuple_(false), shape_(array->shape()), array_(std::move(array)) {}
  static Value Tuple(std::vector<Value> elements);

  // Deep copies, apart from constants: `literal` is shared for as long as the value lives.
  static Value FromShared(const std::shared_ptr<const Literal>& literal);
  // The value refers to `literal`, which must outlive it.
  static Value Borrow(const Literal& literal);
  Literal ToLiteral() const;

  bool is_tuple() const { return is_tuple_; }
  const std::vector<Value>& tuple() const { return tuple_; }
  std::vector<Value>& tuple() { return tuple_; }

  // Of an array.
  const tensor::Shape& shape() const { return shape_; }
  ElementType type() const { return shape_.type; }
  const Dims& dims() const { return shape_.dims; }
  int64_t elements() const { return shape_.elements(); }
  absl::Span<const std::byte> bytes() const { return array_->bytes(); }
  template <typename T>
  absl::Span<const T> values() const {
    return array_->values<T>();
  }
  // The same bytes under another shape of as many bytes.
  Value WithShape(tensor::Shape shape) const;

  // The array, to write to: moved out where nobody else holds it, copied otherwise.
  Array Take();
  // Counts the arrays that `meter` does not know yet until they are freed.
  void Charge(Meter* meter);
  // What FromShared makes: the bytes that the literal's elided constants lack.
  static int64_t MissingBytes(const Literal& literal);
  // Shapes (element types and sizes) fit; layouts and markers aside.
  bool HasShape(const Shape& shape) const;

 private:
  bool is_tuple_ = true;
  std::vector<Value> tuple_;
  tensor::Shape shape_;
  std::shared_ptr<const Array> array_;
  std::shared_ptr<void> charge_;
};

}  // namespace xlad::hlo::eval
