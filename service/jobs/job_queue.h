// The jobs that a pass of the scheduler visits. Pure data.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "service/log/job.h"

namespace xlad::service {

class JobQueue {
 public:
  void Add(const Job& job) { owners_[job.owner][job.number] = job.id; }
  void Remove(const Job& job);

  // What a visit says about the job and the rest of the pass.
  enum class Next {
    kRemove,     // The job leaves the queue.
    kKeep,       // The job stays in the queue.
    kSkipOwner,  // The job stays in the queue, and this pass visits no later jobs of its owner.
    kStop,       // The job stays in the queue, and the pass ends.
  };
  // Visits the jobs whose number is at least `first`, oldest first. The time does not grow with the number of jobs that
  // are not visited. `visit` must not change the queue.
  void Visit(int64_t first, const std::function<Next(const JobId& job)>& visit);

 private:
  std::map<std::string, std::map<int64_t, JobId>> owners_;  // By owner and number.
};

}  // namespace xlad::service
