// Loops over the indices of containers and of arrays.
//
// Every index, size, stride and offset in xlad is an int64_t. These helpers count in int64_t, so that index arithmetic
// does not mix signed and unsigned integers and needs no conversions:
//
//   for (const int64_t d : Indices(shape.dims)) total += shape.dims[d] * strides[d];     // d = 0, 1, ..., ndim - 1
//   for (const Dims& index : MultiIndices({2, 3})) Visit(index);                         // {0,0}, {0,1}, ..., {1,2}
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

#include "absl/types/span.h"

namespace xlad::tensor {

using Dims = std::vector<int64_t>;

// The integers 0, 1, ..., size - 1, for range-based for loops. The size is fixed when the range is made.
class IndexRange {
 public:
  class Iterator {
   public:
    explicit Iterator(int64_t value) : value_(value) {}
    int64_t operator*() const { return value_; }
    Iterator& operator++() {
      ++value_;
      return *this;
    }
    friend bool operator==(Iterator, Iterator) = default;

   private:
    int64_t value_;
  };

  explicit IndexRange(int64_t size) : size_(size) {}
  Iterator begin() const { return Iterator(0); }
  Iterator end() const { return Iterator(size_); }

 private:
  int64_t size_;
};

// The positions of the elements of a container, array, span or repeated proto field.
template <typename Container>
IndexRange Indices(const Container& container) {
  return IndexRange(std::ssize(container));
}

// All multi-indices of an array of dimensions `dims` in row-major order, for range-based for loops. There is one
// (empty) index if `dims` is empty, and no index if a dimension is 0. Two loops must not iterate over one range at the
// same time, because the range stores the current index of its iterators.
class MultiIndices {
 public:
  class Iterator {
   public:
    explicit Iterator(MultiIndices* range) : range_(range) {}
    const Dims& operator*() const { return range_->index_; }
    Iterator& operator++();
    friend bool operator==(const Iterator& iterator, std::default_sentinel_t) { return iterator.range_ == nullptr; }

   private:
    MultiIndices* range_;  // Null after the last index.
  };

  explicit MultiIndices(absl::Span<const int64_t> dims) : dims_(dims.begin(), dims.end()), index_(dims.size()) {}
  Iterator begin();
  std::default_sentinel_t end() const { return std::default_sentinel; }

 private:
  const Dims dims_;
  Dims index_;
};

// The number of elements of an array of dimensions `dims`, which is 1 if `dims` is empty. The caller must ensure that
// the product does not overflow (CheckedElements in tensor/shape.h).
int64_t Product(absl::Span<const int64_t> dims);

// Row-major strides in elements: Strides({2, 3, 5}) is {15, 5, 1}.
Dims Strides(absl::Span<const int64_t> dims);

// The row-major position of `index` in an array of dimensions `dims`: LinearIndex({2, 3}, {1, 2}) is 5.
int64_t LinearIndex(absl::Span<const int64_t> dims, absl::Span<const int64_t> index);

// The inverse of LinearIndex: MultiIndexAt({2, 3}, 5) is {1, 2}. `position` must be less than Product(dims).
Dims MultiIndexAt(absl::Span<const int64_t> dims, int64_t position);

// Element i of the result is element which[i] of `from`: Select({7, 8, 9}, {2, 0}) is {9, 7}. It gives the sizes of a
// transpose's result, or the product of two permutations.
Dims Select(absl::Span<const int64_t> from, absl::Span<const int64_t> which);

// The permutation that undoes `permutation`: Inverse({2, 0, 1}) is {1, 2, 0}.
Dims Inverse(absl::Span<const int64_t> permutation);

// Advances `index` to the next one in row-major order. Returns false, with all components 0, after the last one.
bool NextIndex(absl::Span<const int64_t> dims, absl::Span<int64_t> index);

}  // namespace xlad::tensor
