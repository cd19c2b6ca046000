// The state of a running attempt that is not in the log.
#pragma once

#include <map>
#include <set>
#include <string>

#include "proto/worker.pb.h"
#include "proto/xlad_v1.h"
#include "service/log/ids.h"

namespace xlad::service {

struct Attempt {
  int64_t placed_ns = 0;
  bool awaiting_adoption = false;  // After a restart of the coordinator, until all its workers have registered.
  std::set<std::string> present;   // Workers that have registered since the placement or the restart.
  std::set<std::string> launched;  // Workers that have reported the attempt as running.
  std::set<std::string> ready, stopped;
  std::map<std::string, RunReport> finished;  // By worker: what it reported.
  std::vector<SessionPlace> places;         // For sessions: where the workers serve that are ready.
  std::map<std::string, int64_t> progress;  // By worker: the number of steps finished.
  int64_t lease_until = 0;
  double step_ms = 0;

  // The step before which the attempt is to stop, because of stop_reason; -1 if it is not stopping.
  int64_t stop_at = -1;
  std::string stop_reason;

  // Checkpoints: the shards that have been written, by step and worker, and the step whose index is being stored.
  std::map<int64_t, std::map<std::string, CheckpointShard>> shards;
  int64_t storing_step = -1;
  int64_t requested_step = -1;     // The step of the last CheckpointAt that is not committed; -1: none.
  int64_t last_checkpoint_ns = 0;  // When the last one was requested or committed, or the attempt started.

  // The first failure that a worker reported, and the worker that it may be due to. The attempt ends when the suspect
  // is known to be gone or after the grace period.
  std::string failure, suspect;
  std::string program_error;  // If the program itself failed: its error, without names of processes.
  int64_t failed_step = 0;
  int64_t failed_ns = 0;
};

}  // namespace xlad::service
