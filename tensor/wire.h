// Conversions between shapes and boxes and their protos. They are templates over the message types because tensor/ does
// not depend on proto/: a shape message has the fields element_type and dims (proto ArrayShape), and a box message has
// the fields lo and hi (proto Box). Other messages have only an element_type.
#pragma once

#include "tensor/box.h"
#include "tensor/shape.h"

namespace xlad::tensor {

// The element type of a trusted message. Nothing is checked.
template <typename Message>
ElementType TypeFromWire(const Message& message) {
  return static_cast<ElementType>(message.element_type());
}

template <typename Message>
void TypeToWire(ElementType type, Message* out) {
  out->set_element_type(static_cast<int>(type));
}

// The shape of a trusted message. Nothing is checked.
template <typename ShapeMessage>
Shape ShapeFromWire(const ShapeMessage& message) {
  return {TypeFromWire(message), {message.dims().begin(), message.dims().end()}};
}

// The shape of an untrusted message. InvalidArgument if the element type is unknown or if CheckedElements fails.
template <typename ShapeMessage>
absl::StatusOr<Shape> CheckedShapeFromWire(const ShapeMessage& message) {
  Shape shape = ShapeFromWire(message);
  if (ByteWidth(shape.type) < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("found element type number ", message.element_type(), ", expected a number of PrimitiveType"));
  }
  XLAD_RETURN_IF_ERROR(CheckedElements(shape.type, shape.dims).status());
  return shape;
}

template <typename ShapeMessage>
void ShapeToWire(const Shape& shape, ShapeMessage* out) {
  TypeToWire(shape.type, out);
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

}  // namespace xlad::tensor
