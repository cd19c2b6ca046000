// Runs one worker's part of a session in the attempt's process. The first worker, which has the device at mesh
// position 0, also serves the session's clients and its other workers.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "runtime/session_executor.h"
#include "worker/attempt_runner.h"

namespace xlad::worker {

struct SessionRunnerOptions {
  runtime::SessionEnvironment environment;  // The store and the listener are not set.
  std::string listen_host;                  // The host on which the first worker serves.
  // Reads a blob of the coordinator; retries while the coordinator cannot be reached.
  std::function<absl::StatusOr<std::string>(const std::string& digest, collectives::AbortSignal* abort)> read_blob;
  ReportQueue* reports = nullptr;
};

// Returns an error if the first worker cannot listen.
absl::StatusOr<std::unique_ptr<Runner>> MakeSessionRunner(const LaunchTask& launch,
                                                          const SessionRunnerOptions& options);

}  // namespace xlad::worker
