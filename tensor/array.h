// A dense array in host memory, in row-major order without padding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "absl/types/span.h"
#include "tensor/shape.h"

namespace xlad::tensor {

// An array owns its bytes, and copies are deep. Types of less than 8 bits take one byte per element: the value is in
// the low bits, sign-extended for signed types. Complex elements are a real and an imaginary part, in that order.
// Threads may read one array at the same time; a writer needs exclusive access.
class Array {
 public:
  Array() = default;
  // All elements are zero.
  explicit Array(Shape shape) : shape_(std::move(shape)), bytes_(shape_.bytes()) {}
  // `bytes` has shape.bytes() bytes, or is empty if the values are unknown (as in programs that were printed without
  // their large constants). Any other size is a fatal error.
  Array(Shape shape, std::vector<std::byte> bytes);

  // The array of type `type` and dimensions `dims` with the elements `values`, one T per element. If the type is
  // complex, there are two values per element, and T has the width of the real part. All zeros if `values` is empty.
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

  // The elements as values of type T, which has the width of one element. Valid as long as the array.
  template <typename T>
  absl::Span<const T> values() const {
    return {reinterpret_cast<const T*>(bytes_.data()), bytes_.size() / sizeof(T)};
  }
  template <typename T>
  absl::Span<T> values() {
    return {reinterpret_cast<T*>(bytes_.data()), bytes_.size() / sizeof(T)};
  }

  // Equal shapes and equal bits: -0 differs from +0, and a NaN equals itself.
  friend bool operator==(const Array&, const Array&) = default;

 private:
  Shape shape_;
  std::vector<std::byte> bytes_;
};

}  // namespace xlad::tensor
