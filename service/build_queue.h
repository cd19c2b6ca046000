// Runs builds beside each other, so that a long one does not block the others.
//
// Builds start in the order in which they were added. A build that has run for a while no longer counts among those
// that fill the processors: two programs that take minutes leave room for the small one behind them.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/child_process.h"
#include "base/clock.h"

namespace xlad::service {

struct BuildQueueOptions {
  int young = 2;  // How many builds run at once, counting only those that have not run for long.
  int all = 8;    // How many builds run at once.
  int64_t old_after_ms = 3000;
  const Clock* clock = &RealClock();
};

// Thread-safe.
class BuildQueue {
 public:
  // Does the work, on a thread of its own; ends soon after the signal is raised.
  using Work = std::function<void(CancelSignal* cancel)>;

  explicit BuildQueue(const BuildQueueOptions& options);
  // Cancels all builds and waits for those that run; those that wait are dropped.
  ~BuildQueue();

  void Add(const std::string& job_id, Work work);
  // Drops the builds of this job that wait, and raises the signal of those that run.
  void Cancel(const std::string& job_id);

 private:
  struct Build {
    std::string job_id;
    Work work;
    CancelSignal cancel;
    int64_t started_ns = 0;
    bool done = false;
    std::thread thread;
  };
  using Builds = std::list<std::unique_ptr<Build>>;

  void Run();
  // Require mutex_.
  void StartBuilds();
  bool HasRoom() const;
  void TakeDone(Builds* done);

  const BuildQueueOptions options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ending_ = false;
  Builds waiting_, running_;
  std::thread thread_;  // Starts builds and joins the threads of those that are done.
};

}  // namespace xlad::service
