#include "tensor/box.h"

#include <algorithm>

namespace xlad::tensor {
namespace {

// Calls `copy(global_offset, shard_offset, bytes)`, all in bytes, for each row of a box in the last dimension. The box
// is a part of an array of shape `global`. A copy of it is at the start of a shard with dimensions `shard_dims`, each
// of which is at least the box's size.
template <typename Copy>
void ForEachRow(const Shape& global, const Box& box, absl::Span<const int64_t> shard_dims, const Copy& copy) {
  if (box.elements() == 0) return;
  const int64_t width = ByteWidth(global.type);
  if (global.dims.empty()) return copy(0, 0, width);
  const Dims sizes = box.sizes();
  const Dims outer(sizes.begin(), sizes.end() - 1);
  const Dims global_strides = Strides(global.dims);
  const Dims shard_strides = Strides(shard_dims);
  for (const Dims& index : MultiIndices(outer)) {
    int64_t global_offset = box.lo.back();
    int64_t shard_offset = 0;
    for (const int64_t d : Indices(outer)) {
      global_offset += (box.lo[d] + index[d]) * global_strides[d];
      shard_offset += index[d] * shard_strides[d];
    }
    copy(global_offset * width, shard_offset * width, sizes.back() * width);
  }
}

}  // namespace

Dims Box::sizes() const {
  Dims sizes(lo.size());
  for (const int64_t d : Indices(lo)) sizes[d] = hi[d] - lo[d];
  return sizes;
}

int64_t Box::elements() const { return Product(sizes()); }

std::string Box::ToString() const {
  std::string text = "[";
  // Error messages also print unchecked boxes, whose `lo` and `hi` may have different lengths.
  for (int64_t d = 0; d < std::max(std::ssize(lo), std::ssize(hi)); ++d) {
    absl::StrAppend(&text, d == 0 ? "" : ", ");
    if (d < std::ssize(lo)) absl::StrAppend(&text, lo[d]);
    absl::StrAppend(&text, ":");
    if (d < std::ssize(hi)) absl::StrAppend(&text, hi[d]);
  }
  return text + "]";
}

Box FullBox(const Shape& shape) { return Box{Dims(shape.dims.size(), 0), shape.dims}; }

Array ExtractBox(const Array& array, const Box& box, absl::Span<const int64_t> padded) {
  Array shard(Shape{array.shape().type, Dims(padded.begin(), padded.end())});
  ForEachRow(array.shape(), box, padded, [&](int64_t from, int64_t to, int64_t bytes) {
    std::memcpy(shard.bytes().data() + to, array.bytes().data() + from, bytes);
  });
  return shard;
}

void InsertBox(const Array& shard, const Box& box, Array* array) {
  ForEachRow(array->shape(), box, shard.shape().dims, [&](int64_t to, int64_t from, int64_t bytes) {
    std::memcpy(array->bytes().data() + to, shard.bytes().data() + from, bytes);
  });
}

bool IsInside(const Box& box, const Shape& shape) {
  if (box.lo.size() != shape.dims.size() || box.hi.size() != shape.dims.size()) return false;
  for (const int64_t d : Indices(shape.dims)) {
    if (box.lo[d] < 0 || box.hi[d] < box.lo[d] || box.hi[d] > shape.dims[d]) return false;
  }
  return true;
}

Box AtOrigin(const Box& box) { return {Dims(box.lo.size(), 0), box.sizes()}; }

}  // namespace xlad::tensor
