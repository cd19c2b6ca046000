// Times and limits of the coordinator.
#pragma once

#include <cstdint>

namespace xlad::service {

struct CoordinatorOptions {
  // A worker that has not sent a message for suspect_ms is suspect, and after lost_ms it is lost. This does not depend
  // on whether its connection is open, because it may reconnect.
  int64_t suspect_ms = 3000;
  int64_t lost_ms = 10'000;
  // If two workers of an attempt both reach the coordinator, and one has had no answer from the other for link_cut_ms,
  // the link between them counts as cut. A worker that has not sent a message for recent_message_ms may have been cut
  // off itself.
  int64_t link_cut_ms = 2500;
  int64_t recent_message_ms = 1500;
  int64_t keep_apart_ms = 60'000;  // For this long, the two workers are not in one attempt if others are free.
  // After a reported failure, the attempt waits this long for better evidence of the cause.
  int64_t failure_grace_ms = 1000;
  // Workers of running jobs must register within this time after a restart of the coordinator.
  int64_t adopt_window_ms = 20'000;
  int64_t start_timeout_ms = 120'000;  // The limit on the time from placement until all workers are ready.
  int64_t session_grace_ms = 10'000;   // A session ends if no client holds it for this long.
  // The number of steps that workers may run without a message from the coordinator.
  int64_t lease_steps = 1'000'000;
  // If no combination of the registered workers can run a job, the job fails after this time. If only devices of other
  // targets can run it, it is compiled for them after this time.
  int64_t device_kind_grace_ms = 3000;
  // A job fails after this time if it names a kind of device that no registered worker has. Until then, a worker with
  // this kind may register.
  int64_t missing_kind_grace_ms = 3000;
  // The pause after the second failure in a row. It doubles with each further failure, up to max_retry_pause_ms.
  int64_t retry_pause_ms = 1000;
  int64_t max_retry_pause_ms = 60'000;
  // A job fails if the place of its checkpoints refuses the last state of an attempt for longer than this.
  int64_t refused_state_ms = 60'000;
  // Whether attempts of jobs with different owners (Job::owner) may be on one worker at the same time.
  bool share_workers = false;
  int64_t checkpoint_ms = 300'000;      // The time between checkpoints of jobs whose spec has no policy.
  // If the coordinator itself was paused for longer than this, all deadlines are postponed by the length of the pause.
  int64_t own_lag_ms = 500;
  // The latest keep_ended_jobs ended jobs are kept, but only those that ended less than keep_ended_ms ago.
  int64_t keep_ended_jobs = 10'000;
  int64_t keep_ended_ms = int64_t{30} * 24 * 3'600'000;
  int64_t keep_lost_workers_ms = 600'000;      // Lost workers are listed for this long.
  int64_t min_free_bytes = int64_t{64} << 20;  // Submissions are refused if less disk space is free.
  int64_t compact_interval_ms = 3'600'000;     // The time between removals of data that is no longer needed.
};

}  // namespace xlad::service
