// What the coordinator keeps, and for how long: ended jobs, events of the log, blobs.
#pragma once

#include <set>
#include <string>

#include "service/state/context.h"

namespace xlad::service {

// What the jobs need of the coordinator's disk.
struct StoredState {
  std::set<std::string> jobs;   // All job ids.
  std::set<std::string> blobs;  // Digests.
  // URIs of states: each may be a checkpoint, which needs the blobs that its index names too.
  std::set<std::string> states;
};

class Retention {
 public:
  static constexpr int64_t kMaxRemoved = 1000;

  explicit Retention(Context* context);

  // From time to time removes the jobs that ended long ago, and has everything deleted that is not needed any more.
  void OnTick();
  // An open job needs its program, its executables, state and data. An ended one needs its program, its checkpoints and
  // its final state.
  StoredState StateInUse() const;

 private:
  // Removes at most kMaxRemoved jobs; returns how many.
  int64_t RemoveEndedJobs();
  void ForgetPlans();

  Context& context_;
  int64_t next_ns_;
};

}  // namespace xlad::service
