// The subcommands of `xlad comm` that other files define.
#pragma once

#include "cli/command.h"

namespace xlad::cli {

// check, schedule and simulate: schedules without processes.
void AddCommSchedules(CLI::App* comm, Action* action);

}  // namespace xlad::cli
