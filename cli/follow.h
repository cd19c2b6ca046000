// Follows a job to its end: shows a progress line, and writes the curve file and the final state.
#pragma once

#include <functional>
#include <string>

#include "client/coordinator_client.h"

namespace xlad::cli {

struct FollowOptions {
  // The path of a JSON file with "loss", "metrics", "step_ms", "quick_steps", "compile_ms", "launches" and
  // "collectives", or empty. On simulated chips the file also has "simulated".
  std::string curve_path;
  std::string state_path;       // The path of a safetensors file, or empty. Written only if the job succeeds.
  std::string plot_path;        // The path of an SVG file, or empty.
  std::string trace_path;       // The path of the job's timeline (cli/timeline.h), or empty.
  bool chart = false;           // Draws the loss on standard error at the end.
  bool cancel_on_stop = false;  // Ctrl-C cancels the job; otherwise the job continues.
  // Called at SIGTERM if the job has not ended. Begins to stop the job after a step. FollowJob then waits until the
  // state of that step is saved, and writes the files. If it is null, SIGTERM is handled like Ctrl-C.
  std::function<void()> begin_drain;
  // Called when the drained job has stopped with its state saved. Says how to continue it.
  std::function<void(const JobStatus&)> drained;
  // The data folder of a coordinator that ends with this command, or empty. An error that concerns the final state
  // names it.
  std::string data_folder;
  // Called at every update until the job has ended. If it returns an error, FollowJob reports the error and returns.
  std::function<absl::Status()> check;
};

// Returns the exit code: 0 if the job succeeded and the files were written, kMoved if it was drained and they were
// written. All files are tried, even if one of them cannot be written.
int FollowJob(client::CoordinatorClient& client, const std::string& job_id, const JobSpec& spec,
              const FollowOptions& options);

}  // namespace xlad::cli
