// Files as an interface, so that faults of a disk can be injected and a simulation needs none.
//
// Paths are as the system takes them. Errors name the path and the system's reason. Thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include "absl/strings/string_view.h"
#include <vector>

#include "base/status.h"

namespace xlad {

class FileSystem {
 public:
  virtual ~FileSystem() = default;

  virtual absl::StatusOr<std::string> Read(const std::string& path) = 0;
  // Bytes [offset, offset + size); an error where the file ends before.
  virtual absl::StatusOr<std::string> ReadRange(const std::string& path, int64_t offset, int64_t size) = 0;
  virtual absl::StatusOr<int64_t> Size(const std::string& path) = 0;
  // All or nothing: a temporary file beside it, fsync, rename, fsync of the folder. A device or a pipe is written to.
  virtual absl::Status WriteAtomically(const std::string& path, absl::string_view bytes) = 0;
  virtual bool Exists(const std::string& path) = 0;
  virtual bool IsDirectory(const std::string& path) = 0;
  // Names (not paths) in a folder, sorted.
  virtual absl::StatusOr<std::vector<std::string>> List(const std::string& path) = 0;
  // The folder and those above it, as far as they are missing.
  virtual absl::Status MakeDirectories(const std::string& path) = 0;
  virtual absl::Status Remove(const std::string& path) = 0;
};

// The machine's own files. Lives as long as the process.
FileSystem& RealFileSystem();

// `folder` and `name` with one slash between.
std::string JoinPath(absl::string_view folder, absl::string_view name);

}  // namespace xlad
