// Sessions: opening, holding, places. What a session does is between its clients and its first worker
// (runtime/session_host.h), so that a session continues while the coordinator is restarted.
#pragma once

#include <map>
#include <string>

#include "security/session_keys.h"
#include "service/attempts/ending.h"
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
  // The seal by which the first worker knows that the coordinator has built the program for the session; empty if a
  // worker of the session is of an older version, which needs none.
  absl::StatusOr<std::string> SealOf(const JobId& id, const std::string& executable_digest,
                                     const security::CollectivePlans& plans) const;
  // The address of the first worker, and the key for it.
  absl::StatusOr<LocateSessionResponse> Locate(const JobId& id) const;

  // Ends sessions that no client holds.
  void OnTick();
  void OnEnded(const JobId& id);
  // The clients of sessions have the usual time to hold them again.
  void AfterRecovery();

 private:
  struct Holds {
    int count = 0;
    int64_t released_ns = 0;  // When the last hold ended; meaningful if there is none.
  };

  Context& context_;
  std::map<JobId, Holds> holds_;  // By session that has not ended.
};

}  // namespace xlad::service
