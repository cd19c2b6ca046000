// Inference for dot, ragged-dot and scaled-dot. The element type of the result is that of the instruction's own shape.
#include "absl/strings/str_cat.h"
#include "hlo/infer/rules.h"

namespace xlad::hlo {
namespace {

bool IsFree(int64_t d, const Dims& batch, const Dims& contracting) {
  return !Contains(batch, d) && !Contains(contracting, d);
}

absl::Status CheckSide(absl::string_view label, const Dims& batch, const Dims& contracting, int64_t ndim) {
  Dims all = batch;
  all.insert(all.end(), contracting.begin(), contracting.end());
  return ExpectDimensions(label, all, ndim);
}

absl::Status CheckPairs(absl::string_view label, const Shape& lhs, const Shape& rhs, const Dims& lhs_dims,
                        const Dims& rhs_dims) {
  for (size_t k = 0; k < lhs_dims.size(); ++k) {
    if (lhs.dim(lhs_dims[k]) != rhs.dim(rhs_dims[k])) {
      return Violation(label,
                       absl::StrCat("size ", lhs.dim(lhs_dims[k]), " in dimension ", lhs_dims[k], " of ", Brief(lhs),
                                    " and ", rhs.dim(rhs_dims[k]), " in dimension ", rhs_dims[k], " of ", Brief(rhs)),
                       "equal sizes");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckDot(const DotDimensions& d, const Shape& lhs, const Shape& rhs) {
  if (d.lhs_batch.size() != d.rhs_batch.size() || d.lhs_contracting.size() != d.rhs_contracting.size()) {
    return Violation("dot-dims-count",
                     absl::StrCat("batch ", Brief(d.lhs_batch), " and ", Brief(d.rhs_batch), ", contracting ",
                                  Brief(d.lhs_contracting), " and ", Brief(d.rhs_contracting)),
                     "equal numbers of dimensions on both sides");
  }
  XLAD_RETURN_IF_ERROR(CheckSide("dot-lhs-dims", d.lhs_batch, d.lhs_contracting, lhs.ndim()));
  XLAD_RETURN_IF_ERROR(CheckSide("dot-rhs-dims", d.rhs_batch, d.rhs_contracting, rhs.ndim()));
  XLAD_RETURN_IF_ERROR(CheckPairs("dot-batch-sizes", lhs, rhs, d.lhs_batch, d.rhs_batch));
  return CheckPairs("dot-contracting-sizes", lhs, rhs, d.lhs_contracting, d.rhs_contracting);
}

// The dimensions of the result. Dimension `group` of rhs is contracted too, unless it is -1.
Dims DotDims(const DotDimensions& d, const Shape& lhs, const Shape& rhs, int64_t group = -1) {
  Dims dims;
  for (const int64_t b : d.lhs_batch) dims.push_back(lhs.dim(b));
  for (int64_t l = 0; l < lhs.ndim(); ++l) {
    if (IsFree(l, d.lhs_batch, d.lhs_contracting)) dims.push_back(lhs.dim(l));
  }
  for (int64_t r = 0; r < rhs.ndim(); ++r) {
    if (r != group && IsFree(r, d.rhs_batch, d.rhs_contracting)) dims.push_back(rhs.dim(r));
  }
  return dims;
}

absl::Status ExpectDotDims(const Instruction& i) {
  if (i.attributes().dot.has_value()) return absl::OkStatus();
  return Violation("dot-dims", "no dimension numbers", "lhs_contracting_dims and rhs_contracting_dims");
}

}  // namespace

Inferred InferDot(const Instruction& i) {
  // Any further operands describe sparse operands.
  XLAD_RETURN_IF_ERROR(ExpectOperandCount(i, 2));
  XLAD_RETURN_IF_ERROR(ExpectArray(i, 0));
  XLAD_RETURN_IF_ERROR(ExpectArray(i, 1));
  XLAD_RETURN_IF_ERROR(ExpectArrayResult(i));
  XLAD_RETURN_IF_ERROR(ExpectDotDims(i));
  const Shape& lhs = i.operand(0)->shape();
  const Shape& rhs = i.operand(1)->shape();
  XLAD_RETURN_IF_ERROR(CheckDot(*i.attributes().dot, lhs, rhs));
  return Shape(i.shape().type(), DotDims(*i.attributes().dot, lhs, rhs));
}

Inferred InferRaggedDot(const Instruction& i) {
  XLAD_RETURN_IF_ERROR(ExpectOperandCount(i, 3));
  XLAD_RETURN_IF_ERROR(ExpectArrays(i));
  XLAD_RETURN_IF_ERROR(ExpectArray(i, 2, kIntegers));
  XLAD_RETURN_IF_ERROR(ExpectArrayResult(i));
  XLAD_RETURN_IF_ERROR(ExpectDotDims(i));
  const Shape& lhs = i.operand(0)->shape();
  const Shape& rhs = i.operand(1)->shape();
  const Shape& group_sizes = i.operand(2)->shape();
  const DotDimensions& dot = *i.attributes().dot;
  XLAD_RETURN_IF_ERROR(CheckDot(dot, lhs, rhs));
  if (i.attributes().ragged_dims.size() != 1) {
    return Violation("ragged-dot-dim", absl::StrCat("lhs_ragged_dims=", Brief(i.attributes().ragged_dims)),
                     "one dimension");
  }
  const int64_t ragged = i.attributes().ragged_dims[0];
  XLAD_RETURN_IF_ERROR(ExpectDimension("ragged-dot-dim", ragged, lhs.ndim()));
  if (group_sizes.ndim() < 1) {
    return Violation("ragged-dot-group-sizes", Brief(group_sizes),
                     "at least one dimension, of which the last is over groups");
  }
  const int64_t groups = group_sizes.dims().back();
  const Dims& group_dims = i.attributes().group_dims;
  const bool free = IsFree(ragged, dot.lhs_batch, dot.lhs_contracting);
  if (group_dims.size() != (free ? 1 : 0)) {
    return Violation("ragged-dot-group-dims", absl::StrCat("rhs_group_dims=", Brief(group_dims)),
                     free ? "one group dimension"
                          : "no group dimension, because the ragged dimension is batch or contracting");
  }
  if (!free) {
    Dims dims = DotDims(dot, lhs, rhs);
    if (Contains(dot.lhs_contracting, ragged)) dims.insert(dims.begin(), groups);
    return Shape(i.shape().type(), std::move(dims));
  }
  const int64_t group = group_dims[0];
  XLAD_RETURN_IF_ERROR(ExpectDimension("ragged-dot-group-dims", group, rhs.ndim()));
  if (!IsFree(group, dot.rhs_batch, dot.rhs_contracting) || rhs.dim(group) != groups) {
    return Violation("ragged-dot-group-dims", absl::StrCat("rhs_group_dims=", Brief(group_dims), " of ", Brief(rhs)),
                     absl::StrCat("a dimension of size ", groups, " that is neither batch nor contracting"));
  }
  return Shape(i.shape().type(), DotDims(dot, lhs, rhs, group));
}

Inferred InferScaledDot(const Instruction& i) {
  // The operands are lhs, rhs and their scales. The sizes of a scale divide those of its operand.
  XLAD_RETURN_IF_ERROR(ExpectOperandCount(i, 4));
  XLAD_RETURN_IF_ERROR(ExpectArrays(i));
  XLAD_RETURN_IF_ERROR(ExpectArrayResult(i));
  XLAD_RETURN_IF_ERROR(ExpectDotDims(i));
  const Shape& lhs = i.operand(0)->shape();
  const Shape& rhs = i.operand(1)->shape();
  for (const int64_t side : {0, 1}) {
    const Shape& value = i.operand(side)->shape();
    const Shape& scale = i.operand(side + 2)->shape();
    bool fits = scale.is_scalar() || scale.ndim() == value.ndim();
    for (int64_t d = 0; fits && d < scale.ndim(); ++d) {
      fits = scale.dim(d) > 0 && value.dim(d) % scale.dim(d) == 0;
    }
    if (!fits) {
      return Violation("scaled-dot-scale", absl::StrCat("scale ", Brief(scale), " for ", Brief(value)),
                       "a scalar, or sizes that divide the operand's");
    }
  }
  XLAD_RETURN_IF_ERROR(CheckDot(*i.attributes().dot, lhs, rhs));
  return Shape(i.shape().type(), DotDims(*i.attributes().dot, lhs, rhs));
}

}  // namespace xlad::hlo
