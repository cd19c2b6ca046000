// The clients of a storm. Each submits one job, again and again until that is acknowledged, follows its metrics, and
// may cancel or resize it; an operator drains workers and undrains them. Used by one thread.
//
// They know what must become of each job, and report whatever differs from that.
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
  // Undrains all workers, and asks for nothing else any more.
  void Repair();
  // Whether every job has ended, or waits for something that never comes.
  bool AllEnded() const;
  // Reports jobs that have not ended as they must.
  void CheckEnd();
  // The step at which the program of the job with this key fails, or -1.
  int64_t FailsAt(const std::string& key) const;

 private:
  struct Client;
  struct Stop {  // That an attempt is to make.
    int64_t attempt = 0, step = -1;
    int64_t since_ns = 0;  // Since when nothing is in its way.
  };
  struct Progress {  // What an attempt has reached.
    int64_t attempt = 0, step = -1, checkpoint = -1;
    JobState state = JOB_STATE_UNSPECIFIED;
    int64_t since_ns = 0;  // Since when it has been there and nothing is in its way.
    bool operator==(const Progress& other) const {
      return attempt == other.attempt && step == other.step && checkpoint == other.checkpoint && state == other.state;
    }
  };
  using Request = std::function<absl::Status(service::CoordinatorCore&)>;

  void AddClient(int number);
  void Submit(Client* client);
  // Sends the request at least once in this time until it is answered by anything but Unavailable; then calls
  // `answered`.
  void Insist(int64_t patience_ms, const Request& request, const std::function<void(const absl::Status&)>& answered);
  void Insist(int64_t patience_ms, const Request& request, const std::function<void(const absl::Status&)>& answered,
              const std::shared_ptr<bool>& is_answered);
  void Cancel(Client* client);
  void Resize(Client* client);
  void Operate();
  void SetDrain(const std::string& worker, bool drain);
  void Watch(Client* client);
  void CheckJobs();
  void CheckAttempts();
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
  bool operator_waits_ = false;    // For an answer.
  // By job.
  std::map<std::string, Stop> stops_;
  std::map<std::string, Progress> progress_;
  std::map<std::string, int64_t> idle_since_ns_;  // Since when devices for a waiting job have been free.
  // By job and attempt: since when an attempt has been starting with a worker that has ended.
  std::map<std::pair<std::string, int64_t>, int64_t> dead_since_ns_;
};

}  // namespace xlad::simulation
