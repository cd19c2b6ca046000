// A tensor's sharding expressed in the factors of an op (Shardy's sharding projection), and back.
//
// The axes of a dimension are assigned to its factors from major to minor. A factor takes axes, or the major part of an
// axis, until it is split into pieces of size 1. The next factor takes the remaining axes in the same way. Example:
// mesh "a=2,b=4",
//
//   y = f32[8] reshape(f32[4,2] x)                  rule ([i, j])->([ij]) {i=4, j=2}
//   y is sharded [{"a", "b"}]                       projection of y: i: "a", "b":(1)2    j: "b":(2)2
//
// The reason is that i = 4 is split by a = 2 and the major half of b, and j by the minor half of b. If the factors are
// propagated to x, then
//
//   x is sharded [{"a", "b":(1)2}, {"b":(2)2}]
//
// Axes that no factor can express, such as an axis of size 3 on the dimension of y above, stay on the dimension. They
// are not propagated, and the dimension is not split further.
#pragma once

#include <vector>

#include "sharding/model/tensor_sharding.h"
#include "sharding/rules/op_rule.h"

namespace xlad::sharding {

// How one factor is split in one tensor.
struct FactorSharding {
  int factor = 0;
  int dim = 0;
  AxisList axes;
  std::vector<OriginPtr> origins;  // Parallel to axes.
  bool closed = false;             // No axis may be added.
  bool divides = false;            // The dimension has several factors, so the axes must split this one evenly.
  bool changed = false;            // Axes were added since Project.
};

struct TensorProjection {
  std::vector<FactorSharding> factors;  // The factors that the tensor has.
  AxisList taken;  // Axes that factors cannot get: replicated, unreduced, or on a dimension but not expressible.

  // The sharding of a factor, or null if the tensor does not have it.
  FactorSharding* Find(int factor);
  const FactorSharding* Find(int factor) const { return const_cast<TensorProjection*>(this)->Find(factor); }
  // The largest major part of `axis` that is neither taken nor used by a factor other than `factor`. Its size is 1 if
  // nothing is free.
  AxisRef Free(const AxisRef& axis, int factor) const;
};

// Returns the projection of `sharding`. The tensor has the dimensions `dims`, and `tensor` lists their factors in
// `rule`.
TensorProjection Project(const OpRule& rule, const TensorFactors& tensor, const Dims& dims,
                         const TensorSharding& sharding);

// Writes the axes of changed factors to their dimensions. Returns whether a dimension changed.
bool WriteBack(const OpRule& rule, const TensorFactors& tensor, const TensorProjection& projection,
               TensorSharding* sharding);

// A comparison of two axis lists. An axis is cut if the other list has only a part of it. On the mesh "a=2,b=4,c=2",
// for example, the lists "a", "b" and "a", "b":(1)2, "c" have the common prefix "a", "b":(1)2, and the rests are
// "b":(2)2 and "c".
struct ListComparison {
  AxisList common;                  // The longest common prefix.
  AxisList rest_a, rest_b;          // What follows it in each list.
  size_t whole_a = 0, whole_b = 0;  // The number of entries of each list that are entirely in `common`.
};
ListComparison Compare(const AxisList& a, const AxisList& b);

}  // namespace xlad::sharding
