// Random collectives of a program that each device runs.
#pragma once

#include <vector>

#include "compiler/testing/random_control.h"

namespace xlad::compiler {

// Disjoint groups of devices, all of one size.
using DeviceGroups = std::vector<std::vector<int64_t>>;

// One collective of a value of the pool within each group. May return an empty value.
Sample RandomCollective(RandomControl& random, hlo::Builder& builder, const Pool& pool, const DeviceGroups& groups,
                        int64_t channel);

// The element-wise maximum over each group, on all its devices. Not of complex numbers.
Sample LargestOfGroup(RandomControl& random, hlo::Builder& builder, const Sample& x, const DeviceGroups& groups,
                      int64_t channel);

}  // namespace xlad::compiler
