// The coordinator state machine over jobs, sessions and workers.
//
// Pure logic: time, randomness and the job log are passed in; effects are returned as Actions, which the caller carries
// out in order. The daemon (engine.h) and the simulation (tests/simulation) drive the same class. Used by one thread at
// a time. A decision is recorded in the log before any action that depends on it is returned.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/random.h"
#include "proto/executable.pb.h"
#include "service/job.h"
#include "service/job_log.h"
#include "service/placement.h"
#include "service/session.h"

namespace xlad::service {

using ConnectionId = int64_t;  // The Attach stream of one worker; 0 means not connected.

struct SendMessage {
  ConnectionId connection;
  CoordinatorMessage message;
};
struct CloseConnection {
  ConnectionId connection;
};
// Builds the job's program for this target. The caller reports the result by OnBuilt.
struct StartBuild {
  std::string job_id;
  Target target;
};
// Assembles the state of this attempt at this step from the uploaded shards. The caller reports by OnStateAssembled.
struct AssembleState {
  std::string job_id;
  int64_t attempt;
  int64_t step;
};
// The job's status changed: wakes the calls that watch the job.
struct JobChanged {
  std::string job_id;
};
// Stores a session's array on the coordinator, or creates it empty if workers are about to send it.
struct StoreArray {
  std::string session_id;
  SessionEffects::StoredArray array;
};
// Drops the coordinator's copies of arrays.
struct DropArrays {
  std::string session_id;
  std::vector<int64_t> arrays;
};
using Action =
    std::variant<SendMessage, CloseConnection, StartBuild, AssembleState, JobChanged, StoreArray, DropArrays>;
using Actions = std::vector<Action>;

struct CoordinatorOptions {
  int64_t heartbeat_timeout_ms = 3000;
  int64_t reconnect_grace_ms = 1000;  // A worker whose stream closed is lost unless it reconnects within this time.
  int64_t adopt_window_ms = 20000;    // After a coordinator restart: the same for workers of running jobs.
  int64_t start_timeout_ms = 120000;  // From placement until all workers are ready.
  int64_t session_grace_ms = 10000;   // A session that no client holds for this long ends.
  int64_t lease_steps = 1'000'000;    // Steps that workers may run without a message from the coordinator.
  // A job that no combination of the registered workers can run fails after this time.
  int64_t device_kind_grace_ms = 3000;
};

// The result of a build.
struct BuiltProgram {
  std::string executable_digest;
  double compile_ms = 0;
  std::vector<std::string> warnings;
  bool cached = false;  // The executable was in the cache.
};

enum class WorkerState { kAlive, kLost, kDrained };

// More than 25 methods: one per request of a client, message of a worker and answer to an action, and one per
// transition.
class CoordinatorCore {
 public:
  // Reads a built executable by its digest.
  using LoadExecutable = std::function<absl::StatusOr<Executable>(const std::string& digest)>;

  struct Environment {
    const Clock* clock;
    Random* random;
    JobLog* log;
    LoadExecutable load_executable;
  };
  CoordinatorCore(const CoordinatorOptions& options, Environment environment);

  // Restores all jobs from the log. Called once, before any other method.
  absl::Status Recover(Actions* actions);

  // --- Requests of clients. A request that returns an error has changed nothing.
  // Returns the existing job if `client_key` is known; AlreadyExists if that job has another spec.
  absl::StatusOr<SubmitJobResponse> Submit(const SubmitJobRequest& request, Actions* actions);
  absl::Status Cancel(const std::string& job_id, Actions* actions);
  std::vector<JobStatus> ListJobs() const;  // Oldest first.
  absl::StatusOr<JobStatus> GetJob(const std::string& job_id) const;
  ListWorkersResponse ListWorkers() const;

  // --- Sessions. Methods return Aborted once the session has ended, and Unavailable until it runs.
  absl::StatusOr<std::string> OpenSession(const OpenSessionRequest& request, Actions* actions);
  // A held session does not expire. Each successful call must be matched by one call of ReleaseSession.
  absl::Status HoldSession(const std::string& session_id);
  void ReleaseSession(const std::string& session_id);
  absl::Status CloseSession(const std::string& session_id, Actions* actions);
  absl::Status CheckSession(const std::string& session_id) const;
  absl::StatusOr<Target> SessionTarget(const std::string& session_id) const;
  absl::StatusOr<int64_t> LoadProgram(const std::string& session_id, const std::string& digest, Actions* actions);
  // Runs `work` on the session's state and returns its status. Effects are carried out even if it returns an error.
  absl::Status WithSession(const std::string& session_id, const std::function<absl::Status(Session*)>& work,
                           Actions* actions);

  // The job must exist.
  const JobSpec& SpecOf(const std::string& job_id) const { return jobs_.at(job_id).spec; }

  // --- Messages of workers, by connection.
  void OnWorkerMessage(ConnectionId connection, const WorkerMessage& message, Actions* actions);
  void OnWorkerGone(ConnectionId connection, Actions* actions);

  // --- Results of actions.
  void OnBuilt(const std::string& job_id, const absl::StatusOr<BuiltProgram>& built, Actions* actions);
  // Returns true if the shards are no longer needed: the end is recorded, or the attempt has ended.
  bool OnStateAssembled(const AssembleState& request, const absl::StatusOr<std::string>& blob, Actions* actions);

  // Handles timeouts. Called about every 100 ms.
  void OnTick(Actions* actions);

 private:
  struct WorkerInfo {
    RegisterWorker registration;
    ConnectionId connection = 0;
    int64_t last_heard_ns = 0;
    int64_t gone_since_ns = 0;  // Meaningful if connection is 0.
    bool draining = false;
    WorkerState state = WorkerState::kAlive;
  };
  // The state of a running attempt that is not in the log.
  struct AttemptInfo {
    int64_t placed_ns = 0;
    bool awaiting_adoption = false;
    std::set<std::string> present, ready, finished, stopped, stop_accepted;  // Worker ids.
    std::map<std::string, int64_t> progress;                                 // By worker: the number of steps finished.
    int64_t lease_until = 0;
    double step_ms = 0;
    // The step at which the attempt is to stop, because of stop_reason; -1 if it is not stopping.
    int64_t stop_at = -1;
    std::string stop_reason;
    bool assembling = false;
    // The first failure that a worker reported, and the worker that it may be due to. The attempt ends when the suspect
    // is lost or after the grace period.
    std::string failure, suspect;
    int64_t failed_ns = 0;
  };

  // A session that was opened at this coordinator process and has not ended.
  struct OpenedSession {
    Session state;
    int holds = 0;
    int64_t released_ns = 0;  // When the last hold ended; meaningful if holds is 0.
  };

  absl::Status Record(std::vector<JobEvent> events);
  JobEvent NewEvent(const std::string& job_id) const;
  Job* Find(const std::string& job_id, int64_t attempt);
  void MaybeBuild(Job* job, Actions* actions);
  void Schedule(Actions* actions);
  bool Place(Job* job, Actions* actions);
  bool PlaceOn(Job* job, const std::vector<Peer>& peers, const std::vector<CollectivePlanProto>& plans,
               Actions* actions);
  std::optional<Target> TargetFor(Job* job, Actions* actions);
  // The devices of all workers that accept tasks, and the free ones among them.
  std::vector<WorkerDevices> AllOffers() const;
  std::vector<WorkerDevices> FreeOffers() const;
  JobStatus StatusOf(const Job& job) const;
  std::string WorkerText(const Job& job, const std::string& worker_id) const;
  void Send(const std::string& worker_id, CoordinatorMessage message, Actions* actions);
  void SendToAll(const Job& job, const CoordinatorMessage& message, Actions* actions);
  void EndAttempt(Job* job, const std::string& reason, const std::string& lost_worker, Actions* actions);
  void EndJob(Job* job, JobState state, const std::string& reason, const std::string& blob, Actions* actions);
  void StopAttempt(Job* job, const std::string& reason, Actions* actions);
  void LoseWorker(const std::string& worker_id, const std::string& why, Actions* actions);
  void ReleaseDrainedWorkers(Actions* actions);
  void CheckAttempt(Job* job, Actions* actions);
  void CompleteAttempt(Job* job, Actions* actions);

  void OnRegister(ConnectionId connection, const RegisterWorker& message, Actions* actions);
  void OnReportedTask(const std::string& worker_id, const RunningTask& task, Actions* actions);
  void NoteMissingTasks(const RegisterWorker& message, Actions* actions);
  void OnHeartbeat(const std::string& worker_id, const Heartbeat& message, Actions* actions);
  void OnReady(const std::string& worker_id, const TaskReady& message, Actions* actions);
  void OnSteps(const std::string& worker_id, const TaskSteps& message, Actions* actions);
  void OnStopAnswer(const std::string& worker_id, const TaskStopAnswer& message, Actions* actions);
  void OnStopped(const std::string& worker_id, const TaskStopped& message, Actions* actions);
  void OnFinished(const std::string& worker_id, const TaskFinished& message, Actions* actions);
  void OnFailed(const std::string& worker_id, const TaskFailed& message, Actions* actions);
  void OnDraining(const std::string& worker_id, Actions* actions);
  void OnSessionAnswer(const std::string& worker_id, const SessionAnswer& message, Actions* actions);
  void PerformSession(const Job& job, Session* session, Actions* actions);
  void RepeatCommands(const Job& job, const std::string& worker_id, Actions* actions);
  void ExpireSessions(Actions* actions);

  const CoordinatorOptions options_;
  const Environment environment_;
  std::map<std::string, Job> jobs_;
  std::vector<std::string> order_;                 // Job ids, oldest first.
  std::map<std::string, std::string> client_keys_; // To job ids.
  std::map<std::string, AttemptInfo> attempts_;    // By job id; entries exist while an attempt runs.
  std::map<std::string, Target> build_targets_;    // By job id: the target for which it was or is being built.
  std::map<std::string, int64_t> refused_since_ns_;  // By job id: since when the workers cannot run it.
  std::map<std::string, OpenedSession> sessions_;  // By job id.
  std::map<std::string, WorkerInfo> workers_;      // By worker id.
  std::map<ConnectionId, std::string> connections_;
  int64_t generation_ = 0;
  uint64_t incarnation_ = 0;
};

}  // namespace xlad::service
