// Reads literals from protos. Counts are checked before memory is allocated.
#include <cstring>

#include "hlo/wire/parts.h"

namespace xlad::hlo {
namespace {

absl::Status CountError(int64_t found, const tensor::Shape& shape) {
  return absl::InvalidArgumentError(absl::StrCat("found ", found, " literal values, expected the ", shape.elements(),
                                                 " of ", shape.ToString()));
}

// `parts` is the number of values of the field per element (2 for complex numbers).
template <typename T, typename From>
absl::Status Take(const google::protobuf::RepeatedField<From>& values, int64_t parts, tensor::Shape shape,
                  tensor::Array* array) {
  if (values.size() != parts * shape.elements()) return CountError(values.size() / parts, shape);
  *array = tensor::Array(std::move(shape));
  std::copy(values.begin(), values.end(), array->values<T>().begin());
  return absl::OkStatus();
}

absl::Status TakeBytes(const std::string& bytes, tensor::Shape shape, tensor::Array* array) {
  const int bits = tensor::BitWidth(shape.type);
  if (std::ssize(bytes) != shape.bytes()) {
    return CountError(std::ssize(bytes) / tensor::ByteWidth(shape.type), shape);
  }
  *array = tensor::Array(std::move(shape));
  if (!bytes.empty()) std::memcpy(array->bytes().data(), bytes.data(), bytes.size());
  if (bits >= 8) return absl::OkStatus();
  // One byte per element with the value in the low bits. In an array, signed values are sign-extended.
  const bool is_signed = tensor::IsSigned(array->shape().type);
  for (std::byte& element : array->bytes()) {
    unsigned value = std::to_integer<unsigned>(element) & ((1u << bits) - 1);
    if (is_signed && (value >> (bits - 1)) != 0) value |= ~0u << bits;
    element = static_cast<std::byte>(value);
  }
  return absl::OkStatus();
}

absl::Status TakeArray(const pb::Literal& in, const tensor::Shape& shape, tensor::Array* array) {
  if (const LiteralBytes* const field = LiteralBytesOf(shape.type); field != nullptr) {
    return TakeBytes((in.*field->get)(), shape, array);
  }
  switch (shape.type) {
    case ElementType::kPred: return Take<uint8_t>(in.preds(), 1, shape, array);
    case ElementType::kS32: return Take<int32_t>(in.s32s(), 1, shape, array);
    case ElementType::kS64: return Take<int64_t>(in.s64s(), 1, shape, array);
    case ElementType::kU32: return Take<uint32_t>(in.u32s(), 1, shape, array);
    case ElementType::kU64: return Take<uint64_t>(in.u64s(), 1, shape, array);
    case ElementType::kF32: return Take<float>(in.f32s(), 1, shape, array);
    case ElementType::kF64: return Take<double>(in.f64s(), 1, shape, array);
    case ElementType::kC64: return Take<float>(in.c64s(), 2, shape, array);
    case ElementType::kC128: return Take<double>(in.c128s(), 2, shape, array);
    default: return absl::InvalidArgumentError(
        absl::StrCat("found a literal of element type ", tensor::ToString(shape.type), ", expected a known type"));
  }
}

// Converts the values from the order of the layout to row-major order.
void ToRowMajor(const Dims& minor_to_major, tensor::Array* array) {
  const Dims& dims = array->shape().dims;
  bool row_major = true;
  for (const int64_t i : tensor::Indices(minor_to_major)) row_major &= minor_to_major[i] == std::ssize(dims) - 1 - i;
  if (row_major || array->elements() == 0) return;
  Dims strides(dims.size(), 0);  // In elements, for the order of the layout.
  int64_t stride = 1;
  for (const int64_t d : minor_to_major) {
    strides[d] = stride;
    stride *= dims[d];
  }
  tensor::Array result(array->shape());
  const size_t width = tensor::ByteWidth(array->shape().type);
  Dims index(dims.size(), 0);
  std::byte* out = result.bytes().data();
  do {
    size_t from = 0;
    for (const int64_t d : minor_to_major) from += index[d] * strides[d];
    std::memcpy(out, array->bytes().data() + from * width, width);
    out += width;
  } while (tensor::NextIndex(dims, absl::MakeSpan(index)));
  *array = std::move(result);
}

// Makes an elided constant as the text parser does.
void TakeElided(const tensor::Shape& shape, int64_t* elided_bytes, Literal* literal) {
  const bool fits = shape.bytes() <= *elided_bytes;
  literal->array = fits ? tensor::Array(shape) : tensor::Array(shape, {});
  literal->elided = true;
  if (fits) *elided_bytes -= shape.bytes();
}

}  // namespace

absl::Status ReadLiteral(const pb::Literal& in, const Shape& shape, int64_t* elided_bytes, Literal* literal) {
  if (shape.is_tuple()) {
    *literal = Literal::Tuple({});
    if (in.tuple_literals_size() != std::ssize(shape.tuple())) {
      return absl::InvalidArgumentError(absl::StrCat("found ", in.tuple_literals_size(), " tuple literals, expected ",
                                                     shape.tuple().size()));
    }
    for (int i = 0; i < in.tuple_literals_size(); ++i) {
      const Shape& element = shape.tuple()[i];
      XLAD_RETURN_IF_ERROR(ReadLiteral(in.tuple_literals(i), element, elided_bytes, &literal->tuple.emplace_back()));
    }
    return absl::OkStatus();
  }
  if (!shape.is_array())
    return absl::InvalidArgumentError("found a literal whose shape is neither an array nor a tuple, expected either");
  Shape own;
  if (in.has_shape()) XLAD_RETURN_IF_ERROR(ReadShape(in.shape(), &own));
  if (in.has_shape() && !own.SameIgnoringLayout(shape)) {
    return absl::InvalidArgumentError(absl::StrCat("found a literal of shape ", own.ToString(false), ", expected ",
                                                   shape.ToString(false)));
  }
  if (in.elided()) {
    TakeElided(shape.array(), elided_bytes, literal);
    return absl::OkStatus();
  }
  XLAD_RETURN_IF_ERROR(TakeArray(in, shape.array(), &literal->array));
  if (own.is_array() && own.layout() != nullptr) ToRowMajor(own.layout()->minor_to_major, &literal->array);
  return absl::OkStatus();
}

}  // namespace xlad::hlo
