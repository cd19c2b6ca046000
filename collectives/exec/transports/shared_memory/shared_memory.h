// Memory that two processes of one machine share, and pairs of byte rings in such memory.
//
// Segments are anonymous files (memfd) of the process that creates them. Other processes open them through /proc. The
// system frees a segment with its last mapping, no matter how the processes end.
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

// Returns a name that is equal in processes that can probably open each other's segments, because they run in the same
// boot of the same machine and in the same PID namespace. Returns an empty name if these cannot be determined.
std::string MachineName();

class SharedSegment {
 public:
  // Creates a segment of zeros. Its size never changes.
  static absl::StatusOr<std::unique_ptr<SharedSegment>> Create(size_t bytes);
  // Opens a segment by the name that Create gave it. If `bytes` is not 0, the segment must have this size. Unavailable
  // if the segment cannot be opened, for example because its process has ended. NotFound if the name belongs to another
  // segment now. InvalidArgument if the name is malformed, or if the file is not a segment of this size.
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

// One side of a pair of byte rings between two devices. Only the thread of the device on this side may use it.
//
// Positions written by the other side are checked: an impossible position is DataLoss.
class SharedPipe {
 public:
  // Creates the segment on the dialing side. `waiters` belongs to this side, and `index` is the device's index in it.
  static absl::StatusOr<std::unique_ptr<SharedPipe>> Create(const SharedWaiters& waiters, int index, size_t ring_bytes);
  // Maps the segment `name` on the accepting side, and stores the name of the waiters of this side in it.
  static absl::StatusOr<std::unique_ptr<SharedPipe>> Open(const std::string& name, const SharedWaiters& waiters,
                                                          int index);
  // Called by the dialing side when the other side has opened the segment.
  absl::Status Connect();

  const std::string& name() const { return segment_->name(); }

  // Writes as many bytes as there is room for, and returns their number.
  absl::StatusOr<size_t> Write(absl::Span<const std::byte> bytes);
  absl::StatusOr<size_t> Room() const;
  // While `wanted` is true, the other side notifies this side whenever it has read bytes and so has made room.
  void WantRoom(bool wanted);
  // Reads the available bytes, at most bytes.size(), and returns their number.
  absl::StatusOr<size_t> Read(absl::Span<std::byte> bytes);
  absl::StatusOr<size_t> Readable() const;
  // Wakes the other side's device.
  void NotifyPeer() { NotifyWords(peer_words_, /*shared=*/true); }

 private:
  struct Ring;
  struct Head;

  SharedPipe() = default;
  static size_t SegmentBytes(size_t ring_bytes);
  void MapRings(size_t ring_bytes, int side);
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
