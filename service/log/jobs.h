// All jobs of the coordinator: the state that results from applying the events of the log in order. Pure data, used by
// one thread at a time.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "service/log/job.h"
#include "service/log/job_log.h"

namespace xlad::service {

class Jobs {
 public:
  // Applies an event about a job or about the coordinator.
  void Apply(const JobEvent& event);

  // Null if the job does not exist. Pointers stay valid until the job is removed.
  Job* Find(const JobId& id);
  const Job* Find(const JobId& id) const;
  const Job* FindByKey(const std::string& client_key) const;
  // Jobs that have not ended, oldest first. Valid until the next Apply.
  std::vector<Job*> Open() const;
  // Returns, oldest first, at most `limit` jobs that were submitted after the job `after`, which may have been removed
  // since this process read the log; the first jobs if `after` is empty or unknown. Only jobs for which `is_listed`
  // returns true are included; all jobs if `is_listed` is null.
  std::vector<const Job*> Page(const JobId& after, int64_t limit,
                               const std::function<bool(const Job&)>& is_listed = nullptr) const;
  // Whether a job that has not ended was submitted to continue from this checkpoint. Its spec may name the checkpoint's
  // folder or the index in that folder.
  bool IsResumed(const std::string& checkpoint_uri) const { return !ResumedIn(checkpoint_uri).empty(); }
  // The checkpoints from which open jobs were submitted to continue, and that have this URI or are in the folder with
  // this URI.
  std::vector<std::string> ResumedIn(const std::string& uri) const;
  size_t size() const { return jobs_.size(); }
  const std::map<int64_t, Job*>& by_number() const { return by_number_; }
  // The number of jobs in each state.
  const std::map<JobState, int64_t>& counts() const { return counts_; }
  // Changes the state of a job to one that is not recorded by an event.
  void SetState(Job* job, JobState state);

  // Workers that operators have drained. A drain stays in effect when the coordinator or the worker restarts.
  const std::set<WorkerId>& drained() const { return drained_; }
  Term term() const { return term_; }
  Generation generation() const { return generation_; }
  // Jobs that were removed but may still have events in the log, with their numbers, or 0 for jobs without events. New
  // jobs never get one of these ids.
  const std::map<JobId, int64_t>& removed() const { return removed_; }

 private:
  void ApplyRemoved(const JobsRemoved& removed);
  void Close(Job* job);  // Called when the job has ended or is removed.

  std::map<JobId, std::unique_ptr<Job>> jobs_;
  std::map<int64_t, Job*> by_number_, open_;
  std::map<std::string, Job*> by_key_;
  std::map<JobState, int64_t> counts_;
  std::multiset<std::string> resumed_;  // The checkpoints from which open jobs continue.
  std::set<WorkerId> drained_;
  std::map<JobId, int64_t> removed_;
  int64_t next_number_ = 1, next_ended_number_ = 1;
  Term term_;
  Generation generation_;
};

}  // namespace xlad::service
