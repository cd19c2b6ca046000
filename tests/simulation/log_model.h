// The invariants of the coordinator's log, checked record by record, and the contents of the states that it names.
//
// The contents of a job's state after a number of steps are a pure function of the job and that number. A checkpoint,
// the start of an attempt or a loss with the state of another step or job is therefore detected. A stored index also
// names its attempt, so a checkpoint with the index of another attempt is detected, too.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "service/log/job.h"
#include "service/log/job_log.h"

namespace xlad::simulation {

// The error with which a program ends. Processes end in other ways as well, which must not count as errors of a
// program.
inline constexpr char kProgramError[] = "an index is out of range";

// Returns the contents of the state before `step` of the job with this client key.
uint64_t ContentsAt(const std::string& key, int64_t step);
// Returns the loss of a step whose state had these contents.
float LossOf(uint64_t contents);

// A stored index of a checkpoint, committed or not.
struct StoredIndex {
  std::string job_id;
  int64_t attempt = 0, generation = 0, step = 0;
  uint64_t contents = 0;
  bool is_damaged = false;
  // Which peer of an attempt that starts from it reads the damaged bytes (modulo the number of peers), or -1 if all do.
  int damaged_peer = -1;
};

// The state that results from the durable records. Violations are collected as text.
// The class has more than 25 methods: one for each kind of record and each property that is checked.
class LogModel {
 public:
  // What is true of a worker at the time of a call.
  struct Workers {
    // Whether it has run without faults for so long that it cannot count as lost.
    std::function<bool(const std::string& id)> is_well;
    // The incarnation of its process, or 0 if there is none.
    std::function<uint64_t(const std::string& id)> incarnation;
  };
  LogModel(const std::map<std::string, StoredIndex>* indexes, int devices_each, bool share_workers, Workers workers)
      : indexes_(indexes), devices_each_(devices_each), share_workers_(share_workers), workers_(std::move(workers)) {}

  // Must be called for each record, in order, when it becomes durable, and again from the first one after the log was
  // reopened.
  void Apply(const JobEvent& event);
  // Must be called for metrics when they become durable. A later attempt that runs a step again must have the same
  // loss.
  void ApplyMetrics(const service::LogBatch::Metrics& metrics);
  // Must be called before the reopened log is read. All durable records must be read again.
  void BeginReading();
  // Must be called after the log was read. Checks that no durable record is missing.
  void EndReading();

  // Must be called when a client has been told that the job with this key has this id.
  void Acknowledge(const std::string& key, const std::string& job_id);

  // Must be called when the files of a checkpoint are removed. Checks that no job has the checkpoint or starts from it.
  void CheckRemoved(const std::string& uri);

  struct Job {
    std::string key;
    JobSpec spec;
    int64_t attempt = 0, generation = 0;
    bool running = false, started = false;
    bool ended = false;
    JobState end_state = JOB_STATE_UNSPECIFIED;
    std::string reason;  // Why the job ended.
    service::Mesh mesh;  // The mesh of the next attempts.
    AttemptPlaced placed;
    bool resized = false;       // Whether the job was resized after the placement.
    std::string lost_worker;    // The worker whose loss ended the latest attempt, or empty.
    int64_t ended_unix_ns = 0;  // When the latest attempt ended.
    int64_t failures = 0;       // Attempts in a row that failed without a new checkpoint.
    // How and at which step the program ended the latest attempt; empty if the program did not end it.
    std::string program_error;
    bool repeated = false;  // Whether the latest two attempts ended with the same program error at the same step.
    std::map<int64_t, std::string> checkpoints;  // URIs of the kept checkpoints, by step.
    int64_t newest_step = -1;                    // The step of the newest checkpoint so far, or -1.
    std::string damaged_uri;  // The checkpoint that the latest attempts found damaged, or empty.
    int64_t damaged_attempts = 0;         // The number of these attempts.
    std::set<std::string> damaged_hosts;  // The hosts of the workers that found the damage.
    int64_t damaged_unix_ns = 0;  // When the latest attempt ended, or 0 if it found no damage.
    bool lost_its_state = false;  // Whether the job failed because its only checkpoint is damaged.
    int64_t unstored_step = -1;   // The step of the last state that could not be stored, until one is stored.
  };
  const std::map<std::string, Job>& jobs() const { return jobs_; }
  int64_t term() const { return term_; }
  const std::set<std::string>& drained() const { return drained_; }
  const std::vector<std::string>& violations() const { return violations_; }
  int64_t attempts() const { return attempts_; }
  int64_t checkpoints() const { return checkpoints_; }
  // The number of records of each kind, by the name of the kind.
  const std::map<std::string, int64_t>& records() const { return records_; }

 private:
  void Violate(const std::string& what) { violations_.push_back(what); }
  void Expect(bool holds, const JobEvent& event, const std::string& what);
  void ApplyToJob(const JobEvent& event);
  void OnPlaced(const JobEvent& event, Job* job);
  void CheckPolicy(const JobEvent& event, const Job& job);
  void CheckDevices(const JobEvent& event, const Job& job);
  void CheckHosts(const JobEvent& event);
  void OnDamageFound(const JobEvent& event, Job* job);
  bool IsProcessOf(const AttemptPlaced& placed, const std::string& worker) const;
  void OnAttemptEnded(const JobEvent& event, Job* job);
  void OnCheckpoint(const JobEvent& event, Job* job);
  void OnDropped(const JobEvent& event, Job* job);
  bool IsDamaged(const std::string& uri) const;
  void OnEnded(const JobEvent& event, Job* job);

  const std::map<std::string, StoredIndex>* const indexes_;
  const int devices_each_;
  const bool share_workers_;  // Whether jobs of different owners may be on one worker.
  const Workers workers_;
  std::map<std::string, Job> jobs_;
  std::set<std::string> drained_;                    // Ids of workers.
  std::map<std::string, std::string> ids_;           // Job ids by client key, from the log.
  std::map<std::string, std::string> acknowledged_;  // Job ids by client key.
  int64_t term_ = 0, generation_ = 0, sequence_ = 0;
  int64_t durable_sequence_ = 0;  // The last record whose append returned OK.
  int64_t attempts_ = 0, checkpoints_ = 0;
  std::map<std::string, int64_t> records_;
  bool reading_ = false;
  std::vector<std::string> violations_;
};

// Returns a log that passes every record of the real coordinator's log to the model when it becomes durable, and again
// when the log is read from the beginning.
std::shared_ptr<service::JobLog> Observe(std::unique_ptr<service::JobLog> log, LogModel* model);

}  // namespace xlad::simulation
