// Replaces batch normalization by reductions and elementwise ops, so that the batch can stay split.
//
// batch-norm-training and batch-norm-grad reduce over all dimensions except the feature. As single ops they need all
// elements on every device. If the reductions are separate ops, each device reduces its shard, and only the sums, one
// number per feature, are communicated:
//
//   b = (f32[256,56,56,64], f32[64], f32[64]) batch-norm-training(x, s, o), epsilon=0.001, feature_index=3
//
// with the batch of x split over 8 devices becomes two all-reduces of f32[64] (for mean and variance) instead of an
// all-gather of x.
#pragma once

#include "hlo/module.h"

namespace xlad::sharding {

// Replaces every batch-norm-training and batch-norm-grad by equivalent ops, in all computations, except ops with a
// sharding annotation or without elements. The arithmetic is that of the definition (mean of x, mean of (x - mean)^2),
// in f32 if the type is narrower.
void ExpandBatchNorms(hlo::Module* module);

}  // namespace xlad::sharding
