// The coordinator's brain: a state machine over jobs and workers.
//
// Pure logic: time, randomness and the job log are handed in, and what is to happen outside is returned as Actions,
// to be carried out in order. The daemon (grpc_coordinator_server) and the simulation drive the same object.
// Used by one thread at a time. Nothing is told to anyone before it is in the log.
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

using ConnectionId = int64_t;  // One worker's Attach stream; 0: none.

struct SendMessage {
  ConnectionId connection;
  CoordinatorMessage message;
};
struct CloseConnection {
  ConnectionId connection;
};
// Build the job's program for this target, then call OnBuilt.
struct StartBuild {
  std::string job_id;
  Target target;
};
// Put the uploaded state shards of this attempt at this step together, then call OnStateAssembled.
struct AssembleState {
  std::string job_id;
  int64_t attempt;
  int64_t step;
};
// Whoever watches the job should look again.
struct JobChanged {
  std::string job_id;
};
// An array of a session comes into the store, or goes.
struct KeepArray {
  std::string session_id;
  SessionEffects::Kept array;
};
struct DropArrays {
  std::string session_id;
  std::vector<int64_t> arrays;
};
using Action =
    std::variant<SendMessage, CloseConnection, StartBuild, AssembleState, JobChanged, KeepArray, DropArrays>;
using Actions = std::vector<Action>;

struct CoordinatorOptions {
  int64_t heartbeat_timeout_ms = 3000;
  int64_t reconnect_grace_ms = 1000;  // A closed stream may come back within this.
  int64_t adopt_window_ms = 20000;    // After a restart, workers of running jobs may come back within this.
  int64_t start_timeout_ms = 120000;  // From placement until all workers are ready.
  int64_t session_grace_ms = 10000;   // How long a session lives that no client holds.
  int64_t device_kind_grace_ms = 3000;  // How long a job waits for workers whose devices are of a kind it can run on.
  int64_t lease_steps = 1'000'000;    // Steps that workers may run without hearing from the coordinator.
};

// What a build gave: the executable's hash and what is needed to place it.
struct BuiltProgram {
  std::string executable_digest;
  double compile_ms = 0;
  std::vector<std::string> warnings;
  bool cached = false;  // Nothing was compiled.
};

class CoordinatorCore {
 public:
  // `load_executable` reads a built executable back by its hash.
  using LoadExecutable = std::function<absl::StatusOr<Executable>(const std::string& digest)>;

  struct Environment {
    const Clock* clock;
    Random* random;
    JobLog* log;
    LoadExecutable load_executable;
  };
  CoordinatorCore(const CoordinatorOptions& options, Environment environment);

  // Folds the log. Once, before anything else.
  absl::Status Recover(Actions* actions);

  // Clients. Errors are for the client; nothing has changed then.
  absl::StatusOr<SubmitJobResponse> Submit(const SubmitJobRequest& request, Actions* actions);
  absl::Status Cancel(const std::string& job_id, Actions* actions);
  std::vector<JobStatus> ListJobs() const;  // Oldest first.
  absl::StatusOr<JobStatus> GetJob(const std::string& job_id) const;
  ListWorkersResponse ListWorkers() const;
  // Sessions. Once closed or lost, a session is Aborted; while it waits to run, Unavailable.
  absl::StatusOr<std::string> OpenSession(const OpenSessionRequest& request, Actions* actions);
  // Each successful call asks for one of Release. While a session is held it does not end for want of a client.
  absl::Status HoldSession(const std::string& session_id);
  void ReleaseSession(const std::string& session_id);
  absl::Status CloseSession(const std::string& session_id, Actions* actions);
  absl::Status CheckSession(const std::string& session_id) const;
  absl::StatusOr<Target> SessionTarget(const std::string& session_id) const;
  absl::StatusOr<int64_t> LoadProgram(const std::string& session_id, const std::string& digest, Actions* actions);
  // Runs `work` on the session's state and has its effects carried out, whatever it returns.
  absl::Status WithSession(const std::string& session_id, const std::function<absl::Status(Session*)>& work,
                           Actions* actions);

  const JobSpec& SpecOf(const std::string& job_id) const { return jobs_.at(job_id).spec; }  // Of a known job.

  // Workers.
  void OnWorkerMessage(ConnectionId connection, const WorkerMessage& message, Actions* actions);
  void OnWorkerGone(ConnectionId connection, Actions* actions);

  // Answers to actions.
  void OnBuilt(const std::string& job_id, const absl::StatusOr<BuiltProgram>& built, Actions* actions);
  // True where the shards are of no more use: the end is on record, or the attempt is over.
  bool OnStateAssembled(const AssembleState& request, const absl::StatusOr<std::string>& blob, Actions* actions);

  // Every 100 ms or so.
  void OnTick(Actions* actions);

 private:
  struct WorkerInfo {
    RegisterWorker registration;
    ConnectionId connection = 0;
    int64_t last_heard_ns = 0;
    int64_t gone_since_ns = 0;  // Where connection is 0.
    bool draining = false;
    std::string state;  // "alive", "lost", "drained"
  };
  // What is known of a running attempt besides its log.
  struct AttemptInfo {
    int64_t placed_ns = 0;
    bool awaiting_adoption = false;
    std::set<std::string> present, ready, finished, stopped, stop_accepted;  // Worker ids.
    std::map<std::string, int64_t> progress;                                 // Steps finished by worker.
    int64_t lease_until = 0;
    double step_ms = 0;
    int64_t stop_at = -1;  // Being stopped at this step, for stop_reason.
    std::string stop_reason;
    bool assembling = false;
    // A failure that was reported and waits to be attributed to a lost worker.
    std::string failure, suspect;
    int64_t failed_ns = 0;
  };

  // A session of this coordinator that has not ended.
  struct OpenedSession {
    Session state;
    int holds = 0;
    int64_t released_ns = 0;  // Since when nobody holds it, where nobody does.
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
  // The devices of all workers that can be given work, and of those the free ones.
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
  void LetIdleDrainersGo(Actions* actions);
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
  void EndForsakenSessions(Actions* actions);

  const CoordinatorOptions options_;
  const Environment environment_;
  std::map<std::string, Job> jobs_;
  std::vector<std::string> order_;                 // Job ids, oldest first.
  std::map<std::string, std::string> client_keys_; // To job ids.
  std::map<std::string, AttemptInfo> attempts_;    // By job id, while an attempt runs.
  std::map<std::string, Target> build_targets_;    // By job id, what it was or is being built for.
  std::map<std::string, int64_t> refused_since_ns_;  // By job id: the workers cannot run it since this time.
  std::map<std::string, OpenedSession> sessions_;  // By job id.
  std::map<std::string, WorkerInfo> workers_;      // By worker id.
  std::map<ConnectionId, std::string> connections_;
  int64_t generation_ = 0;
  uint64_t incarnation_ = 0;
};

}  // namespace xlad::service
