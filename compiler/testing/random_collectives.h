// Random collectives, as they stand in what a device runs.
#pragma once

#include <vector>

#include "compiler/testing/random_control.h"

namespace xlad::compiler {

using DeviceGroups = std::vector<std::vector<int64_t>>;  // Of one size; a device in one group at most.

// One collective of a value of the pool within each group. May return an empty value.
Sample RandomCollective(RandomControl* random, hlo::Builder* builder, const Pool& pool, const DeviceGroups& groups,
                        int64_t channel);

// The largest value of the group's, everywhere in the group; not of complex numbers.
Sample LargestOfGroup(RandomControl* random, hlo::Builder* builder, const Sample& x, const DeviceGroups& groups,
                      int64_t channel);

}  // namespace xlad::compiler
