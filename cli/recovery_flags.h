// Flags of `xlad submit` and `xlad run` that say how a job survives faults.
#pragma once

#include <CLI/CLI.hpp>

#include "proto/job.pb.h"
#include "proto/xlad_v1.h"

namespace xlad::cli {

struct RecoveryFlags {
  int64_t checkpoint_every = 0;
  int32_t attempts = 0;
  std::string resume, on_loss = "restart";
  std::vector<std::string> shrink_axes;
  bool stop_when_not_finite = false;
};

void AddRecoveryFlags(CLI::App* app, RecoveryFlags* flags);
void ApplyRecoveryFlags(const RecoveryFlags& flags, JobSpec* spec);

}  // namespace xlad::cli
