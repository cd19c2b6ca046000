// Files as an interface, so that tests can inject disk faults and simulations can run without a disk.
//
// Relative paths are relative to the working directory of the process. Errors contain the path and the system's reason.
// The codes are:
// - NotFound: the file or a folder of its path is missing;
// - AlreadyExists: the path exists, or the folder that is to be removed is not empty;
// - PermissionDenied: the user may not do this, or the file system is read-only;
// - ResourceExhausted: the disk, or the user's part of it, is full;
// - InvalidArgument: the path cannot be used, as with a loop of links, or the file does not support the operation;
// - Unavailable: any other error. It may end, and has the mark of base/file_error.h.
// Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/status.h"

namespace xlad {

// An open file, closed on destruction. Several threads may call Read at once. Only one thread at a time may use a file
// that is written.
class File {
 public:
  virtual ~File() = default;
  // The size in bytes.
  virtual absl::StatusOr<int64_t> Size() const = 0;
  // Fills `out` with the bytes from `offset`. DataLoss if the file has too few bytes.
  virtual absl::Status Read(int64_t offset, absl::Span<std::byte> out) const = 0;
  // Adds bytes at the end. After an error, any part of them may have been written.
  virtual absl::Status Append(absl::string_view bytes) = 0;
  // Returns when the contents are on disk (fsync). After an error, the contents are undefined: do not call Sync again,
  // but write the file again.
  virtual absl::Status Sync() = 0;
};

enum class OpenMode {
  kRead,    // Opens a file, which must exist.
  kCreate,  // Creates a new file, for Append. AlreadyExists if a file has this name.
};

class FileSystem {
 public:
  virtual ~FileSystem() = default;

  // Returns all bytes of a file, pipe or device. InvalidArgument for a directory.
  virtual absl::StatusOr<std::string> Read(const std::string& path) = 0;
  // Returns the bytes [offset, offset + size). DataLoss if the file has too few bytes.
  virtual absl::StatusOr<std::string> ReadRange(const std::string& path, int64_t offset, int64_t size) = 0;
  // Returns the size in bytes. InvalidArgument for a directory.
  virtual absl::StatusOr<int64_t> Size(const std::string& path) = 0;
  // Replaces the file. After any failure, even a crash, the file has either its old contents or all of the new ones.
  // Writes a temporary file in the same directory, then calls fsync, rename, and fsync on the directory. Follows
  // symbolic links. Devices and pipes are written to directly.
  virtual absl::Status WriteAtomically(const std::string& path, absl::string_view bytes) = 0;
  virtual bool Exists(const std::string& path) = 0;
  virtual bool IsDirectory(const std::string& path) = 0;
  // Returns the names (not paths) of the entries of a directory, sorted, without "." and "..".
  virtual absl::StatusOr<std::vector<std::string>> List(const std::string& path) = 0;
  // Makes the directory and its missing parents.
  virtual absl::Status MakeDirectories(const std::string& path) = 0;
  // Removes a file that is not a directory.
  virtual absl::Status Remove(const std::string& path) = 0;

  // Open, Rename and SyncDirectory are the steps of an atomic write of a large file: create a temporary file, append to
  // it, sync it, rename it, and sync its directory.
  virtual absl::StatusOr<std::unique_ptr<File>> Open(const std::string& path, OpenMode mode) = 0;
  // Renames a file. Replaces `to` if it exists.
  virtual absl::Status Rename(const std::string& from, const std::string& to) = 0;
  // Returns when the names in the directory (new, renamed and removed files) are on disk.
  virtual absl::Status SyncDirectory(const std::string& path) = 0;
  // Removes an empty directory.
  virtual absl::Status RemoveDirectory(const std::string& path) = 0;
  // Returns how many bytes an unprivileged process may write to the file system of an existing path.
  virtual absl::StatusOr<int64_t> FreeBytes(const std::string& path) = 0;
};

// The files of this machine. The object exists until the process ends.
FileSystem& RealFileSystem();

// Returns "directory/name" with exactly one slash between them, or `name` if `directory` is empty.
std::string JoinPath(absl::string_view directory, absl::string_view name);

// Returns the folder of a path: "a" for "a/x", "/" for "/x", and "." for a path without a slash.
std::string FolderOfPath(absl::string_view path);

}  // namespace xlad
