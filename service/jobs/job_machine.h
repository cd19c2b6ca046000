// Requests of clients about jobs, and the builds of their programs.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "service/attempts/attempt_machine.h"
#include "service/placement/apart.h"
#include "service/placement/free_devices.h"
#include "service/state/context.h"

namespace xlad::service {

// The result of a build.
struct BuiltProgram {
  std::string executable_digest;
  double compile_ms = 0;
  std::vector<std::string> warnings;
  bool cached = false;  // The executable was in the cache.
  PlannedProgram plan;
  std::vector<std::string> batch_axes;
  std::vector<BuiltExecutable> others;  // For the targets after the first one.
};

// What a submission's `resume` stands for.
struct ResolvedResume {
  std::string uri, digest;  // Empty: nothing to resume.
  int64_t step = 0;
};

// A request that returns an error has changed nothing. It has more than 25 methods because it has one for each request
// of a client about jobs and one for each stage of their scheduling.
class JobMachine {
 public:
  JobMachine(Context* context, AttemptMachine* attempts) : context_(*context), attempts_(*attempts) {}

  // Returns the existing job if `client_key` is known; AlreadyExists if that job has another spec. ResourceExhausted if
  // the disk is nearly full.
  absl::StatusOr<SubmitJobResponse> Submit(const SubmitJobRequest& request, const ResolvedResume& resume);
  absl::Status Cancel(const JobId& id);
  absl::Status Resize(const ResizeJobRequest& request);
  absl::StatusOr<JobStatus> Status(const JobId& id) const;
  ListJobsResponse List(const ListJobsRequest& request) const;
  // The newest checkpoint of a job, for a job that resumes it.
  absl::StatusOr<ResolvedResume> NewestCheckpoint(const JobId& id) const;

  // Places pending jobs, oldest first, and starts builds. A job that needs more devices than the cluster has does not
  // block later jobs. A job that waits for busy devices does, so that later small jobs cannot starve it. Looks only at
  // jobs whose wait may be over: what a job waits for decides what it is woken by.
  void Schedule();
  // As Schedule, for new jobs alone, oldest first: nothing has changed for those before them.
  void ScheduleNew(const std::vector<JobId>& jobs);

  void OnBuilt(const JobId& id, const Mesh& mesh, const absl::StatusOr<BuiltProgram>& built);
  void OnPlanLoaded(const std::string& digest, const absl::StatusOr<PlannedProgram>& plan);
  // Reschedules when a pause between attempts is over.
  void OnTick();
  void OnEnded(const JobId& id);
  // All jobs that have not ended are looked at again.
  void AfterRecovery();

 private:
  // What became of a job that was looked at.
  enum class Outcome {
    kDone,             // It does not wait.
    kWaitsForWorkers,  // Until the workers and their devices change.
    kWaitsForDevices,  // Until devices are free, without blocking others.
    kWaitsForEvent,    // Until its build or its plan is complete, or until the time of WakeAt.
    kBlocks,           // Until devices are free.
  };
  // What many waiting jobs ask for in the same way, within one pass over them.
  struct Pass {
    std::optional<std::vector<WorkerDevices>> all;
    std::optional<FreeDevices> all_devices;  // Those of `all`, as if they were free.
    std::optional<FreeDevices> free;
    std::map<std::pair<int64_t, std::string>, TargetSelection> selections;  // By number and name of devices.
  };
  using Parts = std::vector<FreeDevices::Part>;
  // Does for one job what Schedule does for all.
  Outcome ScheduleOne(Job* job);
  void Visit(std::map<int64_t, JobId>::iterator at);  // From this one of the jobs in due_ on.
  void Wake(const JobId& id);
  void WakeJobs();
  // The job that is being looked at is looked at again at this time.
  void WakeAt(int64_t ns) { wake_ns_ = std::min(wake_ns_, ns); }
  const std::vector<WorkerDevices>& AllOffers();
  FreeDevices& Free();
  // Takes free devices, if possible on workers that reach each other.
  std::vector<Peer> TakeFree(const FreeDevices::MayHave& may_have, const TakePeers& take);
  struct Devices {
    int64_t all = 0, free = 0;
  };
  // How many devices there are that a job may take from these parts.
  Devices DevicesFor(const Parts& parts);
  // The devices that the job's executables are for.
  static Parts PartsOf(const Job& job, const Target& first);
  const TargetSelection& SelectionFor(const Job& job);
  JobStatus StatusOf(const Job& job) const;
  Outcome TryJob(Job* job);
  Outcome Place(Job* job);
  Outcome PlaceSession(Job* job);
  Outcome Build(Job* job);
  std::vector<Target> TargetsFor(Job* job);
  std::vector<Target> TargetsForSession(Job* job);
  bool IsRefusedForLong(const Job& job);
  void WaitForDevices(Job* job, int64_t free, int64_t all);
  Outcome WaitForTargets(Job* job, const Parts& parts);
  bool MayShrink(Job* job, int64_t devices);
  absl::Status ResizeDevices(Job* job, const ResizeJobRequest& request);
  absl::Status CheckGrowth(const Job& job, int64_t wanted, const std::string& for_what) const;
  void RecordResize(Job* job, JobEvent event);
  static void SetReason(Job* job, const std::string& reason);

  Context& context_;
  AttemptMachine& attempts_;
  std::set<JobId> building_;                           // Jobs whose builds are under way.
  std::map<std::string, std::vector<JobId>> loading_;  // By executable whose plan is being read: who waits for it.
  std::map<JobId, int64_t> refused_since_ns_;          // Since when the workers cannot run the job.
  // Jobs that may be pending, by number: those that the next pass looks at, and those that wait until the workers
  // change. A job that is in neither waits for an event of its own or for a time.
  std::map<int64_t, JobId> due_, parked_;
  std::multimap<int64_t, JobId> timers_;  // By time. Entries may be out of date.
  int64_t wake_ns_ = INT64_MAX;           // See WakeAt.
  uint64_t offers_ = 0;                   // Context::OffersHash at the last pass.
  Pass pass_;
};

}  // namespace xlad::service
