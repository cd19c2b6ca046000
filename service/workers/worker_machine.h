// Handles the registration, silence, loss and drains of workers.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "service/attempts/attempt_machine.h"
#include "service/state/context.h"

namespace xlad::service {

class WorkerMachine {
 public:
  WorkerMachine(Context* context, AttemptMachine* attempts) : context_(*context), attempts_(*attempts) {}

  void OnMessage(ConnectionId connection, const WorkerMessage& message);
  void OnGone(ConnectionId connection, const std::string& why);
  void OnTick();
  // Lets workers exit if they have asked to be drained and have no running attempt.
  void ReleaseLeaving();

  // Whether a job is shown.
  using Shows = std::function<bool(const Job& job)>;
  // Names one job of each worker: the first for which `shows` returns true. A null `shows` shows every job.
  ListWorkersResponse List(const Shows& shows = nullptr) const;
  absl::Status Drain(const WorkerId& id);
  absl::Status Undrain(const WorkerId& id);

 private:
  void OnRegister(ConnectionId connection, const RegisterWorker& message);
  bool IsRefused(ConnectionId connection, const RegisterWorker& message);
  // Refuses a worker if a worker of another user has its id, even if that worker is not connected.
  bool IsOfAnotherUser(ConnectionId connection, const RegisterWorker& message);
  void Refuse(ConnectionId connection, const std::string& why);
  std::string WhenIdIsFree(const Worker* worker) const;
  void OnHeartbeat(const WorkerId& worker, const Heartbeat& message);
  void OnLeaving(Worker* worker);
  void Doubt(const std::vector<Worker*>& workers);
  void RecordSilence(const JobId& id, const std::vector<const Worker*>& workers);
  void Lose(Worker* worker, const std::string& why);

  // A process that tried to register under the id of a connected worker.
  struct Rival {
    uint64_t incarnation = 0;
    int64_t since_ns = 0;
  };
  Context& context_;
  AttemptMachine& attempts_;
  std::map<WorkerId, Rival> rivals_;
};

}  // namespace xlad::service
