// A template for a new device kind: every method exists, and those that would do work return Unimplemented.
// CONTRIBUTING.md, "A device kind", has the steps.
#pragma once

#include <memory>

#include "runtime/device_kind.h"

namespace xlad::runtime {

// This kind is not in the registry.
DeviceKind SkeletonDeviceKind();

}  // namespace xlad::runtime
