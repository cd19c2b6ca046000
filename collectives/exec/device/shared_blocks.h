// The device memory that devices of several processes share while they run schedules.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "collectives/exec/device_ops.h"
#include "collectives/exec/ranges.h"
#include "collectives/exec/text_links.h"

namespace xlad::collectives {

// One block of shared memory of this device, and the blocks of its peers, which this device reads. Messages between the
// devices name ranges of the sender's block. Only the thread of the device may use this object.
class SharedBlocks {
 public:
  SharedBlocks(DeviceOps* ops, int device) : ops_(*ops), device_(device) {}

  // Allocates a block of `bytes` bytes, and opens the blocks of the peers, except for those in `direct`, whose memory
  // this device can access by their addresses. All peers must call Exchange too. Returns only errors of `links`; those
  // of the devices become problems.
  absl::Status Exchange(const std::set<int>& peers, const std::set<int>& direct, int64_t bytes, TextLinks* links);
  // Why the device or a peer cannot share memory with all of its peers, or empty. All devices of a group know the
  // same problems of its members.
  const std::string& ProblemOf(int device) const { return problems_.at(device); }

  std::byte* own() const { return own_.get(); }
  // Returns the payload of a message that names these pieces of the own block. It is kept for later messages of the
  // same `sender`, an operation of a schedule whose pieces are always the same.
  ConstPiece Payload(const void* sender, const Pieces& pieces);
  // Returns the pieces of the peer's block that a message names. DataLoss if they are not in the block.
  absl::StatusOr<Pieces> Resolve(int peer, const Incoming& message) const;
  // Frees the own block and closes those of the peers. No collective may use them any more.
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
  std::shared_ptr<std::byte> own_;
  std::map<int, Block> blocks_;          // By peer.
  std::map<int, std::string> problems_;  // By device, including this one.
  std::map<const void*, std::vector<Range>> payloads_;
};

}  // namespace xlad::collectives
