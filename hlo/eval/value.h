// Values inside the evaluator: arrays that are shared without copies, and tuples of values.
//
// Copying a Value shares its bytes, so that get-tuple-element, tuple and reshape take constant time. Bytes that several
// Values share are never written. Not thread-safe: one evaluation runs in one thread.
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

// Counts the bytes of all live arrays of one evaluation. Must outlive the values that it counts.
class MemoryMeter {
 public:
  explicit MemoryMeter(int64_t limit_bytes) : limit_bytes_(limit_bytes) {}
  // Returns ResourceExhausted if `bytes` further bytes would exceed the limit.
  absl::Status CheckLimit(int64_t bytes) const;
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

  // The value shares ownership of `literal`. Arrays of constants whose bytes were elided become zeros.
  static Value FromShared(const std::shared_ptr<const Literal>& literal);
  // The value refers to `literal`, which must outlive it. Elided bytes become zeros.
  static Value Borrow(const Literal& literal);
  // Zeros of any array or tuple shape; tokens are empty tuples.
  static Value Zeros(const Shape& shape);
  // A deep copy.
  Literal ToLiteral() const;

  bool is_tuple() const { return is_tuple_; }
  const std::vector<Value>& tuple() const { return tuple_; }
  std::vector<Value>& tuple() { return tuple_; }

  // The following require that the value is an array.
  const tensor::Shape& shape() const { return shape_; }
  ElementType type() const { return shape_.type; }
  const Dims& dims() const { return shape_.dims; }
  int64_t elements() const { return shape_.elements(); }
  absl::Span<const std::byte> bytes() const { return array_->bytes(); }
  template <typename T>
  absl::Span<const T> values() const {
    return array_->values<T>();
  }
  // A value that shares the bytes but has another shape, which must have the same number of bytes.
  Value WithShape(tensor::Shape shape) const;

  // Returns the array for writing. Afterwards this value is the empty tuple. The array is copied only if it is shared
  // or WithShape has changed its shape.
  Array Take();
  // Adds to `meter` the bytes of the arrays that are neither counted yet nor shared. They are subtracted when the
  // arrays are freed.
  void Charge(MemoryMeter* meter);
  // The number of bytes that FromShared and Borrow allocate in place of elided ones.
  static int64_t MissingBytes(const Literal& literal);
  // Whether the value has these element types and dimensions. Ignores layouts and dynamic dimensions.
  bool HasShape(const Shape& shape) const;

 private:
  bool is_tuple_ = true;
  std::vector<Value> tuple_;
  tensor::Shape shape_;
  std::shared_ptr<const Array> array_;
  std::shared_ptr<void> charge_;  // Subtracts the bytes from the meter when the last copy is destroyed.
};

}  // namespace xlad::hlo::eval
