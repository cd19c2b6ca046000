#include "hlo/eval/strided.h"

#include <cstring>
#include <limits>

#include "hlo/eval/numeric.h"

namespace xlad::hlo::eval {
namespace {

struct Line {
  int64_t count, src_stride, dst_stride;
};

template <typename T>
void CopyLine(const std::byte* src, std::byte* dst, const Line& line) {
  if (line.src_stride == 1 && line.dst_stride == 1) {
    std::memcpy(dst, src, static_cast<size_t>(line.count) * sizeof(T));
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

void CopyStrided(const ReadWalk& from, const WriteWalk& to, absl::Span<const int64_t> dims, int64_t width) {
  if (tensor::Product(dims) == 0) return;
  const CopyLineFunction copy = LineFunction(width);
  const std::byte* src = from.bytes.data();
  std::byte* dst = to.bytes.data();
  int64_t in = from.walk.offset, out = to.walk.offset;
  if (dims.empty()) {
    copy(src + in * width, dst + out * width, {1, 1, 1});
    return;
  }
  const size_t last = dims.size() - 1;
  const Line line{dims[last], from.walk.strides[last], to.walk.strides[last]};
  Dims index(last, 0);
  while (true) {
    copy(src + in * width, dst + out * width, line);
    size_t d = last;
    for (; d-- > 0;) {
      in += from.walk.strides[d];
      out += to.walk.strides[d];
      if (++index[d] < dims[d]) break;
      in -= from.walk.strides[d] * dims[d];
      out -= to.walk.strides[d] * dims[d];
      index[d] = 0;
    }
    if (d == std::numeric_limits<size_t>::max()) return;
  }
}

Array ReadStrided(const Value& value, const Walk& from, const tensor::Shape& shape) {
  Array out(shape);
  CopyStrided({value.bytes(), from}, {out.bytes(), Dense(shape.dims)}, shape.dims, tensor::ByteWidth(shape.type));
  return out;
}

Value TransposeValue(const Value& value, absl::Span<const int64_t> permutation) {
  const Dims strides = tensor::Strides(value.dims());
  tensor::Shape shape{value.type(), {}};
  Walk walk;
  bool identity = true;
  for (size_t d = 0; d < permutation.size(); ++d) {
    const size_t from = permutation[d];
    identity = identity && from == d;
    shape.dims.push_back(value.dims()[from]);
    walk.strides.push_back(strides[from]);
  }
  return identity ? value : Value(ReadStrided(value, walk, shape));
}

int64_t IntAt(const Value& value, int64_t i) {
  return VisitCarrier(CarrierOf(value.type()), [&]<typename T>() -> int64_t {
    if constexpr (IntCarrier<T> || std::is_same_v<T, Bool>) {
      const auto element = value.values<T>()[i];
      if constexpr (std::is_same_v<T, uint64_t>) {
        return static_cast<int64_t>(std::min<uint64_t>(element, std::numeric_limits<int64_t>::max()));
      }
      return static_cast<int64_t>(element);
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
