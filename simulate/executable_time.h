// The simulated time of an executable: what the devices of simulated chips report for each of their steps.
#pragma once

#include "base/status.h"
#include "hlo/module.h"
#include "proto/executable.pb.h"

namespace xlad::simulate {

// Sets Executable.simulated, and simulated_us of each step, for an executable whose target has a chip; does nothing for
// any other. `compiled` is the module after the compiler's passes, whose instructions have the names of the steps. The
// devices of the executable are the chips of one slice (SliceOfChips), and its axes are placed where they cost least.
// If the program has an instruction that the model does not know, Executable.simulated has a warning that names it, and
// no times. InvalidArgument for a chip file with errors.
absl::Status SetSimulatedTimes(const hlo::Module& compiled, Executable* executable);

}  // namespace xlad::simulate
