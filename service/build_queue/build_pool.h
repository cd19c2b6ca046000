// Starts the processes of builds, and keeps one that waits for its request. A build then need not wait until its
// process has loaded its libraries and prepared what every build needs.
//
// The idle process is an ordinary one in every other respect: it serves one build, and gets the limits of that build
// before its request. It is bound to no user, because the folder of objects is part of its input (build/build.h).
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "absl/strings/string_view.h"
#include "base/process/child_process.h"
#include "base/status.h"

namespace xlad::service {

struct BuildPoolOptions {
  // The xlad program. A daemon uses kOwnProgram (base/process/spawn.h), so that its builds are made by its own version,
  // even if the file of the program was replaced while the daemon runs.
  std::string program_path;
  bool keep_idle = false;  // Whether an idle process is kept.
  // The next idle process is started when no urgent build has run for this long. So it does not compete with the start
  // of the job that was built. It cannot start with a low priority, because raising that again needs a privilege.
  int64_t quiet_ms = 1000;
  int64_t retry_ms = 10'000;  // The time after which a start is repeated that failed for lack of resources.
};

// Thread-safe.
class BuildPool {
 public:
  // The first idle process is started at once.
  explicit BuildPool(const BuildPoolOptions& options);
  // Kills the idle process. No build may be running.
  ~BuildPool();
  BuildPool(const BuildPool&) = delete;
  BuildPool& operator=(const BuildPool&) = delete;

  // Does what RunChild does with `program_path __build`. Uses the idle process if there is one, if it has not ended,
  // and if the build is urgent (its niceness is 0). Unavailable if no process can be started now.
  absl::StatusOr<ChildResult> Run(absl::string_view input, const ChildLimits& limits);

  // Waits until there is an idle process, and returns its id.
  pid_t WaitForIdle();

 private:
  void KeepIdle();
  // Returns the idle process with these limits, or null if there is none.
  std::unique_ptr<IdleChild> TakeIdle(const ChildLimits& limits);

  const BuildPoolOptions options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::unique_ptr<IdleChild> idle_;
  bool is_wanted_ = true;      // Whether to start an idle process: at first, and after each urgent build.
  bool has_built_ = false;     // Whether there was an urgent build.
  int64_t urgent_builds_ = 0;  // The number of urgent builds that are running.
  bool ending_ = false;
  // Starts the idle processes. The kernel kills them when this thread ends, even while they build.
  std::thread thread_;
};

}  // namespace xlad::service
