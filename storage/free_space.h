// Refuses uploads that would fill the disk of the coordinator, which needs a part of it for its log.
#pragma once

#include <cstdint>
#include <string>

#include "base/file_system.h"

namespace xlad::storage {

// For one upload. Used by one thread.
class FreeSpace {
 public:
  static constexpr int64_t kCheckBytes = 16 << 20;  // The free space is read again after this many bytes.

  // `folder` is on the disk. No space is kept if `reserve_bytes` is 0.
  FreeSpace(FileSystem& files, std::string folder, int64_t reserve_bytes)
      : files_(files), folder_(std::move(folder)), reserve_bytes_(reserve_bytes) {}

  // To be called before the next bytes are written; `written` is the number of those written so far. ResourceExhausted,
  // with both sizes and the folder, if the disk has no space for kCheckBytes beside the reserve.
  absl::Status Check(int64_t written);

 private:
  FileSystem& files_;
  const std::string folder_;
  const int64_t reserve_bytes_;
  int64_t next_check_ = 0;
};

}  // namespace xlad::storage
