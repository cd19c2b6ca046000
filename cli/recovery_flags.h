// Flags of `xlad submit` and `xlad run` that say how a job survives faults.
#pragma once

#include <CLI/CLI.hpp>

#include "proto/job.pb.h"
#include "proto/xlad_v1.h"

namespace xlad::cli {

struct RecoveryFlags {
  std::string checkpoint_every;  // "10" steps, or a time such as "30s"; empty: the coordinator's default.
  int32_t checkpoint_keep = 0;   // 0: the coordinator's default.
  std::string checkpoint_to;     // "file:/PATH"; empty: the coordinator keeps them.
  int32_t attempts = 0;
  std::string resume, on_loss = "restart";
  std::vector<std::string> shrink_axes;
  bool stop_when_not_finite = false;
};

void AddRecoveryFlags(CLI::App* app, RecoveryFlags* flags);
void ApplyRecoveryFlags(const RecoveryFlags& flags, JobSpec* spec);

}  // namespace xlad::cli
