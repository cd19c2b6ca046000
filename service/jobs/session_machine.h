// Sessions: their opening, their holds, and the addresses of their workers. The first worker of a session executes the
// commands of its clients (runtime/session_host.h), so a session continues while the coordinator is restarted.
#pragma once

#include <map>
#include <string>

#include "security/session_keys.h"
#include "service/attempts/ending.h"
#include "service/state/context.h"

namespace xlad::service {

// Methods that need a running session return Unavailable until it runs, and Aborted when it has ended.
class SessionMachine {
 public:
  explicit SessionMachine(Context* context) : context_(*context) {}

  void OnOpened(const JobId& id);
  // A held session does not expire. Each successful call must be matched by one call of Release, unless the coordinator
  // has restarted since: the hold is then lost.
  absl::Status Hold(const JobId& id);
  void Release(const JobId& id);
  absl::Status Close(const JobId& id);
  absl::Status Check(const JobId& id) const;
  absl::StatusOr<Target> TargetOf(const JobId& id) const;
  // See Context::AllSendPartialsInF32.
  absl::StatusOr<bool> SendsPartialsInF32(const JobId& id) const;
  // Returns the seal that proves to the first worker that the coordinator has built the program for the session. Empty
  // if a worker of the session has an older version, which does not need a seal.
  absl::StatusOr<std::string> SealOf(const JobId& id, const std::string& executable_digest,
                                     const security::CollectivePlans& plans) const;
  // Returns the address of the first worker, and the key for calls to it.
  absl::StatusOr<LocateSessionResponse> Locate(const JobId& id) const;

  // Ends sessions that no client has held for session_grace_ms.
  void OnTick();
  // Returns for how long no client has held the session. Empty if a client holds it, and if it has ended.
  std::string WhyItMayEnd(const JobId& id) const;
  void OnEnded(const JobId& id);
  // Starts the grace period in which clients must hold their sessions again.
  void AfterRecovery();

 private:
  struct Holds {
    int count = 0;
    int64_t released_ns = 0;  // When the session was opened or its last hold ended. Used if `count` is 0.
  };

  // Returns the target with only the library ops that the devices of all workers of the session have.
  Target WithCommonOps(Target target, const Job& session) const;

  Context& context_;
  std::map<JobId, Holds> holds_;  // Entries exist for sessions that have not ended.
};

}  // namespace xlad::service
