// The state that the coordinator's state machines share: the jobs as the log describes them, the registered workers,
// the running attempts, the time, and the effects of the events that are being handled.
//
// A record is applied to the state at once, so that later events of the same batch see it. The state must not be
// visible elsewhere before the batch is durable: if the append fails, the context is dropped and recovered from the
// log.
#pragma once

#include <map>
#include <memory>
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

// The parts of an executable that placement needs. They are kept in memory, so a waiting job does not read the
// executable again.
struct PlannedProgram {
  Target target;
  std::vector<CollectivePlanProto> plans;
  // The result of PlansForOldWorkers, for attempts with a worker that does not send partial results in f32.
  std::vector<CollectivePlanProto> old_plans;
};

struct Context {
  Context(const CoordinatorOptions& coordinator_options, Random* source)
      : options(coordinator_options), random(source), incarnation(source->Next()) {}

  const CoordinatorOptions options;
  Random* const random;
  const uint64_t incarnation;  // A random number of this coordinator process, sent to workers.

  Jobs jobs;
  std::map<WorkerId, Worker> workers;
  std::map<ConnectionId, WorkerId> connections;  // The connections on which workers have registered.
  std::map<JobId, Attempt> attempts;  // Entries exist while an attempt runs.
  std::map<std::string, int64_t> owners;  // The number of running attempts by the owner of their jobs.
  // Jobs with a running attempt, by their workers that have not registered since the start of the coordinator.
  std::map<WorkerId, std::vector<JobId>> recovered;
  std::map<std::string, PlannedProgram> plans;  // By digest of the executable.
  CutLinks cut_links;
  // The time of the event on a clock that excludes the periods in which the coordinator itself did not run.
  int64_t now_ns = 0;
  int64_t wall_ns = 0;  // The Unix time of the event.
  std::string actor;  // Who makes the request that is being handled (Caller::actor); empty if it is another event.
  int64_t free_bytes = INT64_MAX;  // The free space on the disk of the data folder; INT64_MAX if it is not known.

  Effects effects;
  // Whether devices or jobs have changed, so that all jobs are scheduled after the events.
  bool reschedule = false;
  std::vector<JobId> submitted;  // The jobs that are scheduled after the events if `reschedule` is false.
  std::vector<JobId> runnable;   // Jobs that may have become pending since the last pass over the jobs.
  // The job that waits for busy devices, or empty. Later jobs must not take these devices.
  JobId blocking;
  // By owner: the oldest job that waits because jobs of other owners use workers. Later jobs of its owner wait behind
  // it.
  std::map<std::string, JobId> waiting;
  // The workers that one waiting job has reserved until it starts. They are not in the log: after a restart, the job
  // makes another reservation.
  struct Reservation {
    JobId job;
    std::set<WorkerId> workers;
    bool applies = false;  // Whether it applies to the jobs that are visited next.
  };
  Reservation reservation;
  std::vector<JobId> ended;      // Jobs that have ended since the last event.

  // Returns a new record about a job, with the time and the actor of the event.
  JobEvent NewEvent(const JobId& job) const;
  void Record(JobEvent event);
  // The name of the actor for messages.
  std::string ActorText() const { return actor.empty() ? "a client" : actor; }

  void Send(const WorkerId& worker, CoordinatorMessage message, std::shared_ptr<const std::string> common = nullptr);
  void SendToAll(const Job& job, const CoordinatorMessage& message);
  void Close(ConnectionId connection) { effects.actions.push_back(CloseConnection{connection}); }
  void Changed(const JobId& job) { effects.actions.push_back(JobChanged{job}); }

  // Records that a message of the worker has arrived.
  void NoteMessage(Worker* worker) const;
  // Null if the worker is unknown.
  Worker* FindWorker(const WorkerId& id);
  // Returns the job with this running attempt, or null if the attempt or its generation is not the current one.
  Job* FindRunning(const std::string& job_id, int64_t attempt, int64_t generation);
  // Returns why the job is in its state. If an older job blocks it, the reason names the older job, unless it is
  // another user's.
  std::string ReasonOf(const Job& job) const;
  // Whether the running attempt of the job is on this worker, which is registered. Like HasPeer, but without a scan.
  bool IsOn(const WorkerId& worker, const Job& job) const;
  // Adds or removes the running attempt of a job and the devices that it uses.
  Attempt& AddAttempt(const Job& job);
  void RemoveAttempt(const Job& job);
  // Counts the devices of the job's attempt as used on the worker of this peer, which is one of job.placed.
  static void Occupy(const Job& job, const Peer& peer, Worker* worker);

  // Whether all of these workers are registered with at least this protocol (proto/protocol.h).
  bool AllSpeak(int32_t protocol, const std::vector<Peer>& peers) const;
  // Whether all of these workers are registered and send partial results in f32
  // (RegisterWorker.sends_partials_in_f32).
  bool AllSendPartialsInF32(const std::vector<Peer>& peers) const;
  // Whether the worker gets new attempts.
  bool TakesWork(const Worker& worker) const;
  // Whether a job of another owner has a running attempt: anywhere, or on this worker.
  bool RunsOthers(const std::string& owner) const { return owners.size() > owners.count(owner); }
  bool RunsOthersOn(const WorkerId& worker, const std::string& owner) const;
  // The devices of all workers that take work or, if `only_free`, only those that are free.
  std::vector<WorkerDevices> Offers(bool only_free) const;
  // A hash of the workers that take work: their ids, processes and numbers of devices.
  uint64_t OffersHash() const;
  // Describes the worker as it was when the job was placed: "worker w1 (ranks 2, 3; host h, pid 17)", or "worker w1" if
  // the job was not placed on it.
  static std::string WorkerText(const Job& job, const std::string& worker_id);
};

}  // namespace xlad::service
