// Handles requests of clients about jobs, and schedules builds and placements of jobs.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "service/attempts/attempt_machine.h"
#include "service/jobs/job_queue.h"
#include "service/placement/apart.h"
#include "service/placement/free_devices.h"
#include "service/state/context.h"

namespace xlad::service {

// The result of a build.
struct BuiltProgram {
  std::string executable_digest;
  double compile_ms = 0;  // 0 if `cached`.
  std::vector<std::string> warnings;
  bool cached = false;  // Whether the executable was in the cache.
  PlannedProgram plan;
  std::vector<std::string> batch_axes;  // The mesh axes that split only the batch.
  std::vector<BuiltExecutable> others;  // The executables for the targets after the first one.
  bool quick = false;                   // Whether a part of the code was compiled quickly.
  std::string compiler;                 // The build id of the program that compiled the executables.
};

// The checkpoint that a submission's `resume` names.
struct ResolvedResume {
  std::string uri, digest;  // Empty if the job does not resume another one.
  int64_t step = 0;
};

// A request that returns an error has changed nothing. The class has more than 25 methods: one for each request of a
// client about jobs, and one for each stage of scheduling.
class JobMachine {
 public:
  JobMachine(Context* context, AttemptMachine* attempts) : context_(*context), attempts_(*attempts) {}

  // Returns the existing job if `client_key` is known; AlreadyExists if that job has another spec. InvalidArgument if
  // the key is empty, the mesh is malformed, or the job starts after its last step; ResourceExhausted if the disk is
  // nearly full; Unavailable if the checkpoint `resume` has been dropped since NewestCheckpoint returned it.
  absl::StatusOr<SubmitJobResponse> Submit(const SubmitJobRequest& request, const ResolvedResume& resume);
  absl::Status Cancel(const JobId& id);
  absl::Status Resize(const ResizeJobRequest& request);
  absl::StatusOr<JobStatus> Status(const JobId& id) const;
  // Lists only the jobs for which `shows` returns true; all jobs if `shows` is null.
  ListJobsResponse List(const ListJobsRequest& request, const std::function<bool(const Job&)>& shows = nullptr) const;
  // Returns the newest checkpoint of the job, for another job that resumes it. FailedPrecondition if the job has no
  // checkpoint.
  absl::StatusOr<ResolvedResume> NewestCheckpoint(const JobId& id) const;

  // Places pending jobs, oldest first, and starts builds. Visits only jobs whose wait may be over: a job is woken by
  // the event for which it waits.
  //
  // A job that needs more devices than the cluster has does not block later jobs. A job that waits for busy devices
  // does block them, so that later small jobs cannot starve it.
  //
  // A job also waits if devices are free, but on workers that run jobs of other owners. Then only later jobs of its own
  // owner wait behind it. Jobs of other owners may start ("EASY" backfilling, Mu'alem and Feitelson, 2001, without
  // limits of time): the oldest job that waits in this way reserves as many workers as it needs, those with the fewest
  // used devices, and no later job starts on them. Their jobs end, so the oldest job starts; then the next one is the
  // oldest. A worker that becomes idle replaces a reserved one that is still in use. If kMaxWaiting owners have such
  // a job, the next such job blocks all later jobs, which limits the time of a pass.
  //
  // A job with an owner is packed (FreeDevices::TakePacked): it takes idle workers only if this makes it faster, and
  // otherwise workers that already run jobs of its owner, which other owners cannot use anyway.
  void Schedule();
  // Like Schedule, but only for new jobs, oldest first. May be called only if nothing has changed for older jobs.
  void ScheduleNew(const std::vector<JobId>& jobs);

  // Unavailable means that the coordinator could not build the program now, for example because its disk is full.
  // The build is then repeated after a pause. After any other error, OnBuilt ends the job, and OnOptimized leaves the
  // job on its quick code.
  void OnBuilt(const JobId& id, const Mesh& mesh, const absl::StatusOr<BuiltProgram>& built);
  void OnOptimized(const StartOptimizing& request, const absl::StatusOr<BuiltProgram>& built);
  void OnPlanLoaded(const std::string& digest, const absl::StatusOr<PlannedProgram>& plan);
  // Reschedules when a job has waited until the time of its WakeAt. Starts the builds of optimized code, except for
  // jobs that are starting, because the builds would slow the start down.
  void OnTick();
  void OnEnded(const JobId& id);
  // Makes the next pass visit all jobs that have not ended.
  void AfterRecovery();

 private:
  // The result of a visit to a job.
  enum class Outcome {
    kDone,             // The job does not wait.
    kWaitsForWorkers,  // Waits until workers or their devices change.
    kWaitsForDevices,  // Waits until devices are free, without blocking later jobs.
    kWaitsForEvent,    // Waits until its build or its plan is complete, or until the time of WakeAt.
    kWaitsForOthers,   // Waits until workers are free of other owners, and blocks later jobs of its owner.
    kBlocks,           // Waits until devices are free, and blocks later jobs.
  };
  // Values that many waiting jobs need within one pass, computed once.
  struct Pass {
    std::optional<std::vector<WorkerDevices>> all;
    std::optional<FreeDevices> all_devices;  // The devices of `all`, counted as free.
    std::optional<FreeDevices> free;
    // By the number of devices and JobSpec.device_name.
    std::map<std::pair<int64_t, std::string>, TargetSelection> selections;
  };
  using Parts = std::vector<FreeDevices::Part>;
  // Schedules one job.
  Outcome ScheduleOne(Job* job);
  void Visit(int64_t first);  // Visits the jobs in due_ whose number is at least `first`.
  JobQueue::Next VisitOne(const JobId& id);
  void Wake(const JobId& id);
  void WakeJobs();
  // Requests another visit, at this time, to the job that is being visited.
  void WakeAt(int64_t ns) { wake_ns_ = std::min(wake_ns_, ns); }
  const std::vector<WorkerDevices>& AllOffers();
  FreeDevices& Free();
  // Whether other jobs keep the job from a worker: jobs of other owners that run there, or a reservation.
  bool IsKeptFrom(const Job& job, const std::string& worker) const;
  // Which workers the job may have; null if it may have all.
  FreeDevices::MayHave WorkersFor(const Job& job) const;
  // Which workers the job should take first; null if its placement is the same for all idle and used workers.
  FreeDevices::MayHave WorkersInUse(const Job& job) const;
  void Reserve(const Job& job, const Parts& parts, int64_t devices);
  // Takes free devices, on workers that reach each other if possible.
  std::vector<Peer> TakeFree(const FreeDevices::MayHave& may_have, const TakePeers& take);
  struct Devices {
    int64_t all = 0, free = 0;
    int64_t unshared = 0;  // The free devices on workers that run jobs of other owners, which the job may not have.
    int64_t reserved = 0;  // The other free devices on workers that an older job has reserved.
  };
  // How many devices a job may take from these parts, out of all devices and out of the free ones.
  Devices DevicesFor(const Parts& parts);
  // Counts the free devices that other jobs keep from the job. The time grows with the number of workers.
  void CountKept(const Job& job, const Parts& parts, Devices* devices);
  bool AreOthersBusy() const;
  // The parts of devices for which the job has executables.
  static Parts PartsOf(const Job& job, const Target& first);
  // Whether devices of one of these parts lack library ops that the executables may have.
  static bool DoSomeLackOps(const std::vector<WorkerDevices>& workers, const Parts& parts);
  const TargetSelection& SelectionFor(const Job& job);
  JobStatus StatusOf(const Job& job) const;
  Outcome TryJob(Job* job);
  Outcome Place(Job* job);
  Outcome PlaceSession(Job* job);
  Outcome Build(Job* job);
  // A build that the coordinator's machine could not make: how often in a row, and when the next one may start.
  struct DelayedBuild {
    int64_t failures = 0;
    int64_t from_ns = 0;
  };
  using DelayedBuilds = std::map<JobId, DelayedBuild>;
  // Starts a pause before the job's next build. Returns its length in ms, which grows with each failure in a row.
  int64_t DelayBuild(const JobId& id, const std::string& error, DelayedBuilds* delayed_builds) const;
  bool IsDelayed(const JobId& id, const DelayedBuilds& delayed_builds) const;
  // Repeats the build for which the job waits after a pause.
  void BuildAgainLater(Job* job, const std::string& error);
  bool MayBeQuick(const Job& job) const;
  void StartOptimizations();
  void StopBuilds(const JobId& id);
  std::vector<Target> TargetsFor(Job* job);
  std::vector<Target> TargetsForSession(Job* job);
  bool IsRefusedForLong(const Job& job);
  // Sets the reason for which the job waits. The job needs `wanted` devices that run code for `parts`.
  Outcome WaitForDevices(Job* job, const Devices& devices, const Parts& parts, int64_t wanted);
  Outcome WaitForTargets(Job* job, const Parts& parts);
  Outcome WaitForItsWorkers(Job* job, const Parts& parts, int64_t wanted);
  bool TryShrink(Job* job, int64_t devices);
  absl::Status ResizeDevices(Job* job, const ResizeJobRequest& request);
  absl::Status CheckGrowth(const Job& job, int64_t wanted, const std::string& for_what) const;
  void RecordResize(Job* job, JobEvent event);
  static void SetReason(Job* job, const std::string& reason);

  Context& context_;
  AttemptMachine& attempts_;
  std::set<JobId> building_;             // Jobs whose builds are running or queued.
  DelayedBuilds delayed_builds_;         // The builds for which jobs wait.
  DelayedBuilds delayed_optimizations_;  // The builds of optimized code, for which no job waits.
  // By job: the quick executable whose optimized code is being built.
  std::map<JobId, std::string> optimizing_;
  std::set<JobId> quick_;       // Jobs with a quick executable whose optimized code must still be built.
  // By the executable whose plan is being read: the jobs that wait for the plan.
  std::map<std::string, std::vector<JobId>> loading_;
  std::map<JobId, int64_t> refused_since_ns_;  // The time since which the workers cannot run the job.
  // Jobs that may be pending. The next pass visits the jobs in due_; the jobs in parked_, by number, wait until the
  // workers change. A pending job that is in neither waits for its own event or for a time.
  JobQueue due_;
  std::map<int64_t, JobId> parked_;
  std::multimap<int64_t, JobId> timers_;  // Jobs by the time of their next visit. Entries may be out of date.
  int64_t wake_ns_ = INT64_MAX;           // The earliest time passed to WakeAt during the current visit.
  uint64_t offers_ = 0;                   // The value of Context::OffersHash at the last pass.
  Pass pass_;
};

}  // namespace xlad::service
