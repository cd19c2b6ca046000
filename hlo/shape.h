// Shapes at the HLO level: an array with an optional layout, a tuple, or a token/opaque/buffer marker.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tensor/shape.h"

namespace xlad::hlo {

using tensor::Dims;
using tensor::ElementType;

// Dimension order in memory and the rest that HLO text may say in braces behind a shape. xlad computes on
// row-major arrays; layouts are kept for round trips and for the entry's boundary.
struct Layout {
  std::vector<int64_t> minor_to_major;
  std::string suffix;  // What follows ':' ("T(8,128)S(1)"), canonical text; empty where there is none.
  friend bool operator==(const Layout&, const Layout&) = default;
};

class Shape {
 public:
  enum class Kind { kArray, kTuple, kToken, kOpaque, kBuffer };
  // What a dimension's size says: the size; the most that it may be ("<=3"); nothing ("?": the size is 0 then).
  enum class Extent : uint8_t { kFixed, kBounded, kUnbounded };

  Shape() = default;  // The empty tuple.
  Shape(ElementType type, Dims dims) : kind_(Kind::kArray), array_{type, std::move(dims)} {}
  explicit Shape(tensor::Shape array) : kind_(Kind::kArray), array_(std::move(array)) {}
  static Shape Tuple(std::vector<Shape> elements);
  static Shape Marker(Kind kind);  // Token, opaque.

  Kind kind() const { return kind_; }
  bool is_array() const { return kind_ == Kind::kArray; }
  bool is_tuple() const { return kind_ == Kind::kTuple; }
  bool is_scalar() const { return is_array() && array_.dims.empty(); }

  // Of an array.
  const tensor::Shape& array() const { return array_; }
  tensor::Shape& array() { return array_; }
  ElementType type() const { return array_.type; }
  const Dims& dims() const { return array_.dims; }
  int64_t dim(int64_t d) const { return array_.dims[d]; }
  int64_t ndim() const { return array_.ndim(); }
  int64_t elements() const { return array_.elements(); }
  int64_t bytes() const;       // Of all leaves; 0 for markers.
  int64_t part_count() const;  // Itself and everything inside it.

  // Of a tuple (or the one inside a buffer).
  const std::vector<Shape>& tuple() const { return tuple_; }
  std::vector<Shape>& tuple() { return tuple_; }

  // Of each dimension; empty where all are fixed.
  const std::vector<Extent>& extents() const { return extents_; }
  void set_extents(std::vector<Extent> extents);
  bool has_unbounded() const;  // In any leaf.
  const Layout* layout() const { return layout_.get(); }
  void set_layout(Layout layout) { layout_ = std::make_shared<const Layout>(std::move(layout)); }
  void clear_layout();  // Of all leaves.

  // "f32[2,3]{1,0}", "(f32[], s32[2])"; without layouts where `layouts` is false.
  std::string ToString(bool layouts = true) const;

  // Same kinds, types and sizes; layouts and extents aside.
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
