// The form of HLO's sharding={...} that names mesh axes, sharding={mesh['a'=2], [{'a'}, {}]}. It is not an attribute of
// Shardy.
#pragma once

#include "hlo/attributes.h"
#include "sharding/import/sdy_text.h"

namespace xlad::sharding {

// Converts a sharding of kind kNamed, of an array of `ndim` dimensions, to Shardy's form with an inline mesh.
// InvalidArgument if its text is malformed. Unimplemented for manual axes and for a mesh with a transposed list of
// devices.
absl::StatusOr<SdySharding> FromNamed(const hlo::OpSharding& sharding, int64_t ndim);

}  // namespace xlad::sharding
