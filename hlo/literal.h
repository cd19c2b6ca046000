// A constant value in host memory: an array, or a tuple of literals.
#pragma once

#include <memory>
#include <vector>

#include "hlo/shape.h"
#include "tensor/array.h"

namespace xlad::hlo {

// A literal must not change once it is shared. `elided` marks a constant whose values are missing from the dump
// ("{...}"). It prints as "{...}" again and evaluates as zeros. `array` has no bytes if the module's elided constants
// would take more than 256 MiB with it.
struct Literal {
  tensor::Array array;               // Used if `is_tuple` is false.
  std::vector<Literal> tuple;
  bool is_tuple = false;
  bool elided = false;

  Literal() = default;
  explicit Literal(tensor::Array value) : array(std::move(value)) {}
  static Literal Tuple(std::vector<Literal> elements);
  Shape shape() const;
  friend bool operator==(const Literal&, const Literal&) = default;
};

}  // namespace xlad::hlo
