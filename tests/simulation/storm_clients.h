// The clients of a storm. Each client submits one job, repeatedly until the job is acknowledged, follows its metrics,
// and may cancel or resize it. An operator drains and undrains workers. Used by one thread.
//
// The clients report a violation if a job does not progress or end as it must.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "proto/job.pb.h"
#include "service/coordinator.h"

namespace xlad::simulation {

class Storm;

class StormClients {
 public:
  StormClients(Storm* storm, int jobs, int64_t max_devices);
  ~StormClients();

  void Start(int64_t storm_ms);
  // Undrains all drained workers, from now on.
  void Repair();
  // Whether every job has ended, or waits for a worker that never comes back.
  bool AllEnded() const;
  // Reports jobs that have not ended as they must.
  void CheckEnd();
  // An operator drains or undrains a worker, unless another such request has no answer yet.
  void SetDrain(const std::string& worker, bool drain);
  // The step at which the program of the job with this key fails, or -1.
  int64_t FailsAt(const std::string& key) const;

 private:
  struct Client;
  struct Stop {  // A requested stop of an attempt.
    int64_t attempt = 0, step = -1;
    int64_t since_ns = 0;  // The time since which faults do not hinder the stop.
  };
  struct Progress {  // The progress of an attempt.
    int64_t attempt = 0, step = -1, checkpoint = -1;
    JobState state = JOB_STATE_UNSPECIFIED;
    int64_t since_ns = 0;  // The time since which there was no progress although faults did not hinder it.
    bool operator==(const Progress& other) const {
      return attempt == other.attempt && step == other.step && checkpoint == other.checkpoint && state == other.state;
    }
  };
  using Request = std::function<absl::Status(service::CoordinatorCore&)>;

  void AddClient(int number);
  void Submit(Client* client);
  // Repeats the request, at least once in `patience_ms`, until its effects are durable and the answer is not lost. Then
  // calls `answered` with the status of the request.
  void Insist(int64_t patience_ms, const Request& request, const std::function<void(const absl::Status&)>& answered);
  void Insist(int64_t patience_ms, const Request& request, const std::function<void(const absl::Status&)>& answered,
              const std::shared_ptr<bool>& is_answered);
  void Cancel(Client* client);
  void Resize(Client* client);
  void Operate();
  void Watch(Client* client);
  void CheckJobs();
  void CheckAttempts();
  void CheckStep(const service::Job& job);
  void CheckStart(const service::Job& job, bool awaits_adoption);
  void CheckStop(const service::Job& job, int64_t stop_at, bool is_free);
  void CheckProgress(const service::Job& job, bool is_free);
  void CheckIdleDevices();
  void CheckCounts();
  void CheckSaysWhy(Client* client);
  bool HasSettled(const Client& client) const;
  void CheckEndOf(Client* client);

  Storm* const storm_;
  const int64_t max_devices_;
  std::vector<std::unique_ptr<Client>> clients_;
  std::set<std::string> drained_;  // Workers that an operator has drained.
  bool operator_waits_ = false;    // Whether the operator waits for an answer.
  // The following maps are by job.
  std::map<std::string, Stop> stops_;
  std::map<std::string, Progress> progress_;
  std::map<std::string, int64_t> idle_since_ns_;  // The time since which devices for a waiting job have been free.
  // For each job and attempt, the time since which a starting attempt has had an ended worker.
  std::map<std::pair<std::string, int64_t>, int64_t> dead_since_ns_;
};

}  // namespace xlad::simulation
