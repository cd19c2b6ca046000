// Follows a job to its end: progress line, curve file, final state.
#pragma once

#include <functional>
#include <string>

#include "client/coordinator_client.h"

namespace xlad::cli {

struct FollowOptions {
  std::string curve_path;       // JSON: {"loss", "metrics", "step_ms", "compile_ms", "launches"}; empty for none.
  std::string state_path;       // safetensors; empty for none.
  std::string plot_path;        // SVG; empty for none.
  std::string trace_path;       // The job's timeline (cli/timeline.h); empty for none.
  bool chart = false;           // Draws the loss on standard error at the end.
  bool cancel_on_stop = false;  // Ctrl-C cancels the job; otherwise the job continues.
  // Called at every update. If it returns an error, FollowJob returns.
  std::function<absl::Status()> check;
};

// Returns the exit code: 0 if the job succeeded.
int FollowJob(client::CoordinatorClient& client, const std::string& job_id, const JobSpec& spec,
              const FollowOptions& options);

}  // namespace xlad::cli
