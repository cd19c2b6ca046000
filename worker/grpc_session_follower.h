// The connection of a session's worker to the first worker of the session: gets commands from it, and exchanges boxes
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
    // Gets the commands, each once and in order.
    std::function<void(const SessionCommand&)> deliver;
    // Gets the error, at most once, if the first worker refuses the connection; then no more commands come.
    std::function<void(const absl::Status&)> fail;
  };
  static std::unique_ptr<SessionFollower> Make(const LaunchTask& launch, const std::string& worker_id,
                                               Callbacks callbacks);
  virtual ~SessionFollower() = default;  // As Stop.
  // Begins to follow the first worker, which serves at this place. Called once, before everything else.
  virtual absl::Status Connect(const SessionPlace& place) = 0;
  // Ends the connection. When it returns, no callback is running or will run. Idempotent.
  virtual void Stop() = 0;
  // All commands up to `sequence` are done.
  virtual void Done(int64_t sequence) = 0;
  // As runtime::SessionStore.
  virtual absl::Status ReadArray(int64_t array, const tensor::Box& box, absl::Span<std::byte> out,
                                 collectives::AbortSignal* abort) = 0;
  virtual absl::Status WriteArray(int64_t array, const tensor::Box& box, absl::Span<const std::byte> bytes,
                                  collectives::AbortSignal* abort) = 0;
};

}  // namespace xlad::worker
