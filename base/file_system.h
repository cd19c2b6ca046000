// Files as an interface, so that tests can inject disk faults and simulations can run without a disk.
//
// Relative paths are relative to the working directory of the process. Errors contain the path and the system's reason;
// a missing file is NotFound, a full disk ResourceExhausted. Thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/status.h"

namespace xlad {

class FileSystem {
 public:
  virtual ~FileSystem() = default;

  // All bytes of a file, pipe or device. InvalidArgument for a directory.
  virtual absl::StatusOr<std::string> Read(const std::string& path) = 0;
  // The bytes [offset, offset + size). DataLoss if the file ends before them.
  virtual absl::StatusOr<std::string> ReadRange(const std::string& path, int64_t offset, int64_t size) = 0;
  // In bytes. InvalidArgument for a directory.
  virtual absl::StatusOr<int64_t> Size(const std::string& path) = 0;
  // Replaces the file, or leaves it as it was if anything fails, even a crash: writes a temporary file in the same
  // directory, then fsync, rename and fsync of the directory. Follows symbolic links. Devices and pipes are written to
  // directly.
  virtual absl::Status WriteAtomically(const std::string& path, absl::string_view bytes) = 0;
  virtual bool Exists(const std::string& path) = 0;
  virtual bool IsDirectory(const std::string& path) = 0;
  // The names (not paths) of the entries of a directory, sorted, without "." and "..".
  virtual absl::StatusOr<std::vector<std::string>> List(const std::string& path) = 0;
  // Makes the directory and its missing parents.
  virtual absl::Status MakeDirectories(const std::string& path) = 0;
  // Removes a file; not a directory.
  virtual absl::Status Remove(const std::string& path) = 0;
};

// The files of this machine. The object exists until the process ends.
FileSystem& RealFileSystem();

// "directory/name", with exactly one slash between them; `name` alone if `directory` is empty.
std::string JoinPath(absl::string_view directory, absl::string_view name);

}  // namespace xlad
