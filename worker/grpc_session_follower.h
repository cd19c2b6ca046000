// The connection of a session's worker to the first worker of the session: receives its commands, and exchanges boxes
// of arrays with it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/types/span.h"
#include "base/status.h"
#include "collectives/exec/abort.h"
#include "proto/worker.pb.h"
#include "proto/xlad_v1.h"
#include "tensor/box.h"

namespace xlad::worker {

// Thread-safe. Calls retry while the first worker cannot be reached.
class SessionFollower {
 public:
  struct Callbacks {  // Called on a thread of the follower.
    // Called with each command once, in order.
    std::function<void(const SessionCommand&)> deliver;
    // Called at most once, with the error, if the first worker rejects the connection. No command follows.
    std::function<void(const absl::Status&)> fail;
  };
  static std::unique_ptr<SessionFollower> Make(const LaunchTask& launch, const std::string& worker_id,
                                               Callbacks callbacks);
  virtual ~SessionFollower() = default;  // Has the same effect as Stop.
  // Starts following the first worker, which serves at this address. Must be called once, before all other functions.
  // Returns the errors of MakeSessionChannel.
  virtual absl::Status Connect(const SessionPlace& place) = 0;
  // Ends the connection. When it returns, no callback is running or will run. Idempotent. Must not be called by
  // a callback.
  virtual void Stop() = 0;
  // Reports to the first worker that all commands up to `sequence` are done.
  virtual void Done(int64_t sequence) = 0;
  // These do the same as in runtime::SessionStore.
  virtual absl::Status ReadArray(int64_t array, const tensor::Box& box, absl::Span<std::byte> out,
                                 collectives::AbortSignal* abort) = 0;
  virtual absl::Status WriteArray(int64_t array, const tensor::Box& box, absl::Span<const std::byte> bytes,
                                  collectives::AbortSignal* abort) = 0;
};

}  // namespace xlad::worker
