// Slices for tests.
#pragma once

#include "simulate/slice.h"

namespace xlad::simulate {

// The slice of a valid topology, for example "2xv5e-4x4".
inline Slice SliceOf(const char* topology) { return *ParseSlice(topology, std::nullopt); }

}  // namespace xlad::simulate
