// All kinds of device that this binary has.
#pragma once

#include "runtime/device_kind.h"

namespace xlad::runtime {

// One row for each kind, in the order in which `xlad version` lists them; the rows live as long as the process. The
// table is handed to the runtime from above: the worker, the command line and tests call this, runtime/ does not.
DeviceKinds AllDeviceKinds();

}  // namespace xlad::runtime
