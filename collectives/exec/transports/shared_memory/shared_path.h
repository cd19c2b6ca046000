// Sends the frames of a connection through a pair of rings in memory that both processes map.
#pragma once

#include <atomic>
#include <memory>

#include "collectives/exec/abort.h"
#include "collectives/exec/transports/frame_path.h"
#include "collectives/exec/transports/shared_memory/shared_memory.h"
#include "collectives/exec/waiter.h"

namespace xlad::collectives {

// The waiter's pump must call Receive, because the peer may also wait for room.
class SharedPath final : public FramePath {
 public:
  // `peer_finished` becomes true when the peer will not read any more frames. All arguments except the pipe must
  // outlive the path.
  SharedPath(std::unique_ptr<SharedPipe> pipe, Waiter* waiter, const AbortSignal* abort,
             const std::atomic<bool>* peer_finished);

  absl::StatusOr<uint64_t> Send(const FrameHead& head, absl::Span<const ConstPiece> pieces) override;
  bool CanSend() override;
  bool IsSent(uint64_t) override { return true; }
  absl::StatusOr<Progress> Receive(FrameSink* sink) override;
  void Revoke() override {}

 private:
  absl::Status Write(ConstPiece bytes);
  absl::Status ReadHead(FrameSink* sink);

  const std::unique_ptr<SharedPipe> pipe_;
  Waiter* const waiter_;
  const AbortSignal& abort_;
  const std::atomic<bool>& peer_finished_;
  bool sending_ = false;  // A frame has been written in part.
  // The head of the frame that is being received.
  FrameHead head_;
  size_t head_bytes_ = 0;
  FrameBuffer payload_;
  size_t payload_bytes_ = 0;
};

}  // namespace xlad::collectives
