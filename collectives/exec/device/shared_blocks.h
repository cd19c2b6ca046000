// The device memory that devices of several processes share while they run schedules.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "collectives/exec/device_ops.h"
#include "collectives/exec/ranges.h"
#include "collectives/exec/text_links.h"

namespace xlad::collectives {

// A block of shared memory of one device. The programs of the device use it one after the other: their calls of
// BeginRun and EndRun must not overlap, because `stream` and `used` are not locked. A stream must be synchronized
// before it is destroyed (~DeviceCommunicator does this), because `stream` may later be equal to the address of another
// stream.
struct SharedBlock {
  DeviceOps::SharedMemory memory;
  int64_t bytes = 0;
  const DeviceOps* stream = nullptr;  // The stream of the last run. It may have been destroyed.
  std::shared_ptr<const Event> used;  // The end of the last run.
};

// The blocks of the devices of one process. Thread-safe.
class SharedBlockPool {
 public:
  // Returns the newest block of the device if it has at least `bytes` bytes, and otherwise a new one. A block is freed
  // with the last reference. If a program needs more than all earlier ones, its block is at least a quarter larger than
  // theirs. So all blocks together, even if none is freed, are less than 6.25 times as large as the largest one must
  // be, and the largest one is at most a quarter larger than it must be. If there is not enough memory for this
  // quarter, the block has exactly `bytes` bytes. The first of the two limits then does not hold if memory is freed
  // before a later program needs more. Errors: those of DeviceOps::AllocateShared.
  absl::StatusOr<std::shared_ptr<SharedBlock>> Get(int device, int64_t bytes, DeviceOps* ops);

 private:
  struct Newest {
    std::weak_ptr<SharedBlock> block;
    int64_t bytes = 0;  // The size, even after the block has been freed.
  };
  std::mutex mutex_;
  std::map<int, Newest> newest_;  // By device.
};

// The block of this device, and the blocks of its peers, which this device reads. Messages between the devices name
// ranges of the sender's block. Only the thread of the device may use this object.
class SharedBlocks {
 public:
  SharedBlocks(DeviceOps* ops, int device, SharedBlockPool* pool) : ops_(*ops), device_(device), pool_(pool) {}

  // Gets a block of `bytes` bytes from the pool, and opens the blocks of the peers, except for those in `direct`, whose
  // memory this device can access by their addresses. All peers must call Exchange too. Returns only errors of `links`;
  // those of the devices become problems.
  absl::Status Exchange(const std::set<int>& peers, const std::set<int>& direct, int64_t bytes, TextLinks* links);
  // Why the device or a peer cannot share memory with all of its peers, or empty. All devices of a group know the
  // same problems of its members.
  const std::string& ProblemOf(int device) const { return problems_.at(device); }

  std::byte* own() const { return own_->memory.address.get(); }
  // Makes the stream wait for the last run of another program on the own block. Called before each run, and EndRun
  // after it.
  absl::Status BeginRun();
  absl::Status EndRun();
  // Returns the payload of a message that names the pieces of the own block that `pieces_of` returns. It is kept for
  // later messages of the same `sender`, an operation of a schedule whose pieces are always the same.
  ConstPiece Payload(const void* sender, absl::FunctionRef<Pieces()> pieces_of);
  // Returns the pieces of the peer's block that a message names. DataLoss if they are not in the block.
  absl::StatusOr<Pieces> Resolve(int peer, const Incoming& message) const;
  // Releases the own block and closes those of the peers. No collective may use them any more.
  void Drop();
  // Keeps the own block until the process ends, because a peer may still read it after a failure.
  void KeepOwn();

 private:
  struct Range {
    int64_t offset = 0, bytes = 0;
  };
  struct Block {
    std::shared_ptr<std::byte> address;
    int64_t bytes = 0;
  };
  absl::Status Open(int peer, const std::string& offer);

  DeviceOps& ops_;
  const int device_;
  SharedBlockPool* const pool_;
  std::shared_ptr<SharedBlock> own_;     // Null if the device cannot share memory.
  std::map<int, Block> blocks_;          // By peer.
  std::map<int, std::string> problems_;  // By device, including this one.
  std::map<const void*, std::vector<Range>> payloads_;
};

}  // namespace xlad::collectives
