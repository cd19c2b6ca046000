// Shardings by axis names outside of Shardy's attributes (HLO's third syntax): sharding={mesh['a'=2], [{'a'}, {}]}.
#pragma once

#include "hlo/attributes.h"
#include "sharding/import/sdy_text.h"

namespace xlad::sharding {

// One of kind kNamed, as Shardy would write it, with its mesh inline. Unimplemented for manual axes.
absl::StatusOr<SdySharding> FromNamed(const hlo::OpSharding& sharding, int64_t ndim);

}  // namespace xlad::sharding
