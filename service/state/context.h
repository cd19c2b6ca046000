// What the coordinator's state machines share: the fold of the log, the registered workers, the running attempts, the
// time, and the effects of the events that are being handled.
//
// A record is applied to the state at once, so that later events of the same batch see it. Nothing else may see the
// state before the batch is durable: when the append fails, the whole context is dropped and recovered from the log.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/random.h"
#include "service/log/jobs.h"
#include "service/placement/placement.h"
#include "service/state/attempt.h"
#include "service/state/cut_links.h"
#include "service/state/effects.h"
#include "service/state/options.h"
#include "service/state/worker.h"

namespace xlad::service {

// What placement needs of an executable, kept in memory so that a waiting job reads nothing.
struct PlannedProgram {
  Target target;
  std::vector<CollectivePlanProto> plans;
};

struct Context {
  Context(const CoordinatorOptions& coordinator_options, Random* source)
      : options(coordinator_options), random(source), incarnation(source->Next()) {}

  const CoordinatorOptions options;
  Random* const random;
  const uint64_t incarnation;

  Jobs jobs;
  std::map<WorkerId, Worker> workers;
  std::map<ConnectionId, WorkerId> connections;
  std::map<JobId, Attempt> attempts;  // Entries exist while an attempt runs.
  std::map<WorkerId, std::vector<JobId>>
      recovered;                                // Running attempts of workers that have not registered since the start.
  std::map<std::string, PlannedProgram> plans;  // By digest of the executable.
  CutLinks cut_links;
  // The time of the event, without the time in which the coordinator itself did not run.
  int64_t now_ns = 0;
  int64_t wall_ns = 0;
  int64_t free_bytes = INT64_MAX;

  Effects effects;
  bool reschedule = false;       // Devices or jobs have changed: all jobs are scheduled after the events.
  std::vector<JobId> submitted;  // Otherwise, only these jobs are.
  std::vector<JobId> runnable;   // Jobs that may have become pending since the last pass over the jobs.
  JobId blocking;                // The job that waits for busy devices, which no later one may take; empty: none.
  std::vector<JobId> ended;      // Jobs that have ended since the last event.

  // A record about a job, at the time of the event.
  JobEvent NewEvent(const JobId& job) const;
  void Record(JobEvent event);

  void Send(const WorkerId& worker, CoordinatorMessage message);
  void SendToAll(const Job& job, const CoordinatorMessage& message);
  void Close(ConnectionId connection) { effects.actions.push_back(CloseConnection{connection}); }
  void Changed(const JobId& job) { effects.actions.push_back(JobChanged{job}); }

  // A message of the worker has arrived.
  void NoteHeard(Worker* worker) const;
  // Null if there is no such worker.
  Worker* FindWorker(const WorkerId& id);
  // The job whose running attempt this is, or null if the attempt or its generation is not current.
  Job* FindRunning(const std::string& job_id, int64_t attempt, int64_t generation);
  // Why the job is in its state. A job behind the blocking one waits for it.
  std::string ReasonOf(const Job& job) const;
  // Adds or removes the running attempt of a job and the devices that it uses.
  Attempt& AddAttempt(const Job& job);
  void RemoveAttempt(const Job& job);
  // Counts the devices of the job's attempt as used on this worker.
  static void Occupy(const Job& job, Worker* worker);

  // Whether all of these workers are registered with at least this protocol (proto/protocol.h).
  bool AllSpeak(int32_t protocol, const std::vector<Peer>& peers) const;
  // Whether the worker gets new attempts.
  bool TakesWork(const Worker& worker) const;
  // The devices of all workers that take work, and the free ones among them.
  std::vector<WorkerDevices> Offers(bool only_free) const;
  // A hash of the workers that take work, and of their devices.
  uint64_t OffersHash() const;
  // "worker w1 (ranks 2, 3; host h, pid 17)", as it was when the job was placed.
  static std::string WorkerText(const Job& job, const std::string& worker_id);
};

}  // namespace xlad::service
