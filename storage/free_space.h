// Rejects uploads that would fill the coordinator's disk. A part of the disk is reserved for the coordinator's log.
#pragma once

#include <cstdint>
#include <string>

#include "base/file_system.h"

namespace xlad::storage {

// Checks one upload. Used by one thread.
class FreeSpace {
 public:
  static constexpr int64_t kCheckBytes = 16 << 20;  // The free space is read again after this many bytes.

  // `folder` is a folder on the disk. If `reserve_bytes` is 0, Check always succeeds.
  FreeSpace(FileSystem& files, std::string folder, int64_t reserve_bytes)
      : files_(files), folder_(std::move(folder)), reserve_bytes_(reserve_bytes) {}

  // Call this before writing the next bytes; `written` is the number of bytes written so far. ResourceExhausted if the
  // disk has no space for kCheckBytes in addition to the reserve. The message contains the free space, the reserve and
  // the folder.
  absl::Status Check(int64_t written);

 private:
  FileSystem& files_;
  const std::string folder_;
  const int64_t reserve_bytes_;
  int64_t next_check_ = 0;
};

}  // namespace xlad::storage
