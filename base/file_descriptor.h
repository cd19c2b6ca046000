// An owner of a POSIX file descriptor.
#pragma once

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

}  // namespace xlad
