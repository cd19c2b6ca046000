#include "tests/nccl_double/hub.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <map>
#include <random>
#include <thread>

namespace xlad::nccl_double {
namespace {

// The name of an abstract socket begins with a zero byte.
socklen_t AbstractAddress(const std::string& name, sockaddr_un* address) {
  *address = {};
  address->sun_family = AF_UNIX;
  std::memcpy(address->sun_path + 1, name.data(), name.size());
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

class Hub {
 public:
  explicit Hub(int listener) : listener_(listener) {}
  ~Hub() {
    for (const auto& [rank, end] : ends_) close(end.file);
    if (listener_ >= 0) close(listener_);
  }

  void Run() {
    if (!Accept()) return;
    while (!ends_.empty() && Forward()) {
    }
  }

 private:
  struct End {
    int file = -1;
    std::string in, out;  // Bytes that have arrived, and bytes to send.
    bool has_left = false;
  };

  // Returns whether all ranks are connected. A rank whose connection ends before that ends the hub.
  bool Accept() {
    uint32_t ranks = 1;
    while (ends_.size() < ranks) {
      std::vector<pollfd> files{{listener_, POLLIN, 0}};
      for (const auto& [rank, end] : ends_) files.push_back({end.file, POLLIN, 0});
      poll(files.data(), files.size(), -1);
      for (size_t i = 1; i < files.size(); ++i) {
        if (files[i].revents != 0) return false;
      }
      const int file = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      Hello hello;
      if (file < 0 || !ReadAll(file, &hello, sizeof hello)) return false;
      const bool fits =
          hello.rank < hello.ranks && ends_.count(hello.rank) == 0 && (ends_.empty() || hello.ranks == ranks);
      if (!fits) {
        WriteAll(file, &kRefused, 1);
        for (const auto& [rank, end] : ends_) WriteAll(end.file, &kRefused, 1);
        close(file);
        return false;
      }
      ranks = hello.ranks;
      ends_[hello.rank].file = file;
    }
    for (auto& [rank, end] : ends_) {
      WriteAll(end.file, &kReady, 1);
      fcntl(end.file, F_SETFL, O_NONBLOCK);
    }
    return true;
  }

  // Returns false if a connection has ended without a farewell.
  bool Forward() {
    std::vector<pollfd> files;
    std::vector<uint32_t> ranks;
    for (const auto& [rank, end] : ends_) {
      files.push_back({end.file, static_cast<int16_t>(end.out.empty() ? POLLIN : POLLIN | POLLOUT), 0});
      ranks.push_back(rank);
    }
    poll(files.data(), files.size(), -1);
    for (size_t i = 0; i < files.size(); ++i) {
      if (files[i].revents == 0) continue;
      End& end = ends_[ranks[i]];
      if ((files[i].revents & POLLOUT) != 0) {
        const ssize_t sent = send(end.file, end.out.data(), end.out.size(), MSG_NOSIGNAL);
        if (sent > 0) end.out.erase(0, static_cast<size_t>(sent));
      }
      char bytes[1 << 16];
      const ssize_t got = recv(end.file, bytes, sizeof bytes, 0);
      if (got > 0) {
        end.in.append(bytes, static_cast<size_t>(got));
        Route(ranks[i], &end);
      } else if (got == 0 || errno != EAGAIN) {
        if (!end.has_left) return false;
        close(end.file);
        ends_.erase(ranks[i]);
      }
    }
    return true;
  }

  void Route(uint32_t from, End* end) {
    size_t at = 0;
    FrameHeader header;
    while (end->in.size() - at >= sizeof header) {
      std::memcpy(&header, end->in.data() + at, sizeof header);
      if (header.peer == kFarewell) end->has_left = true;
      if (end->in.size() - at < sizeof header + header.bytes) break;
      const auto to = ends_.find(header.peer);
      if (to != ends_.end()) {
        header.peer = from;
        to->second.out.append(reinterpret_cast<const char*>(&header), sizeof header);
        to->second.out.append(end->in, at + sizeof header, header.bytes);
      }
      at += sizeof header + header.bytes;
    }
    end->in.erase(0, at);
  }

  const int listener_;
  std::map<uint32_t, End> ends_;  // By rank.
};

}  // namespace

std::string StartHub() {
  static std::atomic<int> count = 0;
  std::random_device random;
  const std::string name =
      "xlad-nccl-double-" + std::to_string(getpid()) + "-" + std::to_string(++count) + "-" + std::to_string(random());
  const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address;
  const socklen_t bytes = AbstractAddress(name, &address);
  if (listener < 0 || bind(listener, reinterpret_cast<sockaddr*>(&address), bytes) != 0 || listen(listener, 64) != 0) {
    return "";
  }
  std::thread([listener] { Hub(listener).Run(); }).detach();
  return name;
}

int ConnectToHub(const std::string& name, const Hello& hello) {
  const int file = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address;
  const socklen_t bytes = AbstractAddress(name, &address);
  if (file >= 0 && connect(file, reinterpret_cast<sockaddr*>(&address), bytes) == 0 &&
      WriteAll(file, &hello, sizeof hello)) {
    return file;
  }
  if (file >= 0) close(file);
  return -1;
}

bool WriteAll(int file, const void* data, size_t bytes) {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t sent = send(file, at, bytes, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    at += sent;
    bytes -= static_cast<size_t>(sent);
  }
  return true;
}

bool ReadAll(int file, void* data, size_t bytes) {
  char* at = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t got = recv(file, at, bytes, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += got;
    bytes -= static_cast<size_t>(got);
  }
  return true;
}

}  // namespace xlad::nccl_double
