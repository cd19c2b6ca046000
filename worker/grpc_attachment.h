// The worker's stream to the coordinator, which is opened again whenever it ends.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/net/grpc_channel.h"
#include "base/status.h"
#include "proto/worker.pb.h"
#include "proto/xlad_v1.h"
#include "worker/worker_core.h"

namespace xlad::worker {

// Thread-safe. While the coordinator cannot be reached, the attachment tries to connect again at least every 0.3
// seconds if connections are refused, and about every second if nothing answers. Each try makes a new channel,
// because the backoff of a channel of gRPC 1.51 may delay a connection by seconds.
class Attachment {
 public:
  // Calls `emit` with Connected, CoordinatorMessage, ClockSampled and Disconnected events, in order, on a thread of the
  // attachment. `clock` must outlive the attachment. If the coordinator supports ClockProbe, its clock is compared with
  // `clock` eight times right after the registration, then every two seconds. Calls `refused` on the same thread if the
  // coordinator rejects this worker permanently; then there are no further events. The token is read from its file for
  // each stream. If the token is refused and the file has another one by then, the attachment tries again. The errors
  // are those of MakeChannel and ReadToken.
  static absl::StatusOr<std::unique_ptr<Attachment>> Start(const Endpoint& coordinator, const Clock* clock,
                                                           std::function<void(Event)> emit,
                                                           std::function<void(const absl::Status&)> refused);
  // Ends the stream. When it returns, no callback is running or will run.
  virtual ~Attachment() = default;
  // Sends on the current stream. If there is no stream, the message is dropped.
  virtual void Send(const WorkerMessage& message) = 0;
  // Sends a clock probe if it is due. Should be called about every 50 ms.
  virtual void ProbeClock() = 0;
  // Waits until the messages have been written, or until half a second has passed.
  virtual void Flush() = 0;
};

}  // namespace xlad::worker
