#include "tensor/indices.h"

#include "base/containers.h"

namespace xlad::tensor {

MultiIndices::Iterator MultiIndices::begin() {
  index_.assign(dims_.size(), 0);
  return Iterator(Contains(dims_, 0) ? nullptr : this);
}

MultiIndices::Iterator& MultiIndices::Iterator::operator++() {
  if (!NextIndex(range_->dims_, absl::MakeSpan(range_->index_))) range_ = nullptr;
  return *this;
}

int64_t Product(absl::Span<const int64_t> dims) {
  int64_t product = 1;
  for (const int64_t size : dims) product *= size;
  return product;
}

Dims Strides(absl::Span<const int64_t> dims) {
  Dims strides(dims.size());
  int64_t stride = 1;
  for (size_t d = dims.size(); d-- > 0;) {
    strides[d] = stride;
    stride *= dims[d];
  }
  return strides;
}

int64_t LinearIndex(absl::Span<const int64_t> dims, absl::Span<const int64_t> index) {
  int64_t linear = 0;
  for (const int64_t d : Indices(dims)) linear = linear * dims[d] + index[d];
  return linear;
}

Dims MultiIndexAt(absl::Span<const int64_t> dims, int64_t position) {
  Dims index(dims.size());
  for (size_t d = dims.size(); d-- > 0; position /= dims[d]) index[d] = position % dims[d];
  return index;
}

Dims Select(absl::Span<const int64_t> from, absl::Span<const int64_t> which) {
  Dims selected;
  selected.reserve(which.size());
  for (const int64_t i : which) selected.push_back(from[i]);
  return selected;
}

Dims Inverse(absl::Span<const int64_t> permutation) {
  Dims inverse(permutation.size());
  for (const int64_t i : Indices(permutation)) inverse[permutation[i]] = i;
  return inverse;
}

bool NextIndex(absl::Span<const int64_t> dims, absl::Span<int64_t> index) {
  for (size_t d = dims.size(); d-- > 0;) {
    if (++index[d] < dims[d]) return true;
    index[d] = 0;
  }
  return false;
}

}  // namespace xlad::tensor
