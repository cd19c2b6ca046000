// Random collectives in the program that each device runs.
#pragma once

#include <vector>

#include "compiler/testing/random_control.h"

namespace xlad::compiler {

// Disjoint groups of devices, all of the same size.
using DeviceGroups = std::vector<std::vector<int64_t>>;

// A random collective on a value of the pool, among the devices of each group. May return an empty value.
Sample RandomCollective(RandomControl& random, hlo::Builder& builder, const Pool& pool, const DeviceGroups& groups,
                        int64_t channel);

// The elementwise maximum over each group, on all of its devices. The type must not be complex.
Sample LargestOfGroup(RandomControl& random, hlo::Builder& builder, const Sample& x, const DeviceGroups& groups,
                      int64_t channel);

}  // namespace xlad::compiler
