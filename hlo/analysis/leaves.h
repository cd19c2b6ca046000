// The leaves of a shape or literal: its parts that are not tuples, in the order of a depth-first walk.
//
// Example: the shape (f32[2], (s32[], token[]), ()) has the leaves f32[2], s32[], token[]. Their numbers are 0, 1
// and 2, of which 0 and 1 are array leaves. An empty tuple has no leaves. The compiler assigns buffers to leaves, and
// the partitioner assigns shardings to array leaves.
#pragma once

#include <cstdint>
#include <vector>

#include "hlo/literal.h"
#include "hlo/shape.h"

namespace xlad::hlo {

// All leaves of a shape. The pointers refer to parts of `shape`.
std::vector<const Shape*> Leaves(const Shape& shape);
void AppendLeaves(const Shape& shape, std::vector<const Shape*>* leaves);
int64_t CountLeaves(const Shape& shape);

// The number of the first leaf of element `index` of a tuple. If `index` is the number of elements, returns the number
// of leaves.
int64_t FirstLeaf(const Shape& tuple, int64_t index);

// The part of `shape` at `index`, which has the number of an element for each nested tuple: the part {1, 0} of the
// example is s32[]. Null if there is no such part.
const Shape* PartAt(const Shape& shape, absl::Span<const int64_t> index);

// The leaves that are arrays: not tokens, opaque values or buffers.
std::vector<const Shape*> ArrayLeaves(const Shape& shape);
int64_t CountArrayLeaves(const Shape& shape);
int64_t FirstArrayLeaf(const Shape& tuple, int64_t index);

// The array leaves as shapes without layout.
std::vector<tensor::Shape> LeafShapes(const Shape& shape);

// The number of elements of the array leaf with the most elements, or 0 if there is none.
int64_t ElementsOfLargestLeaf(const Shape& shape);
// The number of elements of all arrays in a shape, including those in buffers. It is a double, because the sum may
// exceed 2^63.
double ElementsOfArrays(const Shape& shape);

// The arrays in a literal. The pointers refer to parts of `literal`.
std::vector<const tensor::Array*> ArrayLeaves(const Literal& literal);

}  // namespace xlad::hlo
