#include "tensor/shape.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace xlad::tensor {

std::string Shape::ToString() const {
  return absl::StrCat(tensor::ToString(type), "[", absl::StrJoin(dims, ","), "]");
}

absl::StatusOr<int64_t> CheckedElements(ElementType type, absl::Span<const int64_t> dims) {
  constexpr int64_t kMaxBytes = 1LL << 62;
  const int64_t width = std::max<int64_t>(1, ByteWidth(type));
  int64_t elements = 1;
  bool empty = false;
  for (const int64_t size : dims) {
    if (size < 0) {
      return absl::InvalidArgumentError(absl::StrCat("found dimension size ", size, ", expected 0 or more"));
    }
    if (size == 0) {
      empty = true;
    } else if (elements > kMaxBytes / width / size) {
      return absl::InvalidArgumentError(absl::StrCat("found shape ", tensor::ToString(type), "[",
                                                     absl::StrJoin(dims, ","),
                                                     "], expected at most 2^62 bytes"));
    } else {
      elements *= size;
    }
  }
  return empty ? 0 : elements;
}

absl::StatusOr<Shape> ParseShape(absl::string_view text) {
  const auto bad = [&] {
    return absl::InvalidArgumentError(
        absl::StrCat("found shape \"", text, "\", expected an element type and sizes, as in f32[128,256]"));
  };
  const size_t open = text.find('[');
  if (open == absl::string_view::npos || text.back() != ']') return bad();
  const auto type = ParseElementType(text.substr(0, open));
  if (!type.has_value()) return bad();
  Shape shape{*type, {}};
  const absl::string_view inside = text.substr(open + 1, text.size() - open - 2);
  if (!inside.empty()) {
    for (const absl::string_view part : absl::StrSplit(inside, ',')) {
      int64_t size = 0;
      if (!absl::SimpleAtoi(part, &size)) return bad();
      shape.dims.push_back(size);
    }
  }
  XLAD_RETURN_IF_ERROR(CheckedElements(shape.type, shape.dims).status());
  return shape;
}

}  // namespace xlad::tensor
