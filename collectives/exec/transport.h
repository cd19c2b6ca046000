// Moves messages between two devices. A transport is a folder in transports/ and a row in transports/registry/.
//
// A link carries messages in one direction between two devices on one channel. Delivery is ordered and reliable. Every
// message occupies a slot of the link from the time when it is sent until the receiver releases it. The number of slots
// is bounded. Devices are identified by mesh position.
//
// Threads: only the thread of a device may call its transport and its links. Ownership: a transport owns its links.
// Posted memory belongs to the sender and is borrowed until the message is released. Memory that is posted for a
// receive belongs to the receiver and is borrowed until the following call of Next returns. Errors: a call returns the
// status of the task's AbortSignal if that is raised, and FailedPrecondition if the peer has finished. After an error
// all later calls fail, and the sender must raise the signal and call Revoke before it frees posted memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/types/span.h"
#include "base/status.h"
#include "collectives/exec/abort.h"

namespace xlad::collectives {

// Identifies a message. The receiver compares it with what it expects before it uses the message.
struct MessageHeader {
  int64_t step = 0;            // The step of the job.
  uint64_t iteration = 0;      // A fingerprint of the counters of the enclosing loops.
  uint64_t schedule_hash = 0;  // The ScheduleHash of the plan.
  uint32_t spec = 0;           // The index into Executable.collectives.
  uint32_t sequence = 0;       // The number of earlier runs of this collective, modulo 2^32.
  uint32_t index = 0;          // The index of the message within this run and link.
  uint32_t checksum = 0;       // The PayloadChecksum of the payload, or 0 if the message has none.
  friend bool operator==(const MessageHeader&, const MessageHeader&) = default;
};

// Returns a description of a message of `bytes` bytes: "collective 3 (schedule 0123456789abcdef), step 7, ...".
std::string DescribeMessage(const MessageHeader& header, int64_t bytes);

using ConstPiece = absl::Span<const std::byte>;

// A received message. The payload is the concatenation of its pieces.
struct Incoming {
  MessageHeader header;
  absl::Span<const ConstPiece> pieces;
  int64_t bytes = 0;
};

class SendLink {
 public:
  virtual ~SendLink() = default;
  // Sends the pieces as one message. Waits while all slots are in use. The memory must stay unchanged until the message
  // is released.
  virtual absl::Status Post(const MessageHeader& header, absl::Span<const ConstPiece> pieces) = 0;
  // Waits until the first `messages` messages of this link are released. Their memory may then be reused.
  virtual absl::Status WaitReleased(int64_t messages) = 0;
  // May be called only after the abort signal was raised. When it returns, no receiver is reading the memory of this
  // link's messages, and none will read it later.
  virtual void Revoke() = 0;
};

class ReceiveLink {
 public:
  virtual ~ReceiveLink() = default;
  // Whether PostInto has an effect.
  virtual bool ReceivesInPlace() const { return false; }
  // Offers memory for the message that the following call of Next returns. If the message has not begun to arrive and
  // has exactly memory.size() bytes, it is received in this memory without a copy, and the memory is its only piece.
  virtual void PostInto(absl::Span<std::byte> memory) {}
  // Waits for the next message. The message stays valid until it is released; several messages may be held at once.
  virtual absl::StatusOr<Incoming> Next() = 0;
  // Releases the oldest message that is held. Every message that Next returned must be released, even after an error.
  virtual absl::Status Release() = 0;
};

enum class MemoryKind { kHost, kPinned, kDevice };

// Memory that a transport has prepared for its transfers until this object is destroyed. The memory belongs to the
// caller and must outlive this object.
class RegisteredMemory {
 public:
  RegisteredMemory(absl::Span<std::byte> memory, MemoryKind kind) : memory_(memory), kind_(kind) {}
  virtual ~RegisteredMemory() = default;
  RegisteredMemory(const RegisteredMemory&) = delete;
  RegisteredMemory& operator=(const RegisteredMemory&) = delete;
  absl::Span<std::byte> memory() const { return memory_; }
  MemoryKind kind() const { return kind_; }
  // The key with which peers open the memory in OpenWindow; empty if they cannot access it.
  virtual std::string key() const { return ""; }

 private:
  const absl::Span<std::byte> memory_;
  const MemoryKind kind_;
};

// All links of one device.
class Transport {
 public:
  virtual ~Transport() = default;
  // Prepares memory of the device for transfers. Unregistered host memory can be posted too. Unimplemented for kinds of
  // memory that the transport cannot read.
  virtual absl::StatusOr<std::unique_ptr<RegisteredMemory>> Register(absl::Span<std::byte> memory, MemoryKind kind);
  // Maps memory of a peer, given the key of its registration, so that this process can read and write it. The peer must
  // keep the memory registered. NotFound if no memory of the peer is registered with this key. Unimplemented if the
  // transport cannot map memory; data must then be sent as messages.
  virtual absl::StatusOr<absl::Span<std::byte>> OpenWindow(int peer, const std::string& key);
  // Transfers what can be transferred without waiting. Calls that wait do the same, so Poll is useful only while a
  // device computes.
  virtual void Poll() {}
  // Returns the same link for the same arguments. Waits for the peer if a new connection is needed. InvalidArgument if
  // the transport does not connect the device to `peer`, or if the channel is not less than kMaxChannels.
  virtual absl::StatusOr<SendLink*> OpenSend(int peer, int channel) = 0;
  virtual absl::StatusOr<ReceiveLink*> OpenReceive(int peer, int channel) = 0;
  // Returns a description of a peer for error messages: "device 3 (worker w2, host node7, pid 4711)".
  virtual std::string Describe(int peer) const = 0;
};

constexpr int kMaxChannels = 1 << 20;
// The channels of a task. For each of them, there are two other channels: one from kDeviceChannels on, which carries
// the messages of schedules that run in shared device memory, and one from kReadChannels on, which says how many of
// these messages have been read.
constexpr int kMaxTaskChannels = kMaxChannels / 4;
constexpr int kDeviceChannels = kMaxChannels / 2;
constexpr int kReadChannels = kDeviceChannels + kMaxTaskChannels;
static_assert(kMaxTaskChannels <= kDeviceChannels && kReadChannels + kMaxTaskChannels <= kMaxChannels);

// Schedules in shared device memory need links with at least this number of slots.
constexpr int kMinDeviceSlots = 2;

// Each communicator of a fabric has channels of its own (Fabric::ReserveChannels). The first of these are used while
// the communicator forms: to compare schedules, to agree on how the devices of a host share memory, and to send the ids
// of groups that a library connects.
constexpr int kFormChannel = 0;
constexpr int kHostChannel = 1;
constexpr int kLibraryChannel = 2;
constexpr int kFirstDataChannel = 3;

}  // namespace xlad::collectives
