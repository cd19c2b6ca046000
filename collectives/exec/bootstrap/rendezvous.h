// Ranks find each other through a Bootstrap: put, get with a deadline, and fence.
//
// Each generation of a group has its own keys, so that a group that forms again does not see the values of earlier
// generations. Threads: one at a time. A wait polls the store, first every 0.2 ms and later every 20 ms.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "collectives/exec/bootstrap.h"

namespace xlad::collectives {

class Rendezvous {
 public:
  struct Options {
    int rank = 0;
    int ranks = 1;
    int64_t generation = 0;
    int64_t deadline_ms = 30000;  // How long a call of Get or Fence waits.
    std::string who = "ranks";    // The name of the ranks in messages, such as "ranks of the launch by Open MPI".
    // If set, called repeatedly while this rank waits for `rank`. An error ends the wait.
    std::function<absl::Status(int rank)> check_peer = nullptr;
  };

  // `bootstrap` and `clock` must outlive this object.
  Rendezvous(const Options& options, Bootstrap* bootstrap, const Clock* clock)
      : options_(options), bootstrap_(bootstrap), clock_(clock) {}

  // Sets a value of this rank.
  absl::Status Put(const std::string& key, const std::string& value);
  // Waits for the value that `rank` puts. DeadlineExceeded, naming the rank, if the deadline passes.
  absl::StatusOr<std::string> Get(int rank, const std::string& key);
  // Waits until every rank has called Fence with this name. DeadlineExceeded, naming the missing ranks, if the deadline
  // passes.
  absl::Status Fence(const std::string& name);

 private:
  std::string Key(int rank, const std::string& key) const;
  int64_t DeadlineNs() const { return clock_->NowNs() + options_.deadline_ms * kNsPerMs; }
  absl::StatusOr<std::string> GetUntil(int64_t deadline_ns, int rank, const std::string& key);

  const Options options_;
  Bootstrap* const bootstrap_;
  const Clock* const clock_;
};

}  // namespace xlad::collectives
