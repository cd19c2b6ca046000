// One tensor's sharding seen through the factors of an op, and back.
//
// A dimension's axes are dealt out to its factors from major to minor: a factor takes axes (or the major part of
// one) until it is split wholly, then the next begins. What no factor can express stays on the dimension, cannot be
// passed on, and keeps the dimension from being split further.
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
  bool closed = false;             // No further axis may be added.
  bool divides = false;            // One of several factors of its dimension: must be split evenly.
  bool changed = false;
};

struct TensorProjection {
  std::vector<FactorSharding> factors;  // Those that the tensor has.
  AxisList taken;                       // Axes that no factor has and none may get: replicated, unreduced, left over.

  FactorSharding* Find(int factor);
  const FactorSharding* Find(int factor) const { return const_cast<TensorProjection*>(this)->Find(factor); }
  // The largest major part of `axis` that is not used by another factor than `factor` and not taken; size 1: none.
  AxisRef Free(const AxisRef& axis, int factor) const;
};

TensorProjection Project(const OpRule& rule, const TensorFactors& tensor, const Dims& dims,
                         const TensorSharding& sharding);

// Puts the changed factors' axes back onto their dimensions. Returns whether a dimension changed.
bool WriteBack(const OpRule& rule, const TensorFactors& tensor, const TensorProjection& projection,
               TensorSharding* sharding);

// Two lists compared axis by axis, cutting an axis where the other list has a part of it.
struct ListComparison {
  AxisList common;                  // The longest prefix that both have.
  AxisList rest_a, rest_b;          // What each has after it.
  size_t whole_a = 0, whole_b = 0;  // Elements of a and of b that lie wholly inside `common`.
};
ListComparison Compare(const AxisList& a, const AxisList& b);

}  // namespace xlad::sharding
