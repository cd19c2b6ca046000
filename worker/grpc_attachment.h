// The worker's stream to the coordinator, which is opened again whenever it ends.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/status.h"
#include "proto/worker.pb.h"
#include "proto/xlad_v1.h"
#include "worker/worker_core.h"

namespace grpc {
class Channel;
}  // namespace grpc

namespace xlad::worker {

// Thread-safe. Retries with exponential backoff and jitter.
class Attachment {
 public:
  // Calls `emit` with Connected, CoordinatorMessage and Disconnected events, in order, on a thread of the attachment.
  // Calls `refused` if the coordinator rejects this worker permanently; then there are no further events.
  static std::unique_ptr<Attachment> Start(std::shared_ptr<grpc::Channel> channel, const std::string& token,
                                           std::function<void(Event)> emit,
                                           std::function<void(const absl::Status&)> refused);
  // Ends the stream.
  virtual ~Attachment() = default;
  // Sends on the current stream. The message is dropped if there is none.
  virtual void Send(const WorkerMessage& message) = 0;
  // Waits briefly until the messages have been written.
  virtual void Flush() = 0;
};

}  // namespace xlad::worker
