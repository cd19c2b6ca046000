// Sessions: opening, holding, commands and their answers. The state of a session's arrays is in sessions/session.h.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "service/attempts/ending.h"
#include "service/sessions/session.h"
#include "service/state/context.h"

namespace xlad::service {

// Methods return Aborted once the session has ended, and Unavailable until it runs.
class SessionMachine {
 public:
  explicit SessionMachine(Context* context) : context_(*context) {}

  void OnOpened(const JobId& id);
  // A held session does not expire. Each successful call must be matched by one call of Release.
  absl::Status Hold(const JobId& id);
  void Release(const JobId& id);
  absl::Status Close(const JobId& id);
  absl::Status Check(const JobId& id) const;
  absl::StatusOr<Target> TargetOf(const JobId& id) const;
  // Runs `work` on the session's state and returns its status. Effects are carried out even if it returns an error.
  absl::Status With(const JobId& id, const std::function<absl::Status(Session*)>& work);

  void OnAnswer(const WorkerId& worker, const SessionAnswer& message);
  // Sends again the commands that the worker has not answered: they may have been lost with its last connection.
  void OnRegistered(const WorkerId& worker, const RunningTask& task);
  // Ends sessions that no client holds, and sessions of an earlier coordinator process, whose arrays are unknown.
  void OnTick();
  void OnEnded(const JobId& id);

 private:
  // A session that was opened at this coordinator process and has not ended.
  struct Opened {
    Session state;
    int holds = 0;
    int64_t released_ns = 0;  // When the last hold ended; meaningful if holds is 0.
  };
  void Perform(const Job& job, Session* session);

  Context& context_;
  std::map<JobId, Opened> sessions_;
};

}  // namespace xlad::service
