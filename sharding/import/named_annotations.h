// Shardings by axis names outside of Shardy's attributes, HLO's third syntax: sharding={mesh['a'=2], [{'a'}, {}]}.
#pragma once

#include "hlo/attributes.h"
#include "sharding/import/sdy_text.h"

namespace xlad::sharding {

// Converts a sharding of kind kNamed, of an array of `ndim` dimensions, to Shardy's form with an inline mesh.
// Unimplemented for manual axes and for meshes whose devices are not in order.
absl::StatusOr<SdySharding> FromNamed(const hlo::OpSharding& sharding, int64_t ndim);

}  // namespace xlad::sharding
