// What travels on a connection between two devices: a hello and its answer, then frames.
#pragma once

#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "base/network.h"
#include "collectives/exec/transport.h"

namespace xlad::collectives {

enum class FrameKind : uint32_t {
  kMessage = 1,   // A message of a link: header, then `bytes` of payload.
  kReleased = 2,  // The receiver released `count` messages of channel `channel`.
  kAbort = 3,     // The task failed there; payload: worker id of the suspect, a line end, the error.
  kBye = 4,       // The task is finished there; nothing follows.
};

// The fixed start of every frame, as it lies in memory (little-endian hosts only).
struct FrameHead {
  uint32_t magic = kFrameMagic;
  FrameKind kind = FrameKind::kMessage;
  uint32_t channel = 0;
  uint32_t count = 0;
  uint64_t bytes = 0;
  MessageHeader message;

  static constexpr uint32_t kFrameMagic = 0x786c6131;  // "1alx"
};
static_assert(sizeof(FrameHead) == 64);

constexpr uint64_t kMaxReasonBytes = 16 * 1024;

// A whole kAbort frame; a longer reason is cut.
std::string AbortFrame(const Failure& failure);

// Reads exactly bytes.size() bytes; Unavailable where the peer ends before.
absl::Status ReadFully(Connection* connection, absl::Span<std::byte> bytes);

// A serialised message with its length in front, at most 64 KiB.
absl::Status WriteBlock(Connection* connection, const std::string& block);
absl::StatusOr<std::string> ReadBlock(Connection* connection);

inline absl::Span<const std::byte> AsBytes(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

}  // namespace xlad::collectives
