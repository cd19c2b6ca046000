// The memory of one device for a program: every allocation of its executable, and how results become parameters.
#pragma once

#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "collectives/exec/host/host_memory.h"
#include "proto/executable.pb.h"
#include "proto/job.pb.h"
#include "proto/xlad_v1.h"
#include "runtime/device.h"
#include "runtime/slice.h"

namespace xlad::runtime {

// Which results become which parameters of the next step. A result that shares its parameter's memory (donation) needs
// no work. If a result and its parameter each fill an allocation, these allocations exchange their memory, unless the
// exchanges for other results prevent this. In all other cases, the bytes of the result are copied.
//
// Example: allocation 0 is parameter w, allocation 1 is the new w, and result 0 feeds parameter 0. Then block_from is
// {1, 0}: after each step the two allocations exchange their memory, and nothing is copied.
struct FeedPlan {
  std::vector<int> block_from;  // For each allocation, the allocation whose memory it gets for the next step.
  struct Copy {
    Slice from;
    Slice to;
  };
  std::vector<Copy> copies;    // Made before the allocations exchange their memory.
  // State in donated memory that no result feeds. Its first value is restored before each step.
  std::vector<Slice> restore;
};

// InvalidArgument if the executable's entry and the spec do not match. Unimplemented if one result must be copied and
// another one exchanged in the same allocation.
absl::StatusOr<FeedPlan> PlanFeeds(const Executable& executable, const JobSpec& spec);

// Allocates a program's buffers on the device. If the device's memory is host memory that other processes can map, the
// buffers are in the arena that is shared with these processes.
class MemorySource {
 public:
  // `shared` may be null, and is not used if it has no arena. Both must outlive the memory.
  MemorySource(Device* device, collectives::HostMemory* shared = nullptr)  // NOLINT: a device is a source.
      : device_(device), shared_(shared != nullptr && shared->has_arena() ? shared : nullptr) {}
  absl::StatusOr<std::unique_ptr<DeviceMemory>> Allocate(int64_t bytes, MemoryKind kind = MEMORY_DEVICE) const;

 private:
  Device* device_;
  collectives::HostMemory* shared_;
};

// All work is enqueued on the stream passed to Allocate. Used by one thread at a time.
class DeviceBuffers {
 public:
  // `constants` has the address of every CONSTANT allocation, and null for the others (see MakeConstants). `stream`
  // must be of the device of `source`. The constants, `plan` and `stream` must outlive the buffers.
  static absl::StatusOr<std::unique_ptr<DeviceBuffers>> Allocate(const MemorySource& source, Stream* stream,
                                                                 const Executable& executable, const FeedPlan& plan,
                                                                 const std::vector<std::byte*>& constants);

  // Waits for the work on the stream, which may use the memory.
  ~DeviceBuffers() { stream_->Synchronize().IgnoreError(); }

  // Device addresses by allocation. They change with FeedBack.
  absl::Span<std::byte* const> addresses() const { return addresses_; }
  std::byte* AddressOf(const Slice& slice) const { return addresses_[slice.allocation] + slice.offset; }
  Stream& stream() const { return *stream_; }

  // Copies host bytes to the beginning of a slice; `from` may be reused at once.
  absl::Status Write(const Slice& to, absl::Span<const std::byte> from);
  // Copies the beginning of a slice to the host and returns when `to` has its contents.
  absl::Status Read(const Slice& from, absl::Span<std::byte> to) const;

  // Copies the first value of the state that RestoreState restores. Call it once, when the first state has been
  // written.
  absl::Status SaveState();
  // Writes the first value of that state again. Call it before every step.
  absl::Status RestoreState();
  // Makes results the parameters of the next step. Call it after every step.
  absl::Status FeedBack();

 private:
  DeviceBuffers(Stream* stream, const FeedPlan& plan) : stream_(stream), plan_(plan) {}

  Stream* const stream_;
  const FeedPlan& plan_;
  std::vector<std::unique_ptr<DeviceMemory>> memory_;
  std::vector<std::byte*> addresses_;
  std::vector<std::byte*> next_addresses_;
  std::vector<std::unique_ptr<DeviceMemory>> saved_;   // In the order of plan_.restore.
  std::vector<std::unique_ptr<DeviceMemory>> staged_;  // In the order of plan_.copies.
};

// Device memory with the contents of every CONSTANT allocation.
struct Constants {
  std::vector<std::unique_ptr<DeviceMemory>> memory;
  std::vector<std::byte*> addresses;  // One per allocation, null if the allocation is not CONSTANT.
};
// Returns when all contents have been written. All shards on the device may share the constants.
absl::StatusOr<Constants> MakeConstants(Device* device, const Executable& executable);

}  // namespace xlad::runtime
