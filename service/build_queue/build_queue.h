// Runs builds concurrently, so that a long build does not block the others.
//
// Builds start in the order in which they were added. A build that has run for `old_after_ms` no longer counts toward
// the limit `young`, so two programs that take minutes leave room for a small one that was added after them.
//
// An urgent build is one for which its job waits. Other builds start only when no urgent one waits. They have limits of
// their own: at most `not_urgent` of them run, and at most one of these has run for less than `old_after_ms`.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/process/child_process.h"

namespace xlad::service {

struct BuildQueueOptions {
  int young = 2;  // The maximum number of running urgent builds, not counting those that have run for `old_after_ms`.
  int all = 8;    // The maximum number of running urgent builds of any age.
  int not_urgent = 3;  // The maximum number of running builds that are not urgent.
  int64_t old_after_ms = 3000;
  const Clock* clock = &RealClock();
};

// Thread-safe.
class BuildQueue {
 public:
  // Does the build. Called on a thread of its own; must return soon after the signal is raised.
  using Work = std::function<void(CancelSignal* cancel)>;

  explicit BuildQueue(const BuildQueueOptions& options);
  ~BuildQueue() { Stop(); }

  // Drops the builds that have not started, cancels those that run, and waits for them. Idempotent.
  void Stop();
  // Returns the number of the build, for CancelOne. Destroys `work` if the queue has been stopped.
  int64_t Add(const std::string& job_id, Work work, bool is_urgent = true);
  // Drops the builds of this job that have not started, and raises the signal of those that run.
  void Cancel(const std::string& job_id);
  // Cancels the build with this number in the same way. Does nothing if it has ended.
  void CancelOne(int64_t number);

 private:
  struct Build {
    int64_t number = 0;
    std::string job_id;
    Work work;
    bool is_urgent = true;
    CancelSignal cancel;
    int64_t started_ns = 0;
    bool done = false;
    std::thread thread;
  };
  using Builds = std::list<std::unique_ptr<Build>>;

  void Run();
  // The caller of the following methods must hold mutex_.
  template <typename Condition>
  void CancelIf(const Condition& condition);
  void StartBuilds();
  Builds::iterator Next();              // The build to start now, or the end of waiting_.
  bool HasRoom(bool for_urgent) const;  // Whether one more build of this urgency may run.
  void TakeDone(Builds* done);

  const BuildQueueOptions options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ending_ = false;
  int64_t next_number_ = 0;
  Builds waiting_, running_;
  std::thread thread_;  // Starts builds and joins the threads of those that are done.
};

}  // namespace xlad::service
