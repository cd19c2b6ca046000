// What must be true of the coordinator's log, checked record by record, and what the states that it names contain.
//
// The contents of a job's state after a number of steps are a pure function of the job and that number, so that a state
// of another step, job or attempt is found wherever it turns up: in a checkpoint, in the start of an attempt, in a
// loss.
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

// The contents of the state of the job with this client key before `step`.
uint64_t ContentsAt(const std::string& key, int64_t step);
// The loss of a step whose state had these contents.
float LossOf(uint64_t contents);

// A checkpoint's index that has been stored, whether it is committed or not.
struct StoredIndex {
  std::string job_id;
  int64_t attempt = 0, generation = 0, step = 0;
  uint64_t contents = 0;
};

// The fold of the records that are durable. Violations are collected as text.
class LogModel {
 public:
  // `is_well` says whether a worker has had no trouble for so long that it cannot count as lost.
  LogModel(const std::map<std::string, StoredIndex>* indexes, int devices_each,
           std::function<bool(const std::string&)> is_well)
      : indexes_(indexes), devices_each_(devices_each), is_well_(std::move(is_well)) {}

  // Records as they become durable, in order, or again from the first after the log has been opened again.
  void Apply(const JobEvent& event);
  // Metrics as they become durable. A later attempt that runs a step again must find the same loss.
  void ApplyMetrics(const service::LogBatch::Metrics& metrics);
  // The log has been opened again and is about to be read: everything that was durable must come again.
  void BeginReading();
  // All of it has been read: nothing may be missing.
  void EndReading();

  // The client has been told that the job with this key has this id.
  void Acknowledge(const std::string& key, const std::string& job_id);

  struct Job {
    std::string key;
    JobSpec spec;
    int64_t attempt = 0, generation = 0;
    bool running = false, started = false;
    bool ended = false;
    JobState end_state = JOB_STATE_UNSPECIFIED;
    std::string reason;  // Why it ended.
    service::Mesh mesh;  // Attempts use it from now on.
    AttemptPlaced placed;
    bool resized = false;       // Since the placement.
    std::string lost_worker;    // The worker whose loss ended the latest attempt, or empty.
    int64_t failures = 0;       // Attempts in a row that failed without a new checkpoint.
    std::string program_error;  // How the program ended the latest attempt, and at which step; empty if it did not.
    bool repeated = false;      // The latest two attempts ended with the same program error at the same step.
    std::map<int64_t, std::string> checkpoints;  // URIs of those that are kept, by step.
    int64_t newest_step = -1;                    // The newest of all checkpoints so far.
  };
  const std::map<std::string, Job>& jobs() const { return jobs_; }
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
  void OnAttemptEnded(const JobEvent& event, Job* job);
  void OnCheckpoint(const JobEvent& event, Job* job);
  void OnEnded(const JobEvent& event, Job* job);

  const std::map<std::string, StoredIndex>* const indexes_;
  const int devices_each_;
  const std::function<bool(const std::string&)> is_well_;
  std::map<std::string, Job> jobs_;
  std::set<std::string> drained_;                    // Workers.
  std::map<std::string, std::string> ids_;           // By client key.
  std::map<std::string, std::string> acknowledged_;  // Job ids by client key.
  int64_t term_ = 0, generation_ = 0, sequence_ = 0;
  int64_t durable_sequence_ = 0;  // The last record of which an append returned OK.
  int64_t attempts_ = 0, checkpoints_ = 0;
  std::map<std::string, int64_t> records_;
  bool reading_ = false;
  std::vector<std::string> violations_;
};

// The log of the real coordinator, with every record that becomes durable passed to the model.
std::shared_ptr<service::JobLog> Observe(std::unique_ptr<service::JobLog> log, LogModel* model);

}  // namespace xlad::simulation
