// The coordinator: the state machines of jobs, attempts, sessions and workers over one log.
//
// Pure logic without I/O, used by one thread at a time. At sets the time. The methods for requests and events add
// records and actions to the effects, which Take returns. The caller (group_commit.h) appends the records of one or
// more events to the log, and carries out the actions only when the records are durable. If the append fails, the
// coordinator is dropped and a new one recovers from the log.
//
//   log/         the job log, and the jobs that result from its events           ◄─ used by all of the following
//   state/       state that is not in the log: the registered workers, the running attempts
//   placement/   which devices a job runs on: pure functions
//   attempts/    reports of workers about attempts, checkpoints, how attempts end
//   jobs/        submission, builds, scheduling; sessions
//   workers/     registration, silence, drains
#pragma once

#include <map>
#include <string>

#include "service/jobs/job_machine.h"
#include "service/jobs/retention.h"
#include "service/jobs/session_machine.h"
#include "service/workers/worker_machine.h"

namespace xlad::service {

// The coordinator's logic: passes each event and request to a state machine. Not thread-safe. The class has more than
// 25 methods because it has one for each event and each request.
class CoordinatorCore {
 public:
  CoordinatorCore(const CoordinatorOptions& options, Random* random);
  CoordinatorCore(const CoordinatorCore&) = delete;
  CoordinatorCore& operator=(const CoordinatorCore&) = delete;

  // Restores the state from the log and begins a new term; the record of the term is in the effects. Must be called
  // once, after At and before any other method. `ages` is the result of AgesOfEndedJobs for the coordinator that this
  // one replaces because the log was reopened, or empty.
  absl::Status Recover(JobLog* log, const std::string& reason, const std::map<JobId, int64_t>& ages);

  // Sets the time of the following events. If the last call was at least own_lag_ms ago, the process is assumed to have
  // been paused, and all deadlines move by the length of the pause.
  void At(const Clock& clock);
  // Decides what runs now and returns the effects of all events since the last call.
  Effects Take();

  // --- Requests of clients. A request that returns an error has changed nothing. ActFor sets who makes the requests
  // until the next call; their records have this name.
  void ActFor(const std::string& actor) { context_.actor = actor; }
  absl::StatusOr<SubmitJobResponse> Submit(const SubmitJobRequest& request, const ResolvedResume& resume = {});
  absl::StatusOr<SubmitJobResponse> OpenSession(const OpenSessionRequest& request);
  absl::Status Cancel(const JobId& id);
  absl::Status Resize(const ResizeJobRequest& request);
  absl::Status Drain(const WorkerId& id);
  absl::Status Undrain(const WorkerId& id);
  absl::Status CloseSession(const JobId& id);

  // --- Events.
  void OnWorkerMessage(ConnectionId connection, const WorkerMessage& message);
  // `why` is the reason why the coordinator ended the connection, or empty.
  void OnWorkerGone(ConnectionId connection, const std::string& why = "");
  void OnBuilt(const JobId& id, const Mesh& mesh, const absl::StatusOr<BuiltProgram>& built);
  void OnOptimized(const StartOptimizing& request, const absl::StatusOr<BuiltProgram>& built);
  void OnPlanLoaded(const std::string& digest, const absl::StatusOr<PlannedProgram>& plan);
  void OnIndexStored(const StoreIndex& request, const absl::StatusOr<Checkpoint>& stored);
  void OnFreeBytes(int64_t free_bytes) { context_.free_bytes = free_bytes; }
  // Must be called about every 100 ms.
  void OnTick();

  // --- Queries.
  const JobMachine& jobs() const { return jobs_; }
  const WorkerMachine& workers() const { return workers_; }
  SessionMachine& sessions() { return sessions_; }
  const Context& context() const { return context_; }
  StoredState StateInUse() const { return retention_.StateInUse(); }
  std::map<JobId, int64_t> AgesOfEndedJobs() const { return retention_.Ages(); }
  absl::StatusOr<WhyJobResponse> Why(const JobId& id) const;
  // Fills protocol, term, serving, free_bytes, accepts_jobs and jobs. The engine fills the other fields.
  CoordinatorStatus Status() const;

 private:
  void ForgetEnded();

  Context context_;
  AttemptMachine attempts_;
  SessionMachine sessions_;
  JobMachine jobs_;
  WorkerMachine workers_;
  Retention retention_;
  int64_t last_real_ns_ = -1;
};

// Names the actor of the requests that a coordinator handles while this object exists.
class ActingFor {
 public:
  ActingFor(CoordinatorCore* coordinator, const std::string& actor) : coordinator_(*coordinator) {
    coordinator_.ActFor(actor);
  }
  ~ActingFor() { coordinator_.ActFor(""); }
  ActingFor(const ActingFor&) = delete;
  ActingFor& operator=(const ActingFor&) = delete;

 private:
  CoordinatorCore& coordinator_;
};

}  // namespace xlad::service
