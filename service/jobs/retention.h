// Decides what the coordinator keeps, and for how long: ended jobs, events of the log, blobs.
#pragma once

#include <map>
#include <set>
#include <string>

#include "service/state/context.h"

namespace xlad::service {

// The files on the coordinator's disk that the jobs need.
struct StoredState {
  std::set<std::string> jobs;   // The ids of all jobs.
  std::set<std::string> blobs;  // The digests of blobs.
  // The URIs of states. If a state is a checkpoint, the blobs that its index names are needed as well.
  std::set<std::string> states;
};

class Retention {
 public:
  static constexpr int64_t kMaxRemoved = 1000;

  explicit Retention(Context* context);

  // Must be called after recovery. `ages` is the result of Ages for the coordinator that this one replaces because the
  // log was reopened, or empty.
  void AfterRecovery(const std::map<JobId, int64_t>& ages);
  void OnEnded(const JobId& id);
  // Returns how many nanoseconds ago each ended job ended, by the clock of this process. For jobs that ended before the
  // process started, the Unix times in the log are used.
  std::map<JobId, int64_t> Ages() const;
  // At regular intervals, removes ended jobs that are too old or too many, and requests the deletion of data that is no
  // longer needed.
  void OnTick();
  // Returns the needed files. Every job needs its program, its checkpoints and its final state. An open job also needs
  // its executables, its data, the states from which it starts, and shards that are not yet part of a checkpoint.
  StoredState StateInUse() const;

 private:
  // Removes at most kMaxRemoved jobs. Returns the number of removed jobs.
  int64_t RemoveEndedJobs();
  bool IsOld(const Job& job) const;
  void ForgetPlans();

  Context& context_;
  int64_t next_ns_;
  // When each ended job ended, on the clock of Context::now_ns.
  std::map<JobId, int64_t> ended_ns_;
};

}  // namespace xlad::service
