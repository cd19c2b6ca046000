// Verifier rules on shapes: limits on sizes and nesting, and layouts that order the dimensions.
#include "absl/strings/str_cat.h"
#include "hlo/infer/rules.h"
#include "hlo/verify/rules.h"

namespace xlad::hlo {
namespace {

// The totals over the parts of a shape.
struct Totals {
  int64_t parts = 0, bytes = 0;
};

absl::Status CheckLayout(const Shape& shape) {
  const Layout* const layout = shape.layout();
  if (layout == nullptr || layout->minor_to_major.empty()) return absl::OkStatus();
  if (std::ssize(layout->minor_to_major) != shape.ndim()) {
    return Violation("layout-order", absl::StrCat("layout ", Brief(layout->minor_to_major), " of ", Brief(shape)),
                     absl::StrCat("an order of ", Counted(shape.ndim(), "dimension")));
  }
  return ExpectDimensions("layout-order", layout->minor_to_major, shape.ndim());
}

absl::Status CheckArray(const Shape& shape, Totals* totals) {
  if (shape.ndim() > kMaxNdim) {
    return Violation("shape-ndim", Counted(shape.ndim(), "dimension"), absl::StrCat("at most ", kMaxNdim));
  }
  if (tensor::BitWidth(shape.type()) == 0) return Violation("shape-type", "an invalid element type", "a known one");
  const auto elements = tensor::CheckedElements(shape.type(), shape.dims());
  if (!elements.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(elements.status().message(), " [shape-size]"));
  }
  const int64_t bytes = *elements * tensor::ByteWidth(shape.type());
  if (bytes > kMaxBytes - totals->bytes) return Violation("shape-size", "a tuple beyond 2^62 bytes", "less");
  totals->bytes += bytes;
  return CheckLayout(shape);
}

absl::Status Check(const Shape& shape, int64_t depth, Totals* totals) {
  if (++totals->parts > kMaxShapeParts) {
    return Violation("shape-parts", absl::StrCat("a tuple of more than ", kMaxShapeParts, " parts"), "fewer");
  }
  if (shape.is_array()) return CheckArray(shape, totals);
  if (depth >= kMaxTupleDepth) {
    return Violation("shape-depth", absl::StrCat("tuples nested more than ", kMaxTupleDepth, " deep"), "fewer");
  }
  for (const Shape& element : shape.tuple()) XLAD_RETURN_IF_ERROR(Check(element, depth + 1, totals));
  return absl::OkStatus();
}

}  // namespace

absl::Status VerifyShape(const Shape& shape) {
  Totals totals;
  return Check(shape, 0, &totals);
}

}  // namespace xlad::hlo
