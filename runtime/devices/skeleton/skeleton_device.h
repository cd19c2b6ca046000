// A device kind to copy: every method exists and answers Unimplemented. CONTRIBUTING.md, "A device kind", has the
// steps.
#pragma once

#include <memory>

#include "runtime/device_kind.h"

namespace xlad::runtime {

// It is not in the registry.
DeviceKind SkeletonDeviceKind();

}  // namespace xlad::runtime
