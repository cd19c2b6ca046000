// Shape inference for opcodes that rearrange or create data: reshape, slice, pad, concatenate, iota, constant, ...
#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "hlo/infer/rules.h"

namespace xlad::hlo {
namespace {

// The number of elements of a shape, or an error if the shape is too large.
absl::StatusOr<int64_t> CheckedElements(const Shape& shape) {
  const auto elements = tensor::CheckedElements(shape.type(), shape.dims());
  if (!elements.ok()) return absl::InvalidArgumentError(absl::StrCat(elements.status().message(), " [shape-size]"));
  return elements;
}

// Checks the start indices of dynamic-slice and dynamic-update-slice, which begin at operand `first`: one scalar per
// dimension, or, in the older form, one vector.
absl::Status ExpectStarts(const Instruction& i, int64_t first, int64_t ndim) {
  const int64_t count = i.operand_count() - first;
  const auto bad = [&](const std::string& found) {
    return Violation("dynamic-slice-indices", found,
                     absl::StrCat("one scalar integer index per dimension (", ndim, "), all of one type"));
  };
  if (count == 1 && i.operand(first)->shape().is_array() && i.operand(first)->shape().dims() == Dims{ndim} &&
      (KindOf(i.operand(first)->shape().type()) & kIntegers) != 0) {
    return absl::OkStatus();
  }
  if (count != ndim) return bad(absl::StrCat(count, count == 1 ? " index" : " indices"));
  for (int64_t d = first; d < i.operand_count(); ++d) {
    const Shape& index = i.operand(d)->shape();
    if (!index.is_scalar() || (KindOf(index.type()) & kIntegers) == 0 ||
        index.type() != i.operand(first)->shape().type()) {
      return bad(absl::StrCat("index ", Brief(index)));
    }
  }
  return absl::OkStatus();
}

bool HasTiles(const Shape& shape) {
  return shape.layout() != nullptr && absl::StrContains(shape.layout()->suffix, "T(");
}

}  // namespace

Inferred InferBitcast(const Instruction& i) {
  const Shape& x = i.operand(0)->shape();
  if (!x.is_array() || !i.shape().is_array()) {
    if (x.SameIgnoringLayout(i.shape())) return i.shape();
    return Violation("bitcast-bits", absl::StrCat(Brief(x), " as ", Brief(i.shape())), "arrays of equal bit sizes");
  }
  // Tiled layouts add padding, so that arrays of different sizes may occupy the same number of bytes.
  if (HasTiles(x) || HasTiles(i.shape())) return i.shape();
  XLAD_ASSIGN_OR_RETURN(const __int128 from, CheckedElements(x));
  XLAD_ASSIGN_OR_RETURN(const __int128 to, CheckedElements(i.shape()));
  if (from * tensor::BitWidth(x.type()) != to * tensor::BitWidth(i.shape().type())) {
    return Violation("bitcast-bits", absl::StrCat(Brief(x), " as ", Brief(i.shape())), "equal bit sizes");
  }
  return i.shape();
}

Inferred InferBroadcast(const Instruction& i) {
  XLAD_RETURN_IF_ERROR(ExpectArray(i, 0));
  XLAD_RETURN_IF_ERROR(ExpectArrayResult(i));
  const Shape& x = i.operand(0)->shape();
  if (std::ssize(i.dimensions()) != x.ndim()) {
    return Violation("broadcast-dimensions", absl::StrCat("dimensions=", Brief(i.dimensions()), " for ", Brief(x)),
                     "a result dimension for each of the operand's");
  }
  XLAD_RETURN_IF_ERROR(ExpectDimensions("broadcast-dimensions", i.dimensions(), i.shape().ndim()));
  for (int64_t d = 0; d < x.ndim(); ++d) {
    const int64_t to = i.dimensions()[d];
    if (x.dim(d) != i.shape().dim(to)) {
      return Violation("broadcast-sizes",
                       absl::StrCat("operand dimension ", d, " of size ", x.dim(d), " at result dimension ", to,
                                    " of size ", i.shape().dim(to)),
                       "equal sizes");
    }
  }
  return Shape(x.type(), i.shape().dims());
}

Inferred InferReshape(const Instruction& i) {
  XLAD_RETURN_IF_ERROR(ExpectArray(i, 0));
  XLAD_RETURN_IF_ERROR(ExpectArrayResult(i));
  const Shape& x = i.operand(0)->shape();
  XLAD_ASSIGN_OR_RETURN(const int64_t from, CheckedElements(x));
  XLAD_ASSIGN_OR_RETURN(const int64_t to, CheckedElements(i.shape()));
  if (from != to) {
    return Violation("reshape-elements", absl::StrCat(Brief(i.shape()), " with ", to, " elements"),
                     absl::StrCat(from, " elements as in the operand ", Brief(x)));
  }
  return Shape(x.type(), i.shape().dims());
}

Inferred InferDynamicReshape(const Instruction& i) {
  XLAD_RETURN_IF_ERROR(ExpectOperandCount(i, 1));
  XLAD_RETURN_IF_ERROR(ExpectArrayResult(i));
  if (i.operand_count() != 1 + i.shape().ndim()) {
    return Violation("dynamic-reshape-sizes", Counted(i.operand_count() - 1, "size operand"),
                     absl::StrCat("one for each of ", i.shape().ndim(), " result dimensions"));
  }
  for (int64_t d = 1; d < i.operand_count(); ++d) {
    if (!i.operand(d)->shape().is_scalar() || i.operand(d)->shape().type() != ElementType::kS32) {
      return Violation("dynamic-reshape-sizes", Brief(i.operand(d)->shape()), "s32[]");
    }
  }
  return InferReshape(i);
}

Inferred InferTranspose(const Instruction& i) {
  XLAD_RETURN_IF_ERROR(ExpectArray(i, 0));
  const Shape& x = i.operand(0)->shape();
  if (std::ssize(i.dimensions()) != x.ndim()) {
    return Violation("transpose-permutation", absl::StrCat("dimensions=", Brief(i.dimensions()), " for ", Brief(x)),
                     absl::StrCat("a permutation of ", x.ndim(), " dimensions"));
  }
  XLAD_RETURN_IF_ERROR(ExpectDimensions("transpose-permutation", i.dimensions(), x.ndim()));
  Dims dims;
  for (const int64_t d : i.dimensions()) dims.push_back(x.dim(d));
  return Shape(x.type(), std::move(dims));
}

Inferred InferSlice(const Instruction& i) {
  XLAD_RETURN_IF_ERROR(ExpectArray(i, 0));
  const Shape& x = i.operand(0)->shape();
  const auto& slice = i.attributes().slice;
  if (std::ssize(slice) != x.ndim()) {
    return Violation("slice-dimensions",
                     absl::StrCat(Counted(std::ssize(slice), "range"), " for ", Brief(x)),
                     "one range per dimension");
  }
  Dims dims;
  for (int64_t d = 0; d < x.ndim(); ++d) {
    const auto& [start, limit, stride] = slice[d];
    if (start < 0 || limit < start || limit > x.dim(d) || stride < 1) {
      return Violation("slice-range", absl::StrCat("[", start, ":", limit, ":", stride, "] in dimension ", d),
                       absl::StrCat("0 <= start <= limit <= ", x.dim(d), " and a stride of 1 or more"));
    }
    dims.push_back((limit - start) / stride + ((limit - start) % stride != 0 ? 1 : 0));
  }
  return Shape(x.type(), std::move(dims));
}

Inferred InferReverse(const Instruction& i) {
  XLAD_RETURN_IF_ERROR(ExpectArray(i, 0));
  const Shape& x = i.operand(0)->shape();
  XLAD_RETURN_IF_ERROR(ExpectDimensions("reverse-dimensions", i.dimensions(), x.ndim()));
  return Shape(x.type(), x.dims());
}

Inferred InferDynamicSlice(const Instruction& i) {
  XLAD_RETURN_IF_ERROR(ExpectOperandCount(i, 1));
  XLAD_RETURN_IF_ERROR(ExpectArray(i, 0));
  const Shape& x = i.operand(0)->shape();
  XLAD_RETURN_IF_ERROR(ExpectStarts(i, 1, x.ndim()));
  const Dims& sizes = i.attributes().slice_sizes;
  if (std::ssize(sizes) != x.ndim()) {
    return Violation("dynamic-slice-sizes", absl::StrCat("dynamic_slice_sizes=", Brief(sizes), " for ", Brief(x)),
                     "one size per dimension");
  }
  for (int64_t d = 0; d < x.ndim(); ++d) {
    const int64_t size = sizes[d];
    if (size < 0 || size > x.dim(d)) {
      return Violation("dynamic-slice-sizes", absl::StrCat("size ", size, " in dimension ", d),
                       absl::StrCat("0 to ", x.dim(d)));
    }
  }
  return Shape(x.type(), sizes);
}

Inferred InferDynamicUpdateSlice(const Instruction& i) {
  XLAD_RETURN_IF_ERROR(ExpectOperandCount(i, 2));
  XLAD_RETURN_IF_ERROR(ExpectArray(i, 0));
  XLAD_RETURN_IF_ERROR(ExpectArray(i, 1));
  const Shape& x = i.operand(0)->shape();
  const Shape& update = i.operand(1)->shape();
  bool fits = update.type() == x.type() && update.ndim() == x.ndim();
  for (int64_t d = 0; fits && d < x.ndim(); ++d) fits = update.dim(d) <= x.dim(d);
  if (!fits) {
    return Violation("dynamic-update-slice-sizes", absl::StrCat("update ", Brief(update)),
                     absl::StrCat("a part of ", Brief(x)));
  }
  XLAD_RETURN_IF_ERROR(ExpectStarts(i, 2, x.ndim()));
  return Shape(x.type(), x.dims());
}

Inferred InferConcatenate(const Instruction& i) {
  XLAD_RETURN_IF_ERROR(ExpectOperandCount(i, 1));
  XLAD_RETURN_IF_ERROR(ExpectArrays(i));
  const Shape& first = i.operand(0)->shape();
  if (i.dimensions().size() != 1) {
    return Violation("concatenate-dimension", absl::StrCat("dimensions=", Brief(i.dimensions())), "one dimension");
  }
  const int64_t along = i.dimensions()[0];
  XLAD_RETURN_IF_ERROR(ExpectDimension("concatenate-dimension", along, first.ndim()));
  Dims dims = first.dims();
  int64_t& sum = dims[along];
  for (int64_t o = 1; o < i.operand_count(); ++o) {
    const Shape& part = i.operand(o)->shape();
    Dims same = part.dims();
    if (part.ndim() == first.ndim()) same[along] = first.dim(along);
    if (part.type() != first.type() || same != first.dims()) {
      return Violation("concatenate-sizes", absl::StrCat("operands ", Brief(first), " and ", Brief(part)),
                       absl::StrCat("the same type and sizes except in dimension ", along));
    }
    if (__builtin_add_overflow(sum, part.dim(along), &sum)) {
      return Violation("shape-size", "a sum of sizes beyond 2^63", "at most 2^62 bytes");
    }
  }
  return Shape(first.type(), std::move(dims));
}

Inferred InferPad(const Instruction& i) {
  XLAD_RETURN_IF_ERROR(ExpectArrays(i));
  const Shape& x = i.operand(0)->shape();
  const Shape& value = i.operand(1)->shape();
  if (!value.is_scalar() || value.type() != x.type()) {
    return Violation("pad-value", Brief(value), absl::StrCat("the scalar ", tensor::ToString(x.type()), "[]"));
  }
  const auto& padding = i.attributes().padding;
  if (std::ssize(padding) != x.ndim()) {
    return Violation("pad-dimensions",
                     absl::StrCat(Counted(std::ssize(padding), "padding"), " for ", Brief(x)),
                     "one padding per dimension");
  }
  Dims dims;
  for (int64_t d = 0; d < x.ndim(); ++d) {
    const PaddingDimension& pad = padding[d];
    if (pad.interior < 0) {
      return Violation("pad-interior", absl::StrCat("interior padding ", pad.interior), "0 or more");
    }
    using Wide = __int128;
    const Wide spread = x.dim(d) + Wide{std::max<int64_t>(x.dim(d) - 1, 0)} * pad.interior;
    const Wide size = spread + pad.low + pad.high;
    // The array may be computed in two steps, so the size before negative padding removes elements is limited, too.
    const Wide most = spread + std::max<int64_t>(pad.low, 0) + std::max<int64_t>(pad.high, 0);
    if (size < 0 || most > (Wide{1} << 62)) {
      return Violation("pad-size",
                       absl::StrCat("padding ", pad.low, "_", pad.high, "_", pad.interior, " of size ", x.dim(d)),
                       "a result size of 0 to 2^62");
    }
    dims.push_back(size);
  }
  return Shape(x.type(), std::move(dims));
}

Inferred InferIota(const Instruction& i) {
  XLAD_RETURN_IF_ERROR(ExpectArrayResult(i));
  if (i.dimensions().size() != 1) {
    return Violation("iota-dimension", absl::StrCat("dimensions=", Brief(i.dimensions())), "one dimension");
  }
  XLAD_RETURN_IF_ERROR(ExpectDimension("iota-dimension", i.dimensions()[0], i.shape().ndim()));
  if ((KindOf(i.shape().type()) & kNumbers) == 0) {
    return Violation("iota-type", Brief(i.shape()), TypeSetName(kNumbers));
  }
  return i.shape();
}

Inferred InferConstant(const Instruction& i) {
  if (i.literal() == nullptr) {
    return Violation("constant-literal", "no value", absl::StrCat("a value of shape ", Brief(i.shape())));
  }
  const Shape shape = i.literal()->shape();
  if (!shape.SameIgnoringLayout(i.shape())) {
    return Violation("constant-literal", absl::StrCat("a value of shape ", Brief(shape)), Brief(i.shape()));
  }
  return i.shape();
}

Inferred InferGetDimensionSize(const Instruction& i) {
  XLAD_RETURN_IF_ERROR(ExpectArray(i, 0));
  if (i.dimensions().size() != 1) {
    return Violation("dimension-size-dimension", absl::StrCat("dimensions=", Brief(i.dimensions())), "one dimension");
  }
  XLAD_RETURN_IF_ERROR(ExpectDimension("dimension-size-dimension", i.dimensions()[0], i.operand(0)->shape().ndim()));
  return Shape(ElementType::kS32, {});
}

Inferred InferSetDimensionSize(const Instruction& i) {
  XLAD_RETURN_IF_ERROR(InferGetDimensionSize(i).status());
  const Shape& size = i.operand(1)->shape();
  if (!size.is_scalar() || size.type() != ElementType::kS32) {
    return Violation("dimension-size-value", Brief(size), "s32[]");
  }
  Shape result(i.operand(0)->shape().type(), i.operand(0)->shape().dims());
  std::vector<Shape::Extent> extents = i.operand(0)->shape().extents();
  extents.resize(result.dims().size());
  extents[i.dimensions()[0]] = Shape::Extent::kBounded;
  result.set_extents(std::move(extents));
  return result;
}

}  // namespace xlad::hlo
