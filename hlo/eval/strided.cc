#include "hlo/eval/strided.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "hlo/eval/numeric.h"

namespace xlad::hlo::eval {
namespace {

struct Line {
  int64_t count, src_stride, dst_stride;
};

template <typename T>
void CopyLine(const std::byte* src, std::byte* dst, const Line& line) {
  if (line.src_stride == 1 && line.dst_stride == 1) {
    std::memcpy(dst, src, line.count * sizeof(T));
    return;
  }
  const T* from = reinterpret_cast<const T*>(src);
  T* to = reinterpret_cast<T*>(dst);
  for (int64_t i = 0; i < line.count; ++i) to[i * line.dst_stride] = from[i * line.src_stride];
}

using CopyLineFunction = void (*)(const std::byte*, std::byte*, const Line&);

CopyLineFunction LineFunction(int64_t width) {
  switch (width) {
    case 1:
      return CopyLine<uint8_t>;
    case 2:
      return CopyLine<uint16_t>;
    case 4:
      return CopyLine<uint32_t>;
    case 8:
      return CopyLine<uint64_t>;
    default:
      return CopyLine<Complex128>;
  }
}

}  // namespace

void CopyStrided(const StridedSource& from, const StridedTarget& to, absl::Span<const int64_t> dims, int64_t width) {
  if (tensor::Product(dims) == 0) return;
  const CopyLineFunction copy = LineFunction(width);
  const std::byte* src = from.bytes.data();
  std::byte* dst = to.bytes.data();
  int64_t in = from.view.offset, out = to.view.offset;
  if (dims.empty()) {
    copy(src + in * width, dst + out * width, {1, 1, 1});
    return;
  }
  const int64_t last = std::ssize(dims) - 1;
  const Line line{dims[last], from.view.strides[last], to.view.strides[last]};
  Dims index(last, 0);
  while (true) {
    copy(src + in * width, dst + out * width, line);
    int64_t d = last - 1;
    for (; d >= 0; --d) {
      in += from.view.strides[d];
      out += to.view.strides[d];
      if (++index[d] < dims[d]) break;
      in -= from.view.strides[d] * dims[d];
      out -= to.view.strides[d] * dims[d];
      index[d] = 0;
    }
    if (d < 0) return;
  }
}

Array ReadStrided(const Value& value, const StridedView& from, const tensor::Shape& shape) {
  Array out(shape);
  CopyStrided({value.bytes(), from}, {out.bytes(), RowMajor(shape.dims)}, shape.dims, tensor::ByteWidth(shape.type));
  return out;
}

Value TransposeValue(const Value& value, absl::Span<const int64_t> permutation) {
  const Dims strides = tensor::Strides(value.dims());
  tensor::Shape shape{value.type(), {}};
  StridedView view;
  bool identity = true;
  for (const int64_t d : tensor::Indices(permutation)) {
    const int64_t from = permutation[d];
    identity = identity && from == d;
    shape.dims.push_back(value.dims()[from]);
    view.strides.push_back(strides[from]);
  }
  return identity ? value : Value(ReadStrided(value, view, shape));
}

Value Concatenate(absl::Span<const Value> parts, int64_t dimension) {
  tensor::Shape shape = parts[0].shape();
  for (const Value& part : parts.subspan(1)) shape.dims[dimension] += part.dims()[dimension];
  Array out(shape);
  StridedView to = RowMajor(shape.dims);
  for (const Value& part : parts) {
    CopyStrided({part.bytes(), RowMajor(part.dims())}, {out.bytes(), to}, part.dims(), tensor::ByteWidth(shape.type));
    to.offset += part.dims()[dimension] * to.strides[dimension];
  }
  return Value(std::move(out));
}

Value SliceAt(const Value& value, int64_t dimension, int64_t i) {
  StridedView view = RowMajor(value.dims());
  view.offset = i * view.strides[dimension];
  view.strides.erase(view.strides.begin() + dimension);
  tensor::Shape shape = value.shape();
  shape.dims.erase(shape.dims.begin() + dimension);
  return Value(ReadStrided(value, view, shape));
}

int64_t Offset(absl::Span<const int64_t> index, absl::Span<const int64_t> strides) {
  int64_t offset = 0;
  for (const int64_t d : tensor::Indices(index)) offset += index[d] * strides[d];
  return offset;
}

int64_t IntAt(const Value& value, int64_t i) {
  return VisitCarrier(CarrierOf(value.type()), [&]<typename T>() -> int64_t {
    if constexpr (IntCarrier<T> || std::is_same_v<T, Bool>) {
      const auto element = value.values<T>()[i];
      if constexpr (std::is_same_v<T, Bool>) {
        return IsTrue(element) ? 1 : 0;
      } else if constexpr (std::is_same_v<T, uint64_t>) {
        return std::min<uint64_t>(element, std::numeric_limits<int64_t>::max());
      } else {
        return element;
      }
    }
    return 0;
  });
}

Array Filled(const tensor::Shape& shape, absl::Span<const std::byte> scalar) {
  Array out(shape);
  const std::byte* end = out.bytes().data() + out.bytes().size();
  for (std::byte* at = out.bytes().data(); at != end; at += scalar.size()) {
    std::memcpy(at, scalar.data(), scalar.size());
  }
  return out;
}

}  // namespace xlad::hlo::eval
