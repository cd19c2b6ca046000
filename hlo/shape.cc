// Shapes: construction, comparison and printing.
#include "hlo/shape.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/containers.h"
#include "hlo/index_comment.h"

namespace xlad::hlo {
namespace {

void AppendArray(const Shape& shape, bool layouts, std::string* out) {
  absl::StrAppend(out, tensor::ToString(shape.type()), "[");
  for (size_t d = 0; d < shape.dims().size(); ++d) {
    const Shape::Extent extent = shape.extents().empty() ? Shape::Extent::kFixed : shape.extents()[d];
    if (d > 0) out->push_back(',');
    if (extent == Shape::Extent::kUnbounded) {
      out->push_back('?');
    } else {
      absl::StrAppend(out, extent == Shape::Extent::kBounded ? "<=" : "", shape.dims()[d]);
    }
  }
  absl::StrAppend(out, "]");
  const Layout* const layout = shape.layout();
  if (!layouts || layout == nullptr) return;
  if (layout->minor_to_major.empty() && layout->suffix.empty()) {
    // The empty layout of a scalar is omitted; other shapes keep the braces of a layout without an order.
    if (!shape.dims().empty()) absl::StrAppend(out, "{}");
    return;
  }
  absl::StrAppend(out, "{", absl::StrJoin(layout->minor_to_major, ","), layout->suffix.empty() ? "" : ":",
                  layout->suffix, "}");
}

void Append(const Shape& shape, bool layouts, std::string* out) {
  switch (shape.kind()) {
    case Shape::Kind::kArray:
      return AppendArray(shape, layouts, out);
    case Shape::Kind::kToken:
      return absl::StrAppend(out, "token[]");
    case Shape::Kind::kOpaque:
      return absl::StrAppend(out, "opaque[]");
    case Shape::Kind::kBuffer:
    case Shape::Kind::kTuple:
      break;
  }
  absl::StrAppend(out, shape.kind() == Shape::Kind::kBuffer ? "b(" : "(");
  for (size_t i = 0; i < shape.tuple().size(); ++i) {
    if (i > 0) absl::StrAppend(out, ", ");
    if (layouts) AppendIndexComment(i, out);
    Append(shape.tuple()[i], layouts, out);
  }
  absl::StrAppend(out, ")");
}

}  // namespace

Shape Shape::Tuple(std::vector<Shape> elements) {
  Shape shape;
  shape.tuple_ = std::move(elements);
  return shape;
}

Shape Shape::Marker(Kind kind) {
  Shape shape;
  shape.kind_ = kind;
  return shape;
}

int64_t Shape::bytes() const {
  if (is_array()) return array_.bytes();
  int64_t sum = 0;
  for (const Shape& element : tuple_) sum += element.bytes();
  return sum;
}

int64_t Shape::part_count() const {
  int64_t count = 1;
  for (const Shape& element : tuple_) count += element.part_count();
  return count;
}

void Shape::set_extents(std::vector<Extent> extents) {
  extents_ = std::move(extents);
  if (std::all_of(extents_.begin(), extents_.end(), [](Extent e) { return e == Extent::kFixed; })) extents_.clear();
}

bool Shape::has_unbounded() const {
  return Contains(extents_, Extent::kUnbounded) ||
         std::any_of(tuple_.begin(), tuple_.end(), [](const Shape& element) { return element.has_unbounded(); });
}

void Shape::clear_layout() {
  layout_.reset();
  for (Shape& element : tuple_) element.clear_layout();
}

std::string Shape::ToString(bool layouts) const {
  std::string out;
  Append(*this, layouts, &out);
  return out;
}

bool Shape::SameIgnoringLayout(const Shape& other) const {
  if (kind_ != other.kind_) return false;
  if (is_array()) return array_ == other.array_;
  if (tuple_.size() != other.tuple_.size()) return false;
  for (size_t i = 0; i < tuple_.size(); ++i) {
    if (!tuple_[i].SameIgnoringLayout(other.tuple_[i])) return false;
  }
  return true;
}

bool operator==(const Shape& a, const Shape& b) {
  if (a.kind_ != b.kind_ || a.tuple_ != b.tuple_) return false;
  if ((a.layout_ == nullptr) != (b.layout_ == nullptr)) return false;
  if (a.layout_ != nullptr && !(*a.layout_ == *b.layout_)) return false;
  return !a.is_array() || (a.array_ == b.array_ && a.extents_ == b.extents_);
}

}  // namespace xlad::hlo
