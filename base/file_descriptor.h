// An owner of a POSIX file descriptor, and reads and writes of all bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace xlad {

// Owns a file descriptor, which it closes on destruction.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(other.Release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;
  ~FileDescriptor() { Close(); }

  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  void Close();
  // Returns the descriptor, which the caller then owns.
  int Release();

 private:
  int fd_ = -1;
};

// Writes all bytes. Returns false, with the reason in errno, if the system refuses. Any part of the bytes may then have
// been written.
bool WriteAll(int fd, absl::string_view bytes);

// Reads out.size() bytes from `offset` of a file. Returns the number of bytes read, which is smaller only at the end of
// the file, or -1 with the reason in errno.
int64_t ReadAt(int fd, int64_t offset, absl::Span<std::byte> out);

}  // namespace xlad
