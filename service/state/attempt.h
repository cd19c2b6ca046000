// The part of the state of a running attempt that is not in the log.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "proto/job_log.pb.h"
#include "proto/worker.pb.h"
#include "proto/xlad_v1.h"
#include "service/log/ids.h"

namespace xlad::service {

struct Attempt {
  int64_t placed_ns = 0;  // When the attempt was placed or, after a restart of the coordinator, adopted.
  // The serialized part of the launch that is the same for all workers (SendMessage::common). Null if no launch has
  // been sent since the coordinator started, and after the attempt has started.
  std::shared_ptr<const std::string> common_launch;
  // True after a restart of the coordinator, until all workers of the attempt have registered.
  bool awaiting_adoption = false;
  std::set<std::string> present;   // Workers that have registered since the placement or the restart.
  std::set<std::string> launched;  // Workers that have reported the attempt.
  std::set<std::string> ready, stopped;  // Workers that are ready, and workers that have stopped before stop_at.
  std::map<std::string, RunReport> finished;  // The reports of workers that have finished.
  std::vector<SessionPlace> places;           // For sessions: the addresses of the workers that are ready.
  std::set<std::string> silent;  // Workers whose silence has been recorded as an event of this attempt.
  std::map<std::string, int64_t> progress;    // The number of finished steps, by worker.
  int64_t lease_until = 0;  // The workers may run the steps before this one; 0 before the attempt starts.
  // The speed of the slowest worker, and since when another one has been too far ahead of it (service/attempts/pace.h).
  struct Pace {
    int64_t checked_ns = 0;
    int64_t measured_ns = 0;  // 0 before the first report of all workers.
    int64_t measured_step = 0;
    double steps_per_ms = 0;  // 0 if it is not known.
    int64_t apart_since_ns = -1;
    bool pauses = false;  // Whether fast workers wait.
  };
  Pace pace;
  double step_ms = 0;       // The time of the last reported step in milliseconds; 0 if none was reported.

  // The step before which the attempt must stop, because of stop_reason; -1 if it is not stopping.
  int64_t stop_at = -1;
  std::string stop_reason;

  // The written shards of uncommitted checkpoints, by step and worker, and the step whose index is being stored (-1 if
  // none).
  std::map<int64_t, std::map<std::string, CheckpointShard>> shards;
  int64_t storing_step = -1;
  int64_t failed_index_step = -1;  // The step of the last index that could not be stored, or -1 if there is none.
  int64_t index_failures = 0;      // The number of times in a row that this index could not be stored.
  int64_t store_from_ns = 0;   // No index is stored before this time.
  // Why the state with which the attempt ends (the last one, or the one at a stop) is not stored yet, by worker. The
  // key "" is the coordinator, which stores the index.
  struct Unstored {
    int64_t step = 0;
    std::string error;
    int32_t code = 0;  // The absl::StatusCode of the error, or 0 if it is not known.
    // When the current series of permanent errors began, or -1 if the latest error may be temporary.
    int64_t refused_ns = -1;
    bool is_permanent = false;  // Permanent errors have been reported for refused_state_ms.
  };
  std::map<std::string, Unstored> unstored;
  int64_t requested_step = -1;     // The step of the last uncommitted CheckpointAt, or -1 if there is none.
  int64_t last_checkpoint_ns = 0;  // When the last checkpoint was requested or committed, or when the attempt started.

  // The first failure that a worker reported, and the worker that may have caused it. The attempt ends when the suspect
  // is known to be gone, or after the grace period.
  std::string failure, suspect;
  // The workers that found the checkpoint damaged from which the attempt starts, at most kMaxFindings.
  std::vector<DamageFinding> findings;
  static constexpr int64_t kMaxFindings = 8;
  // The error of the program itself, without names of processes; empty if the program did not fail.
  std::string program_error;
  int64_t failed_step = 0;  // The step of program_error.
  int64_t failed_ns = 0;    // When `failure` was reported.
};

}  // namespace xlad::service
