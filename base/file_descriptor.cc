#include "base/file_descriptor.h"

#include <unistd.h>

#include <cerrno>
#include <iterator>
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

bool WriteAll(int fd, absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    bytes.remove_prefix(n);
  }
  return true;
}

int64_t ReadAt(int fd, int64_t offset, absl::Span<std::byte> out) {
  int64_t done = 0;
  while (done < std::ssize(out)) {
    const ssize_t n = pread(fd, out.data() + done, out.size() - done, offset + done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return -1;
    if (n == 0) break;
    done += n;
  }
  return done;
}

}  // namespace xlad
