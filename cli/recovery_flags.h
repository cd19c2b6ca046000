// Flags of `xlad submit` and `xlad run` that say how a job survives faults.
#pragma once

#include <CLI/CLI.hpp>

#include "proto/job.pb.h"
#include "proto/xlad_v1.h"

namespace xlad::cli {

struct RecoveryFlags {
  std::string checkpoint_every;  // "10" (steps) or "30s"; if empty, the coordinator's default.
  int32_t checkpoint_keep = 0;   // If 0, the coordinator's default.
  std::string checkpoint_to;     // "file:/PATH"; if empty, the coordinator keeps the checkpoints.
  int32_t attempts = 0;          // JobSpec.max_attempts; 0: any number.
  std::string resume, on_loss = "restart";
  std::vector<std::string> shrink_axes;
  bool stop_when_not_finite = false;
};

void AddRecoveryFlags(CLI::App* app, RecoveryFlags* flags);
// spec->compile() must have been set, because a job that checks numerics also stops when a loss is not finite.
void ApplyRecoveryFlags(const RecoveryFlags& flags, JobSpec* spec);

}  // namespace xlad::cli
