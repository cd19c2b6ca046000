// Shapes and boxes as messages have them. Templates over the message types, so that this folder needs no protos: a
// shape message has element_type and dims (proto ArrayShape), a box message lo and hi (proto Box).
#pragma once

#include "tensor/box.h"
#include "tensor/shape.h"

namespace xlad::tensor {

// As it stands in the message: nothing is checked.
template <typename ShapeMessage>
Shape ShapeFromWire(const ShapeMessage& message) {
  return {static_cast<ElementType>(message.element_type()), {message.dims().begin(), message.dims().end()}};
}

// InvalidArgument for an unknown element type, a negative size, or more bytes than can be counted.
template <typename ShapeMessage>
absl::StatusOr<Shape> CheckedShapeFromWire(const ShapeMessage& message) {
  Shape shape = ShapeFromWire(message);
  if (ByteWidth(shape.type) < 1) {
    return absl::InvalidArgumentError(absl::StrCat("found element type number ", message.element_type()));
  }
  XLAD_RETURN_IF_ERROR(CheckedElements(shape.type, shape.dims).status());
  return shape;
}

template <typename ShapeMessage>
void ShapeToWire(const Shape& shape, ShapeMessage* out) {
  out->set_element_type(static_cast<int>(shape.type));
  out->mutable_dims()->Assign(shape.dims.begin(), shape.dims.end());
}

template <typename BoxMessage>
Box BoxFromWire(const BoxMessage& message) {
  return {{message.lo().begin(), message.lo().end()}, {message.hi().begin(), message.hi().end()}};
}

template <typename BoxMessage>
void BoxToWire(const Box& box, BoxMessage* out) {
  out->mutable_lo()->Assign(box.lo.begin(), box.lo.end());
  out->mutable_hi()->Assign(box.hi.begin(), box.hi.end());
}

// Whether the box lies in the shape.
inline bool IsInside(const Box& box, const Shape& shape) {
  if (box.lo.size() != shape.dims.size() || box.hi.size() != shape.dims.size()) return false;
  for (size_t d = 0; d < shape.dims.size(); ++d) {
    if (box.lo[d] < 0 || box.hi[d] < box.lo[d] || box.hi[d] > shape.dims[d]) return false;
  }
  return true;
}

// The box moved to the start of its space.
inline Box AtOrigin(const Box& box) { return {Dims(box.lo.size(), 0), box.sizes()}; }

}  // namespace xlad::tensor
