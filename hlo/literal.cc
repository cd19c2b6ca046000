// Literals: construction of tuples, and shapes.
#include "hlo/literal.h"

namespace xlad::hlo {

Literal Literal::Tuple(std::vector<Literal> elements) {
  Literal literal;
  literal.is_tuple = true;
  literal.tuple = std::move(elements);
  return literal;
}

Shape Literal::shape() const {
  if (!is_tuple) return Shape(array.shape());
  std::vector<Shape> elements;
  elements.reserve(tuple.size());
  for (const Literal& element : tuple) elements.push_back(element.shape());
  return Shape::Tuple(std::move(elements));
}

}  // namespace xlad::hlo
