// The flags of the commands that run a coordinator: `coordinator` and `up`.
#pragma once

#include "cli/command.h"
#include "service/build_queue/build_child.h"
#include "service/state/options.h"

namespace xlad::cli {

struct CoordinatorFlags {
  service::CoordinatorOptions coordinator;
  int64_t keep_days = 30;
  int64_t build_memory_bytes = service::DefaultBuildMemoryBytes();

  // Sets what the flags do not set directly. InvalidArgument if they contradict each other.
  absl::StatusOr<service::CoordinatorOptions> Options() const;
};

// `flags` must outlive the app.
void AddCoordinatorFlags(CLI::App* app, CoordinatorFlags* flags);

}  // namespace xlad::cli
