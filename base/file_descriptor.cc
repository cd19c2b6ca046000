#include "base/file_descriptor.h"

#include <unistd.h>

#include <utility>

namespace xlad {

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  if (this != &other) {
    Close();
    fd_ = other.Release();
  }
  return *this;
}

void FileDescriptor::Close() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

int FileDescriptor::Release() { return std::exchange(fd_, -1); }

}  // namespace xlad
