// Carries the frames of one connection between two devices without the connection's socket: in memory that both
// processes map, or through a library that is loaded as a plugin. The socket then carries only aborts and the end of
// the task, and is used to detect the end of the peer's process.
//
// Frames are delivered once each, in the order in which they were sent. Threads: only the device's thread may call a
// function, unless the function's comment says otherwise. Errors: an error of Send or Receive ends the connection.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "collectives/exec/transports/frame.h"
#include "collectives/exec/waiter.h"

namespace xlad::collectives {

// Memory for the payload of a message. If `owned` is null, it is memory of the receiver, and the message is received in
// place.
struct FrameBuffer {
  std::byte* data = nullptr;
  size_t capacity = 0;
  std::unique_ptr<std::byte[]> owned;
};

// Receives the frames that arrive.
class FrameSink {
 public:
  virtual ~FrameSink() = default;
  // Called when the head of a message has arrived. Returns memory for head.bytes bytes, which the path keeps until
  // OnFrame, or an error if the message is not allowed.
  virtual absl::StatusOr<FrameBuffer> OnHead(const FrameHead& head) = 0;
  // Called when a frame is complete. `payload` is the memory that OnHead returned, with the payload, and empty for a
  // frame that is not a message.
  virtual void OnFrame(const FrameHead& head, FrameBuffer payload) = 0;
};

class FramePath {
 public:
  virtual ~FramePath() = default;

  // Sends a frame, and its payload if it is a message. While there is no room, waits and receives frames. Returns 0 if
  // the memory of the pieces may be reused at once, otherwise a number for IsSent.
  virtual absl::StatusOr<uint64_t> Send(const FrameHead& head, absl::Span<const ConstPiece> pieces) = 0;
  // Whether a frame without payload can be sent now without waiting.
  virtual bool CanSend() = 0;
  // Whether the memory of an earlier Send may be reused.
  virtual bool IsSent(uint64_t number) = 0;
  // Passes the frames that have arrived to the sink. Does not wait. Returns kMade if a part of a frame has been
  // received, or if the path has noticed that a frame of an earlier Send has been sent. Returns kReported if only the
  // path's library says that it has made progress.
  virtual absl::StatusOr<Progress> Receive(FrameSink* sink) = 0;
  // Called once, after the abort signal was raised. When it returns, the path no longer accesses memory of its caller.
  // The path must not be used after this call.
  virtual void Revoke() = 0;
};

}  // namespace xlad::collectives
