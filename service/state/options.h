// Times and limits of the coordinator.
#pragma once

#include <cstdint>

namespace xlad::service {

struct CoordinatorOptions {
  // A worker that has sent nothing for this long is suspect, and then lost. Whether its connection is open does not
  // matter: it may reconnect.
  int64_t suspect_ms = 3000;
  int64_t lost_ms = 10'000;
  // The link between two workers of an attempt that both reach the coordinator is cut if one has had no answer of the
  // other for this long. A worker that sent nothing for `unheard_ms` may have been cut off itself.
  int64_t link_cut_ms = 2500;
  int64_t unheard_ms = 1500;
  int64_t keep_apart_ms = 60'000;      // Such workers get no common attempt for this long, if others can be had.
  int64_t failure_grace_ms = 1000;     // A reported failure waits this long for better evidence of its cause.
  int64_t adopt_window_ms = 20'000;    // After a coordinator restart: workers of running jobs must register within it.
  int64_t start_timeout_ms = 120'000;  // From placement until all workers are ready.
  int64_t session_grace_ms = 10'000;   // A session that no client holds for this long ends.
  int64_t lease_steps = 1'000'000;     // Steps that workers may run without a message from the coordinator.
  // A job that no combination of the registered workers can run fails after this time.
  int64_t device_kind_grace_ms = 3000;
  int64_t retry_pause_ms = 1000;        // After the second failure in a row; it doubles with each further one,
  int64_t max_retry_pause_ms = 60'000;  // up to this.
  int64_t checkpoint_ms = 300'000;      // Between checkpoints of jobs whose spec has no policy.
  // If the coordinator itself was not running for longer than this, all deadlines move by the length of the pause.
  int64_t own_lag_ms = 500;
  // The latest of the jobs that have ended are kept, unless they ended longer ago than this.
  int64_t keep_ended_jobs = 10'000;
  int64_t keep_ended_ms = int64_t{30} * 24 * 3'600'000;
  int64_t keep_lost_workers_ms = 600'000;      // Lost workers are listed for this long.
  int64_t min_free_bytes = int64_t{64} << 20;  // With less free disk, submissions are refused.
  int64_t compact_interval_ms = 3'600'000;     // Between removals of what is not needed any more.
};

}  // namespace xlad::service
