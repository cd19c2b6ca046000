// Memory that two processes of one machine share, and a pair of byte rings in it.
//
// Segments are anonymous files (memfd) of the process that creates them, which other processes open through /proc. The
// system frees them with their last mapping, no matter how the processes end.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/types/span.h"
#include "base/status.h"
#include "collectives/exec/waiter.h"

namespace xlad::collectives {

// Returns a name that is equal in processes that can probably open each other's segments: same boot of the same
// machine, same process namespace. Empty if it cannot be determined.
std::string MachineName();

class SharedSegment {
 public:
  // Creates a segment of zeros. Its size never changes.
  static absl::StatusOr<std::unique_ptr<SharedSegment>> Create(size_t bytes);
  // Opens a segment by the name that Create gave it. NotFound if it does not exist, InvalidArgument if it is not one.
  static absl::StatusOr<std::unique_ptr<SharedSegment>> Open(const std::string& name, size_t bytes);
  ~SharedSegment();

  const std::string& name() const { return name_; }  // "PID/FD/NONCE"
  size_t bytes() const { return mapped_ - 64; }
  // The data starts after a header of 64 bytes.
  std::byte* data() const { return static_cast<std::byte*>(address_) + 64; }

 private:
  SharedSegment() = default;
  absl::Status Map(size_t bytes);

  int file_ = -1;  // Set in the process that created the segment.
  std::string name_;
  void* address_ = nullptr;
  size_t mapped_ = 0;
};

// The WaiterWords of a worker's devices, each on a separate cache line.
class SharedWaiters {
 public:
  static constexpr size_t kLine = 64;
  static absl::StatusOr<std::unique_ptr<SharedWaiters>> Create(int devices);
  const std::string& name() const { return segment_->name(); }
  WaiterWords* words(int index) const { return reinterpret_cast<WaiterWords*>(segment_->data() + index * kLine); }
  int devices() const { return devices_; }

 private:
  std::unique_ptr<SharedSegment> segment_;
  int devices_ = 0;
};

// One side of a pair of byte rings between two devices. Used by the thread of that device only.
//
// Positions written by the other side are checked: impossible ones are DataLoss.
class SharedPipe {
 public:
  // The dialing side creates the segment. `waiters` are those of this side, `index` is that of the device.
  static absl::StatusOr<std::unique_ptr<SharedPipe>> Create(const SharedWaiters& waiters, int index, size_t ring_bytes);
  // The accepting side maps the segment `name` and stores the name of its waiters in it.
  static absl::StatusOr<std::unique_ptr<SharedPipe>> Open(const std::string& name, const SharedWaiters& waiters,
                                                          int index);
  // Called by the dialing side when the other side has opened the segment.
  absl::Status Connect();

  const std::string& name() const { return segment_->name(); }

  // Writes as much as there is room for and returns the number of bytes.
  absl::StatusOr<size_t> Write(absl::Span<const std::byte> bytes);
  absl::StatusOr<size_t> Room() const;
  // Makes the other side notify this one when it has read, so that there is room.
  void WantRoom(bool wanted);
  // Reads as much as there is and returns the number of bytes.
  absl::StatusOr<size_t> Read(absl::Span<std::byte> bytes);
  absl::StatusOr<size_t> Readable() const;
  // Wakes the other side's device.
  void NotifyPeer() { NotifyWords(peer_words_, /*shared=*/true); }

 private:
  struct Ring;
  struct Head;

  SharedPipe() = default;
  static size_t SegmentBytes(size_t ring_bytes);
  absl::Status MapRings(size_t ring_bytes, int side);
  absl::Status MapPeer(int side);

  std::unique_ptr<SharedSegment> segment_;
  std::unique_ptr<SharedSegment> peer_waiters_;
  WaiterWords* peer_words_ = nullptr;
  Ring* out_ = nullptr;
  Ring* in_ = nullptr;
  std::byte* out_bytes_ = nullptr;
  std::byte* in_bytes_ = nullptr;
  size_t ring_bytes_ = 0;
};

}  // namespace xlad::collectives
