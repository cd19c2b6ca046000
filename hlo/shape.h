// Shapes in HLO: an array with an optional layout, a tuple of shapes, a token, an opaque value, or a buffer around a
// shape. Examples of the text: f32[2,3]{1,0}, (f32[], s32[2]), token[], b(f32[4]).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tensor/shape.h"

namespace xlad::hlo {

using tensor::Dims;
using tensor::ElementType;

// The order of dimensions in memory, and the rest of the text that HLO has in braces after a shape. xlad computes on
// row-major arrays; layouts matter only for round trips and for the parameters and results of the entry.
struct Layout {
  std::vector<int64_t> minor_to_major;
  std::string suffix;  // The canonical text after ':' ("T(8,128)S(1)"), or empty.
  friend bool operator==(const Layout&, const Layout&) = default;
};

class Shape {
 public:
  enum class Kind { kArray, kTuple, kToken, kOpaque, kBuffer };
  // The meaning of the size of a dimension: the exact size, an upper bound ("<=3"), or unknown ("?", stored as 0).
  enum class Extent : uint8_t { kFixed, kBounded, kUnbounded };

  Shape() = default;  // The empty tuple.
  Shape(ElementType type, Dims dims) : kind_(Kind::kArray), array_{type, std::move(dims)} {}
  explicit Shape(tensor::Shape array) : kind_(Kind::kArray), array_(std::move(array)) {}
  static Shape Tuple(std::vector<Shape> elements);
  static Shape Marker(Kind kind);  // `kind` is kToken, kOpaque or kBuffer, whose shape the caller adds to tuple().

  Kind kind() const { return kind_; }
  bool is_array() const { return kind_ == Kind::kArray; }
  bool is_tuple() const { return kind_ == Kind::kTuple; }
  bool is_scalar() const { return is_array() && array_.dims.empty(); }

  // array() to elements() are only for arrays.
  const tensor::Shape& array() const { return array_; }
  tensor::Shape& array() { return array_; }
  ElementType type() const { return array_.type; }
  const Dims& dims() const { return array_.dims; }
  int64_t dim(int64_t d) const { return array_.dims[d]; }
  int64_t ndim() const { return array_.ndim(); }
  int64_t elements() const { return array_.elements(); }
  int64_t bytes() const;       // The sum over all arrays inside; 0 for tokens and opaque values.
  int64_t part_count() const;  // The number of shapes in the tree: this shape and all shapes inside it.

  // The elements of a tuple. A buffer has one element, the shape inside it.
  const std::vector<Shape>& tuple() const { return tuple_; }
  std::vector<Shape>& tuple() { return tuple_; }

  // One entry per dimension, or empty if all sizes are exact.
  const std::vector<Extent>& extents() const { return extents_; }
  void set_extents(std::vector<Extent> extents);
  bool has_unbounded() const;  // Returns true if any size of any array inside is unknown.
  const Layout* layout() const { return layout_.get(); }
  void set_layout(Layout layout) { layout_ = std::make_shared<const Layout>(std::move(layout)); }
  void clear_layout();  // Clears the layouts of all arrays inside.

  // The HLO text: "f32[2,3]{1,0}", or "f32[2,3]" if `layouts` is false.
  std::string ToString(bool layouts = true) const;

  // Compares kinds, element types and sizes, but neither layouts nor extents.
  bool SameIgnoringLayout(const Shape& other) const;
  friend bool operator==(const Shape& a, const Shape& b);

 private:
  Kind kind_ = Kind::kTuple;
  tensor::Shape array_;
  std::vector<Shape> tuple_;
  std::vector<Extent> extents_;
  std::shared_ptr<const Layout> layout_;
};

}  // namespace xlad::hlo
