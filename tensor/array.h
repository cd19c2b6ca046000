// A dense array in host memory, row-major, one element after the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "absl/types/span.h"
#include "tensor/shape.h"

namespace xlad::tensor {

// Owns its bytes; copies are deep. Elements below 8 bits take one byte (value in the low bits, sign-extended for
// signed types).
class Array {
 public:
  Array() = default;
  explicit Array(Shape shape) : shape_(std::move(shape)), bytes_(static_cast<size_t>(shape_.bytes())) {}
  Array(Shape shape, std::vector<std::byte> bytes);  // As many as the shape says, or none: values that nobody knows.

  template <typename T>
  static Array FromValues(ElementType type, Dims dims, const std::vector<T>& values) {
    Array array(Shape{type, std::move(dims)});
    if (!values.empty()) std::memcpy(array.bytes_.data(), values.data(), values.size() * sizeof(T));
    return array;
  }

  const Shape& shape() const { return shape_; }
  int64_t elements() const { return shape_.elements(); }
  absl::Span<const std::byte> bytes() const { return bytes_; }
  absl::Span<std::byte> bytes() { return absl::MakeSpan(bytes_); }

  // The elements as T; sizeof(T) must be the element's width.
  template <typename T>
  absl::Span<const T> values() const {
    return {reinterpret_cast<const T*>(bytes_.data()), bytes_.size() / sizeof(T)};
  }
  template <typename T>
  absl::Span<T> values() {
    return {reinterpret_cast<T*>(bytes_.data()), bytes_.size() / sizeof(T)};
  }

  // Bit-equal, shapes included.
  friend bool operator==(const Array&, const Array&) = default;

 private:
  Shape shape_;
  std::vector<std::byte> bytes_;
};

}  // namespace xlad::tensor
