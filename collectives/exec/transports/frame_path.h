// A way for the frames of one connection between two devices that is not the connection's socket: memory that both
// processes map, or a library that is loaded as a plugin. The socket then carries only the end of the task and aborts,
// and detects the end of the peer's process.
//
// Frames are delivered in the order in which they were sent, each once. Threads: the device's thread only, unless a
// function says otherwise. Errors: an error of Send or Receive ends the connection.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "collectives/exec/transports/frame.h"

namespace xlad::collectives {

// Memory for the payload of a message: owned, or memory of the receiver into which the message is received in place.
struct FrameBuffer {
  std::byte* data = nullptr;
  size_t capacity = 0;
  std::unique_ptr<std::byte[]> owned;
};

// Takes the frames that arrive.
class FrameSink {
 public:
  virtual ~FrameSink() = default;
  // The head of a message has arrived. Returns memory for head.bytes bytes, which the path keeps until OnFrame. An
  // error if such a message is not allowed.
  virtual absl::StatusOr<FrameBuffer> OnHead(const FrameHead& head) = 0;
  // A frame is complete. `payload` is what OnHead returned, with the payload; empty for a frame that is not a message.
  virtual void OnFrame(const FrameHead& head, FrameBuffer payload) = 0;
};

class FramePath {
 public:
  virtual ~FramePath() = default;

  // Sends a frame, and its payload if it is a message. Waits while there is no room; meanwhile frames are received.
  // Returns 0 if the memory of the pieces may be reused at once, otherwise a number for IsSent.
  virtual absl::StatusOr<uint64_t> Send(const FrameHead& head, absl::Span<const ConstPiece> pieces) = 0;
  // Whether a frame without payload can be sent now without waiting.
  virtual bool CanSend() = 0;
  // Whether the memory of an earlier Send may be reused.
  virtual bool IsSent(uint64_t number) = 0;
  // Passes the frames that have arrived to the sink. Never waits.
  virtual absl::Status Receive(FrameSink* sink) = 0;
  // Called once, after the abort signal was raised: when it returns, the path neither reads nor writes memory that is
  // not its own, and it is not used again.
  virtual void Revoke() = 0;
};

}  // namespace xlad::collectives
