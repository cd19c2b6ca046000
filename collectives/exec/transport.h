// Moves messages between two devices.
//
// A link is one direction between two devices on one channel: ordered, reliable, with a bounded number of messages
// that are sent and not yet released by the receiver. Devices are mesh positions.
//
// Threads: all calls on a device's transport and its links come from that device's one thread.
// Ownership: a transport owns its links; it outlives every use of them.
// Errors: a call that cannot go on returns the status of the task's AbortSignal, or, where the peer has finished in
// good order, FailedPrecondition. After an error links stay in error; the sender must Revoke before it frees memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/types/span.h"
#include "base/status.h"
#include "collectives/exec/abort.h"

namespace xlad::collectives {

// What both sides must agree on before a message is used.
struct MessageHeader {
  int64_t step = 0;            // Of the job.
  uint64_t iteration = 0;      // Fingerprint of the counters of the loops around the collective.
  uint64_t schedule_hash = 0;  // Of all ranks' schedules.
  uint32_t spec = 0;           // Index into Executable.collectives.
  uint32_t sequence = 0;       // How often this collective ran before, modulo 2^32.
  uint32_t index = 0;          // Of the message among those of this operation on this link.
  uint32_t reserved = 0;
  friend bool operator==(const MessageHeader&, const MessageHeader&) = default;
};

using ConstPiece = absl::Span<const std::byte>;

// A received message; its pieces, one after the other, are the payload.
struct Incoming {
  MessageHeader header;
  absl::Span<const ConstPiece> pieces;
  int64_t bytes = 0;
};

class SendLink {
 public:
  virtual ~SendLink() = default;
  // Sends the pieces as one message; waits while the link's slots are full. The memory must stay unchanged until
  // WaitReleased says so.
  virtual absl::Status Post(const MessageHeader& header, absl::Span<const ConstPiece> pieces) = 0;
  // Until the memory of the first `messages` messages of this link is free for other use.
  virtual absl::Status WaitReleased(int64_t messages) = 0;
  // After the abort signal was raised: returns once no receiver reads memory of this link's messages, nor will.
  virtual void Revoke() = 0;
};

class ReceiveLink {
 public:
  virtual ~ReceiveLink() = default;
  // The next message. It stays valid until it is released; several may be held.
  virtual absl::StatusOr<Incoming> Next() = 0;
  // Gives back the oldest message that Next returned and that was not released yet. Whoever got a message must do
  // so, after errors too.
  virtual absl::Status Release() = 0;
};

// One device's way to the others.
class Transport {
 public:
  virtual ~Transport() = default;
  // The same link for the same arguments. Waits for the peer where a connection must be made.
  virtual absl::StatusOr<SendLink*> OpenSend(int peer, int channel) = 0;
  virtual absl::StatusOr<ReceiveLink*> OpenReceive(int peer, int channel) = 0;
  // "device 3 (worker w2, host node7, pid 4711)": for messages about the peer.
  virtual std::string Describe(int peer) const = 0;
};

constexpr int kMaxChannels = 1 << 14;
// The channel on which communicators compare what they are about to do.
constexpr int kFormChannel = kMaxChannels - 1;

}  // namespace xlad::collectives
