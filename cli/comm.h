// The subcommands of `xlad comm` that other files define.
#pragma once

#include "cli/command.h"

namespace xlad::cli {

// The subcommands check, schedule and simulate, which need no processes.
void AddCommSchedules(CLI::App* comm, Action* action);

}  // namespace xlad::cli
