// The wire format of a connection between two devices: a hello and its answer, then frames. The hello of a worker whose
// task has failed gets no answer; a kAbort frame follows it.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/net/network.h"
#include "collectives/exec/transport.h"

namespace xlad::collectives {

enum class FrameKind : uint32_t {
  kMessage = 1,   // A message of a link: this head, the message's header, then `bytes` bytes of payload.
  kReleased = 2,  // The receiver has released `count` messages of channel `channel`.
  kAbort = 3,     // The sender's task has failed. `count` is the code of the error. See AbortFrame for the payload.
  kBye = 4,       // The sender's task has finished; no frame follows. `bytes` counts the frames sent on its FramePath.
};

// The fixed start of every frame, in memory order (little-endian hosts only).
struct FrameHead {
  uint32_t magic = kFrameMagic;
  FrameKind kind = FrameKind::kMessage;
  uint32_t channel = 0;
  uint32_t count = 0;
  uint64_t bytes = 0;
  MessageHeader message;

  static constexpr uint32_t kFrameMagic = 0x786c6131;  // The bytes "1alx" in memory.
};
static_assert(sizeof(FrameHead) == 64);

// Returns DataLoss unless the frame may be sent over a FramePath, which carries only messages and releases.
absl::Status CheckPathFrame(const FrameHead& head);

constexpr uint64_t kMaxReasonBytes = 16 * 1024;

// Returns a complete kAbort frame. Its payload is the worker id of the suspect, a newline and the message of the error,
// truncated to kMaxReasonBytes.
std::string AbortFrame(const Failure& failure);

// Reads exactly bytes.size() bytes. Unavailable if the connection ends first.
absl::Status ReadFully(Connection* connection, absl::Span<std::byte> bytes);

// Writes or reads a serialized message with a length prefix. InvalidArgument if the message has more than 64 KiB.
// WriteBlock then writes nothing.
absl::Status WriteBlock(Connection* connection, const std::string& block);
absl::StatusOr<std::string> ReadBlock(Connection* connection);
// Answers the hello of a peer with the reason for which it is refused (PeerWelcome.refused). Ignores errors, because
// the connection is not used any more.
void RefusePeer(Connection* connection, absl::string_view why);

inline absl::Span<const std::byte> AsBytes(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

}  // namespace xlad::collectives
