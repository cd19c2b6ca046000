#include "tensor/box.h"

namespace xlad::tensor {
namespace {

// Copies a box of rows between a whole array and a shard whose dims are at least the box's sizes.
// `copy(whole_offset, shard_offset, bytes)` is called once for each contiguous row.
template <typename Copy>
void ForEachRow(const Shape& whole, const Box& box, absl::Span<const int64_t> shard_dims, const Copy& copy) {
  if (box.elements() == 0) return;
  const int64_t width = ByteWidth(whole.type);
  if (whole.dims.empty()) return copy(0, 0, width);
  const Dims sizes = box.sizes();
  const Dims outer(sizes.begin(), sizes.end() - 1);
  const Dims whole_strides = Strides(whole.dims);
  const Dims shard_strides = Strides(shard_dims);
  Dims index(outer.size(), 0);
  do {
    int64_t from = box.lo.back();
    int64_t to = 0;
    for (size_t d = 0; d < outer.size(); ++d) {
      from += (box.lo[d] + index[d]) * whole_strides[d];
      to += index[d] * shard_strides[d];
    }
    copy(from * width, to * width, sizes.back() * width);
  } while (NextIndex(outer, absl::MakeSpan(index)));
}

}  // namespace

Dims Box::sizes() const {
  Dims sizes(lo.size());
  for (size_t d = 0; d < lo.size(); ++d) sizes[d] = hi[d] - lo[d];
  return sizes;
}

int64_t Box::elements() const { return Product(sizes()); }

std::string Box::ToString() const {
  std::string text = "[";
  for (size_t d = 0; d < lo.size(); ++d) absl::StrAppend(&text, d == 0 ? "" : ", ", lo[d], ":", hi[d]);
  return text + "]";
}

Box WholeBox(const Shape& shape) { return Box{Dims(shape.dims.size(), 0), shape.dims}; }

Array ExtractBox(const Array& array, const Box& box, absl::Span<const int64_t> padded) {
  Array shard(Shape{array.shape().type, Dims(padded.begin(), padded.end())});
  ForEachRow(array.shape(), box, padded, [&](int64_t whole, int64_t part, int64_t bytes) {
    std::memcpy(shard.bytes().data() + part, array.bytes().data() + whole, static_cast<size_t>(bytes));
  });
  return shard;
}

void InsertBox(const Array& shard, const Box& box, Array* array) {
  ForEachRow(array->shape(), box, shard.shape().dims, [&](int64_t whole, int64_t part, int64_t bytes) {
    std::memcpy(array->bytes().data() + whole, shard.bytes().data() + part, static_cast<size_t>(bytes));
  });
}

}  // namespace xlad::tensor
