// Follows a job to its end: shows a progress line, and writes the curve file and the final state.
#pragma once

#include <functional>
#include <string>

#include "client/coordinator_client.h"

namespace xlad::cli {

struct FollowOptions {
  // JSON: {"loss", "metrics", "step_ms", "compile_ms", "launches"}, if not empty. On simulated chips also "simulated".
  std::string curve_path;
  std::string state_path;       // A safetensors file, if not empty. Written only if the job succeeds.
  std::string plot_path;        // An SVG file, if not empty.
  std::string trace_path;       // The job's timeline (cli/timeline.h), if not empty.
  bool chart = false;           // Draws the loss on standard error at the end.
  bool cancel_on_stop = false;  // Ctrl-C cancels the job; otherwise the job continues.
  // The data folder of a coordinator that ends with this command, or empty. An error that concerns the final state
  // names it.
  std::string data_folder;
  // Called at every update until the job has ended. If it returns an error, FollowJob reports the error and returns.
  std::function<absl::Status()> check;
};

// Returns the exit code: 0 if the job succeeded and the files were written. A file that cannot be written does not
// prevent the others.
int FollowJob(client::CoordinatorClient& client, const std::string& job_id, const JobSpec& spec,
              const FollowOptions& options);

}  // namespace xlad::cli
