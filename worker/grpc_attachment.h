// The worker's stream to the coordinator, which is opened again whenever it ends.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/grpc_channel.h"
#include "base/status.h"
#include "proto/worker.pb.h"
#include "proto/xlad_v1.h"
#include "worker/worker_core.h"

namespace xlad::worker {

// Thread-safe. While the coordinator cannot be reached, it tries to connect again at least every 0.3 seconds if
// connections are refused, and at least every second if nothing answers. Each try makes a new channel: a channel of
// gRPC 1.51 waits for its own backoff, and may notice only seconds later that it is over.
class Attachment {
 public:
  // Calls `emit` with Connected, CoordinatorMessage, ClockSampled and Disconnected events, in order, on a thread of the
  // attachment. The samples are of `clock`, which outlives the attachment: some at once after the registration, then
  // one every two seconds, if the coordinator knows ClockProbe. Calls `refused` if the coordinator rejects this worker
  // permanently; then there are no further events. Errors as MakeChannel and ReadToken.
  static absl::StatusOr<std::unique_ptr<Attachment>> Start(const Endpoint& coordinator, const Clock* clock,
                                                           std::function<void(Event)> emit,
                                                           std::function<void(const absl::Status&)> refused);
  // Ends the stream.
  virtual ~Attachment() = default;
  // Sends on the current stream. The message is dropped if there is none.
  virtual void Send(const WorkerMessage& message) = 0;
  // Asks what time it is, if that is due. Called about every 50 ms.
  virtual void ProbeClock() = 0;
  // Waits briefly until the messages have been written.
  virtual void Flush() = 0;
};

}  // namespace xlad::worker
