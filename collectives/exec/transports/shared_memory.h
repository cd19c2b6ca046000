// Memory that two processes of one machine share, and a pair of byte rings in it.
//
// Segments are anonymous files of the process that makes them, found by others through /proc: they are gone with their
// last mapping, however the processes end.
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

// Equal in processes that can open each other's segments, as far as can be told: one boot of one machine, one space of
// process numbers. Empty: there is no telling.
std::string MachineName();

class SharedSegment {
 public:
  // Zeros. Its size never changes.
  static absl::StatusOr<std::unique_ptr<SharedSegment>> Create(size_t bytes);
  // One that Create made, by its name; NotFound or InvalidArgument where it is not there, or not what it should be.
  static absl::StatusOr<std::unique_ptr<SharedSegment>> Open(const std::string& name, size_t bytes);
  ~SharedSegment();

  const std::string& name() const { return name_; }  // "PID/FD/NONCE"
  size_t bytes() const { return mapped_ - 64; }
  // Behind the segment's own first line of 64 bytes.
  std::byte* data() const { return static_cast<std::byte*>(address_) + 64; }

 private:
  SharedSegment() = default;
  absl::Status Map(size_t bytes);

  int file_ = -1;  // Of the process that made it.
  std::string name_;
  void* address_ = nullptr;
  size_t mapped_ = 0;
};

// The waiting words of a worker's devices, one after the other on lines of their own.
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

// Two rings between two devices, seen from one side. Used by that device's thread alone.
//
// Nothing that the other side writes is trusted: positions that cannot be are DataLoss.
class SharedPipe {
 public:
  // The dialing side: makes the segment. `waiters`: this side's own, `index` that of the device.
  static absl::StatusOr<std::unique_ptr<SharedPipe>> Create(const SharedWaiters& waiters, int index,
                                                            size_t ring_bytes);
  // The accepting side: maps the segment `name` and leaves its own waiting words in it.
  static absl::StatusOr<std::unique_ptr<SharedPipe>> Open(const std::string& name, const SharedWaiters& waiters,
                                                          int index);
  // The dialing side, when the other side has opened it.
  absl::Status Connect();

  const std::string& name() const { return segment_->name(); }

  // As much as there is room for; how much that was.
  absl::StatusOr<size_t> Write(absl::Span<const std::byte> bytes);
  absl::StatusOr<size_t> Room() const;
  // Has the other side notify this one when it makes room.
  void WantRoom(bool wanted);
  // As much as there is.
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
