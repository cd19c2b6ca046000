// Writes literals to protos.
#include <cstring>

#include "hlo/wire/parts.h"

namespace xlad::hlo {
namespace {

#define XLAD_BYTES(type, field) {ElementType::type, &pb::Literal::field, &pb::Literal::mutable_##field}
constexpr LiteralBytes kBytes[] = {
    XLAD_BYTES(kS1, s1s),         XLAD_BYTES(kS2, s2s),           XLAD_BYTES(kS4, s4s),
    XLAD_BYTES(kS8, s8s),         XLAD_BYTES(kS16, s16s),         XLAD_BYTES(kU1, u1s),
    XLAD_BYTES(kU2, u2s),         XLAD_BYTES(kU4, u4s),           XLAD_BYTES(kU8, u8s),
    XLAD_BYTES(kU16, u16s),       XLAD_BYTES(kF16, f16s),         XLAD_BYTES(kBF16, bf16s),
    XLAD_BYTES(kF8E5M2, f8e5m2s), XLAD_BYTES(kF8E4M3FN, f8e4m3fns), XLAD_BYTES(kF8E4M3B11FNUZ, f8e4m3b11fnuzs),
    XLAD_BYTES(kF8E5M2FNUZ, f8e5m2fnuzs), XLAD_BYTES(kF8E4M3FNUZ, f8e4m3fnuzs), XLAD_BYTES(kF8E4M3, f8e4m3s),
    XLAD_BYTES(kF8E3M4, f8e3m4s), XLAD_BYTES(kF4E2M1FN, f4e2m1fns), XLAD_BYTES(kF8E8M0FNU, f8e8m0fnus),
};
#undef XLAD_BYTES

template <typename T, typename To>
void Append(const tensor::Array& array, google::protobuf::RepeatedField<To>* out) {
  const absl::Span<const T> values = array.values<T>();
  out->Add(values.begin(), values.end());
}

void WriteArray(const tensor::Array& array, pb::Literal* out) {
  const ElementType type = array.shape().type;
  if (const LiteralBytes* const field = LiteralBytesOf(type); field != nullptr) {
    std::string* const bytes = (out->*field->mutate)();
    bytes->assign(reinterpret_cast<const char*>(array.bytes().data()), array.bytes().size());
    if (tensor::BitWidth(type) == 8 || tensor::BitWidth(type) == 16) return;
    const char mask = (1 << tensor::BitWidth(type)) - 1;
    for (char& byte : *bytes) byte &= mask;
    return;
  }
  switch (type) {
    case ElementType::kPred: return Append<uint8_t>(array, out->mutable_preds());
    case ElementType::kS32: return Append<int32_t>(array, out->mutable_s32s());
    case ElementType::kS64: return Append<int64_t>(array, out->mutable_s64s());
    case ElementType::kU32: return Append<uint32_t>(array, out->mutable_u32s());
    case ElementType::kU64: return Append<uint64_t>(array, out->mutable_u64s());
    case ElementType::kF32: return Append<float>(array, out->mutable_f32s());
    case ElementType::kF64: return Append<double>(array, out->mutable_f64s());
    case ElementType::kC64: return Append<float>(array, out->mutable_c64s());
    case ElementType::kC128: return Append<double>(array, out->mutable_c128s());
    default: XLAD_CHECK(false) << "no literal field for " << tensor::ToString(type);
  }
}

bool IsRowMajor(const Dims& minor_to_major) {
  for (const int64_t i : tensor::Indices(minor_to_major)) {
    if (minor_to_major[i] != std::ssize(minor_to_major) - 1 - i) return false;
  }
  return true;
}

// Returns the elements in the memory order of a layout. The result has the shape of `array`.
tensor::Array InMemoryOrder(const tensor::Array& array, const Dims& minor_to_major) {
  const Dims& dims = array.shape().dims;
  const Dims strides = tensor::Strides(dims);
  const size_t n = dims.size();
  Dims sizes(n), steps(n);  // Ordered from the most major to the most minor dimension.
  for (size_t d = 0; d < n; ++d) {
    const size_t from = minor_to_major[n - 1 - d];
    sizes[d] = dims[from];
    steps[d] = strides[from];
  }
  tensor::Array out(array.shape());
  if (out.elements() == 0) return out;
  const size_t width = tensor::ByteWidth(array.shape().type);
  std::byte* to = out.bytes().data();
  Dims index(n, 0);
  do {
    size_t at = 0;
    for (size_t d = 0; d < n; ++d) at += index[d] * steps[d];
    std::memcpy(to, array.bytes().data() + at * width, width);
    to += width;
  } while (tensor::NextIndex(sizes, absl::MakeSpan(index)));
  return out;
}

bool IsRowMajor(const Shape& shape) { return shape.layout() == nullptr || IsRowMajor(shape.layout()->minor_to_major); }

// XLA expects the layout of the constant without tiles.
Shape ShapeOf(const Literal& literal, const Shape& constant) {
  if (literal.is_tuple) {
    std::vector<Shape> elements;
    for (size_t e = 0; e < literal.tuple.size(); ++e) {
      elements.push_back(ShapeOf(literal.tuple[e], constant.tuple()[e]));
    }
    return Shape::Tuple(std::move(elements));
  }
  Shape shape(literal.array.shape());
  if (!IsRowMajor(constant)) shape.set_layout({constant.layout()->minor_to_major, ""});
  return shape;
}

}  // namespace

const LiteralBytes* LiteralBytesOf(ElementType type) {
  for (const LiteralBytes& row : kBytes) {
    if (row.type == type) return &row;
  }
  return nullptr;
}

void WriteLiteral(const Literal& literal, const Shape& constant, pb::Literal* out) {
  WriteShape(ShapeOf(literal, constant), out->mutable_shape());
  if (literal.is_tuple) {
    for (size_t e = 0; e < literal.tuple.size(); ++e) {
      WriteLiteral(literal.tuple[e], constant.tuple()[e], out->add_tuple_literals());
    }
    return;
  }
  // An elided constant that has bytes is written as zeros, because other readers require as many values as the shape
  // has.
  out->set_elided(literal.elided);
  const bool as_it_is = IsRowMajor(constant) || literal.array.bytes().empty();
  WriteArray(as_it_is ? literal.array : InMemoryOrder(literal.array, constant.layout()->minor_to_major), out);
}

}  // namespace xlad::hlo
