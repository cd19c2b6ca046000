// HLO text: shapes and layouts.
#include "absl/strings/str_cat.h"
#include "base/counted.h"
#include "hlo/text/parse.h"

namespace xlad::hlo {
namespace {

constexpr int64_t kSharedNdims = 9;

bool ParseTupleElements(Lexer& lexer, Shape* shape) {
  Lexer::Depth depth(lexer);
  if (!depth.Check() || !lexer.Expect('(')) return false;
  if (lexer.Accept(')')) return true;
  do {
    shape->tuple().emplace_back();
    if (!ParseShape(lexer, &shape->tuple().back())) return false;
  } while (lexer.Accept(','));
  return lexer.Expect(')');
}

// Parses "[128,<=3,?]".
bool ParseSizes(Lexer& lexer, Dims* dims, std::vector<Shape::Extent>* extents) {
  if (!lexer.Expect('[')) return false;
  if (lexer.Accept(']')) return true;
  do {
    int64_t& size = dims->emplace_back(0);
    const bool unbounded = lexer.Accept('?'), bounded = !unbounded && lexer.Accept("<=");
    if (!unbounded && !lexer.Integer(&size)) return false;
    if (!unbounded && !bounded) continue;
    extents->resize(dims->size());
    extents->back() = unbounded ? Shape::Extent::kUnbounded : Shape::Extent::kBounded;
  } while (lexer.Accept(','));
  if (!extents->empty()) extents->resize(dims->size());
  return lexer.Expect(']');
}

// A '{' that directly follows the sizes begins a layout. A '{' after a space begins a layout only if a digit or ':'
// follows it; otherwise it begins the body of a computation.
bool AtLayout(Lexer& lexer) {
  if (lexer.PeekRaw() == '{') return true;
  const char* const here = lexer.Here();
  bool layout = false;
  if (lexer.Accept('{')) {
    const char next = lexer.Peek();
    layout = (next >= '0' && next <= '9') || next == ':';
  }
  lexer.Rewind(here);
  return layout;
}

// Reads up to the '}' of the layout and drops spaces.
bool ParseLayoutSuffix(Lexer& lexer, std::string* suffix) {
  while (lexer.Peek() != '}') {
    absl::string_view part;
    if (lexer.Accept(',')) suffix->push_back(',');
    if (!lexer.Raw(&part)) return false;
    for (const char c : part) {
      if (c != ' ') suffix->push_back(c);
    }
  }
  return true;
}

}  // namespace

bool ParseLayout(Lexer& lexer, int64_t ndim, Layout* layout) {
  if (!lexer.Expect('{')) return false;
  const char* const at = lexer.Here();
  std::vector<bool> seen(ndim, false);
  while (lexer.Peek() != '}' && lexer.Peek() != ':') {
    if (!layout->minor_to_major.empty() && !lexer.Expect(',')) return false;
    int64_t dimension = 0;
    if (!lexer.Integer(&dimension)) return false;
    if (dimension < 0 || dimension >= ndim || seen[dimension]) {
      const std::string expected = ndim == 0 ? "none, of a scalar" : absl::StrCat("each of 0 to ", ndim - 1, " once");
      return lexer.Fail(at, absl::StrCat("found a layout with dimension ", dimension, ", expected ", expected));
    }
    seen[dimension] = true;
    layout->minor_to_major.push_back(dimension);
  }
  if (std::ssize(layout->minor_to_major) != ndim) {
    const size_t found = layout->minor_to_major.size();
    return lexer.Fail(at,
                      absl::StrCat("found a layout of ", Counted(found, "dimension"), ", expected the shape's ", ndim));
  }
  if (lexer.Accept(':') && !ParseLayoutSuffix(lexer, &layout->suffix)) return false;
  return lexer.Expect('}');
}

bool AtShape(Lexer& lexer) {
  const char* const here = lexer.Here();
  if (lexer.PeekRaw() == '(') return true;
  const absl::string_view word = lexer.Word();
  const char next = lexer.PeekRaw();
  lexer.Rewind(here);
  return !word.empty() && (next == '[' || (word == "b" && next == '('));
}

bool ParseShape(Lexer& lexer, Shape* shape) {
  const char* const at = lexer.Here();
  if (lexer.PeekRaw() == '(') return ParseTupleElements(lexer, shape);
  const absl::string_view word = lexer.Word();
  if (word == "b" && lexer.PeekRaw() == '(') {
    *shape = Shape::Marker(Shape::Kind::kBuffer);
    return ParseTupleElements(lexer, shape);
  }
  if (word == "token" || word == "opaque") {
    *shape = Shape::Marker(word == "token" ? Shape::Kind::kToken : Shape::Kind::kOpaque);
    if (!lexer.Expect('[') || !lexer.Expect(']')) return false;
    Layout none;
    return lexer.PeekRaw() != '{' || ParseLayout(lexer, 0, &none);
  }
  const std::optional<ElementType> type = tensor::ParseElementType(word);
  if (!type.has_value()) return lexer.FailAt(at, "a shape, as in f32[128,256]");
  Dims dims;
  std::vector<Shape::Extent> extents;
  if (!ParseSizes(lexer, &dims, &extents)) return false;
  const absl::StatusOr<int64_t> elements = tensor::CheckedElements(*type, dims);
  if (!elements.ok()) return lexer.Fail(at, elements.status().message());
  *shape = Shape(*type, std::move(dims));
  if (!extents.empty()) shape->set_extents(std::move(extents));
  if (!AtLayout(lexer)) return true;
  Layout layout;
  if (!ParseLayout(lexer, shape->ndim(), &layout)) return false;
  if (shape->ndim() > 0 || !layout.suffix.empty()) SetLayout(std::move(layout), shape);
  return true;
}

void SetLayout(Layout layout, Shape* shape) {
  // For each number of dimensions, a shape with the row-major layout. A copy of a shape shares its layout object, so
  // all shapes that are copied from this table share one object.
  static const auto* const row_major = [] {
    auto* const table = new std::vector<Shape>(kSharedNdims);
    for (int64_t ndim = 0; ndim < kSharedNdims; ++ndim) {
      Layout descending;
      for (int64_t d = ndim - 1; d >= 0; --d) descending.minor_to_major.push_back(d);
      (*table)[ndim] = Shape(ElementType::kPred, {});
      (*table)[ndim].set_layout(std::move(descending));
    }
    return table;
  }();
  const int64_t ndim = shape->ndim();
  if (ndim >= kSharedNdims || layout != *(*row_major)[ndim].layout()) {
    return shape->set_layout(std::move(layout));
  }
  Shape shared = (*row_major)[ndim];
  shared.array() = std::move(shape->array());
  if (!shape->extents().empty()) shared.set_extents(shape->extents());
  *shape = std::move(shared);
}

}  // namespace xlad::hlo
