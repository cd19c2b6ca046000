#include "hlo/analysis/leaves.h"

#include <algorithm>

namespace xlad::hlo {
namespace {

void AppendArrayLeaves(const Literal& literal, std::vector<const tensor::Array*>* leaves) {
  if (!literal.is_tuple) leaves->push_back(&literal.array);
  for (const Literal& element : literal.tuple) AppendArrayLeaves(element, leaves);
}

// The number of leaves before element `index` of a tuple. `count` returns the number of leaves of one element.
int64_t CountBefore(const Shape& tuple, int64_t index, int64_t (*count)(const Shape&)) {
  int64_t before = 0;
  for (int64_t i = 0; i < index; ++i) before += count(tuple.tuple()[i]);
  return before;
}

}  // namespace

void AppendLeaves(const Shape& shape, std::vector<const Shape*>* leaves) {
  if (!shape.is_tuple()) return leaves->push_back(&shape);
  for (const Shape& element : shape.tuple()) AppendLeaves(element, leaves);
}

std::vector<const Shape*> Leaves(const Shape& shape) {
  std::vector<const Shape*> leaves;
  AppendLeaves(shape, &leaves);
  return leaves;
}

int64_t CountLeaves(const Shape& shape) {
  return shape.is_tuple() ? CountBefore(shape, std::ssize(shape.tuple()), CountLeaves) : 1;
}

int64_t FirstLeaf(const Shape& tuple, int64_t index) { return CountBefore(tuple, index, CountLeaves); }

const Shape* PartAt(const Shape& shape, absl::Span<const int64_t> index) {
  const Shape* part = &shape;
  for (const int64_t i : index) {
    if (!part->is_tuple() || i < 0 || i >= std::ssize(part->tuple())) return nullptr;
    part = &part->tuple()[i];
  }
  return part;
}

std::vector<const Shape*> ArrayLeaves(const Shape& shape) {
  std::vector<const Shape*> leaves = Leaves(shape);
  std::erase_if(leaves, [](const Shape* leaf) { return !leaf->is_array(); });
  return leaves;
}

int64_t CountArrayLeaves(const Shape& shape) {
  if (!shape.is_tuple()) return shape.is_array() ? 1 : 0;
  return CountBefore(shape, std::ssize(shape.tuple()), CountArrayLeaves);
}

int64_t FirstArrayLeaf(const Shape& tuple, int64_t index) { return CountBefore(tuple, index, CountArrayLeaves); }

std::vector<tensor::Shape> LeafShapes(const Shape& shape) {
  std::vector<tensor::Shape> shapes;
  for (const Shape* leaf : ArrayLeaves(shape)) shapes.push_back(leaf->array());
  return shapes;
}

int64_t ElementsOfLargestLeaf(const Shape& shape) {
  int64_t most = 0;
  for (const Shape* leaf : ArrayLeaves(shape)) most = std::max(most, leaf->elements());
  return most;
}

double ElementsOfArrays(const Shape& shape) {
  if (shape.is_array()) return static_cast<double>(shape.elements());
  double sum = 0;
  for (const Shape& element : shape.tuple()) sum += ElementsOfArrays(element);
  return sum;
}

std::vector<const tensor::Array*> ArrayLeaves(const Literal& literal) {
  std::vector<const tensor::Array*> leaves;
  AppendArrayLeaves(literal, &leaves);
  return leaves;
}

}  // namespace xlad::hlo
