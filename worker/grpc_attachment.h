// The worker's stream to the coordinator, made anew whenever it breaks.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/status.h"
#include "proto/worker.pb.h"
#include "worker/worker_core.h"

namespace grpc {
class Channel;
}  // namespace grpc

namespace xlad::worker {

// Thread-safe. Pauses between tries grow and are shortened by chance.
class Attachment {
 public:
  // `emit` gets Connected, CoordinatorMessage and Disconnected events, in order, from a thread of the attachment.
  // `refused` is called where the coordinator does not want this worker, for good.
  static std::unique_ptr<Attachment> Start(std::shared_ptr<grpc::Channel> channel, const std::string& token,
                                           std::function<void(Event)> emit,
                                           std::function<void(const absl::Status&)> refused);
  // Ends the stream.
  virtual ~Attachment() = default;
  // On the current stream; lost where there is none.
  virtual void Send(const WorkerMessage& message) = 0;
  // Waits a moment until what was sent has left.
  virtual void Flush() = 0;
};

}  // namespace xlad::worker
