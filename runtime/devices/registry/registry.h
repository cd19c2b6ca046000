// The table of all device kinds of this binary.
#pragma once

#include "runtime/device_kind.h"

namespace xlad::runtime {

// Returns one row per kind, in the order in which `xlad version` lists them. The rows are valid until the process ends.
// Only the worker, the command line and tests call this function, and they pass the table to the rest of the runtime.
DeviceKinds AllDeviceKinds();

}  // namespace xlad::runtime
