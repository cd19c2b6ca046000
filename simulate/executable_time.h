// The simulated time of an executable, which the devices of simulated chips report for each step.
#pragma once

#include "base/status.h"
#include "hlo/module.h"
#include "proto/executable.pb.h"

namespace xlad::simulate {

// Sets Executable.simulated, and simulated_us of each step except loops and branches, for an executable whose target
// has a chip. Does nothing for other executables. `compiled` is the module after the compiler's passes, whose
// instructions have the names of the steps. The devices of the executable are the chips of one slice (SliceOfChips),
// and its axes are placed where collectives cost least. If the program cannot be timed, for example because the model
// does not support a collective, Executable.simulated has a warning with the reason, and no times. InvalidArgument for
// a chip file with errors, and for more than kMaxChips devices.
absl::Status SetSimulatedTimes(const hlo::Module& compiled, Executable* executable);

}  // namespace xlad::simulate
