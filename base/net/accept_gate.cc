#include "base/net/accept_gate.h"

#include <fcntl.h>
#include <linux/tcp.h>  // The C library's tcp_info does not have tcpi_bytes_received.
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/net/network.h"
#include "base/net/socket_address.h"

namespace xlad {
namespace {

// The number of descriptors that are reserved for other uses: logs, blobs, child processes.
constexpr int kReservedFiles = 256;
constexpr int64_t kMinRoom = 16;  // The gate accepts this number of connections even if the limit on files is lower.
constexpr int kPollMs = 100;
constexpr size_t kDiscardedAtOnce = 1 << 20;

// Raises the soft limit on open files to the hard limit. Returns the limit, or 2^20 if it is larger.
int64_t RaiseFileLimit() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_cur < limit.rlim_max) {
    rlimit raised = limit;
    raised.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
  }
  constexpr rlim_t kMaxLimit = 1 << 20;
  return std::min(limit.rlim_cur, kMaxLimit);
}

// Returns the number of bytes that have arrived on a TCP connection. If the kernel does not report it, logs a warning
// once and returns 0.
int64_t ReceivedBytes(int fd) {
  tcp_info info{};
  socklen_t size = sizeof info;
  const bool is_known = getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 &&
                        size >= offsetof(tcp_info, tcpi_bytes_received) + sizeof info.tcpi_bytes_received;
  if (is_known) return static_cast<int64_t>(info.tcpi_bytes_received);
  static std::once_flag logged;
  std::call_once(logged, [] {
    LogWarn(
        "the kernel does not report how many bytes a connection has received, so the bytes of connections without "
        "an authenticated call are not limited; use Linux 4.1 or newer");
  });
  return 0;
}

class EpollGate final : public AcceptGate {
 public:
  EpollGate(const AcceptGateOptions& options, std::function<void(int)> deliver)
      : options_(options), deliver_(std::move(deliver)) {
    // Each connection needs two descriptors: the server's and the gate's duplicate.
    const int64_t room = (RaiseFileLimit() - kReservedFiles) / 2;
    max_connections_ = static_cast<int>(std::min<int64_t>(options.max_connections, std::max(room, kMinRoom)));
    max_unknown_ = std::min(options.max_unknown, std::max(max_connections_ / 2, 1));
  }

  ~EpollGate() override {
    StopAccepting();
    while (!unknown_.empty()) Drop(unknown_.front(), /*early=*/false);
    while (!known_.empty()) Drop(known_.front(), /*early=*/false);
    for (const int fd : {epoll_, wake_}) {
      if (fd >= 0) close(fd);
    }
  }

  absl::Status Listen(const std::string& address) {
    XLAD_ASSIGN_OR_RETURN(listener_, ListenFd(address));
    address_ = BoundAddress(listener_);
    fcntl(listener_, F_SETFL, fcntl(listener_, F_GETFL) | O_NONBLOCK);
    epoll_ = epoll_create1(EPOLL_CLOEXEC);
    wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (epoll_ < 0 || wake_ < 0) {
      return absl::ResourceExhaustedError(absl::StrCat("cannot watch connections: ", std::strerror(errno)));
    }
    Watch(wake_, EPOLLIN);
    Watch(listener_, EPOLLIN);
    return absl::OkStatus();
  }

  void Begin() override {
    thread_ = std::thread([this] { Run(); });
  }

  void StopAccepting() override {
    XLAD_CHECK(std::this_thread::get_id() != thread_.get_id()) << "`deliver` must not stop its gate";
    stopping_ = true;
    const uint64_t one = 1;
    if (wake_ >= 0) (void)!write(wake_, &one, sizeof one);
    if (thread_.joinable()) thread_.join();
    const std::lock_guard lock(mutex_);
    while (!silent_.empty()) Drop(silent_.front(), /*early=*/true);
    if (listener_ >= 0) close(std::exchange(listener_, -1));
  }

  std::string Address() const override { return address_; }

  void MarkKnown(const std::string& peer, const std::string& owner) override {
    const std::lock_guard lock(mutex_);
    const auto found = by_peer_.find(peer);
    if (found == by_peer_.end() || found->second->where != &unknown_) return;
    MoveTo(&known_, found->second);
    found->second->owner = owner;
    ++by_owner_[owner];
    if (++open_known_ > std::max(1, max_connections_ - max_unknown_)) CloseOneOfTheMost(owner);
  }

  AcceptGateCounts Counts() const override {
    const std::lock_guard lock(mutex_);
    return {static_cast<int>(silent_.size()), static_cast<int>(unknown_.size()), static_cast<int>(known_.size()),
            closed_early_};
  }

 private:
  struct Entry;
  using Entries = std::list<Entry*>;  // The oldest entry is the first one.
  struct Entry {
    int fd = -1;  // The connection while it is silent. Afterwards it is a duplicate of the server's descriptor.
    std::string peer;
    int64_t since_ns = 0;
    Entries* where = nullptr;
    Entries::iterator place;
    std::optional<std::string> owner;  // The owner of a known connection that is not being closed.
  };

  void Watch(int fd, uint32_t events) {
    epoll_event event{};
    event.events = events;
    event.data.fd = fd;
    epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event);
  }

  void MoveTo(Entries* list, Entry* entry) {
    if (entry->where != nullptr) entry->where->erase(entry->place);
    entry->where = list;
    entry->place = list->insert(list->end(), entry);
  }

  // Begins to close the newest known connection of the owner that has the most. If several owners have the most and
  // `preferred` is one of them, the connection is one of `preferred`. The gate's thread removes the entry when it is
  // notified of the end.
  void CloseOneOfTheMost(const std::string& preferred) {
    std::string most = preferred;
    for (const auto& [name, count] : by_owner_) {
      if (count > by_owner_.at(most)) most = name;
    }
    const auto newest = std::find_if(known_.rbegin(), known_.rend(),
                                     [&](const Entry* entry) { return entry->owner == most; });
    shutdown((*newest)->fd, SHUT_RDWR);
    Disown(*newest);
    ++closed_early_;
  }

  void Disown(Entry* entry) {
    if (!entry->owner.has_value()) return;
    const auto count = by_owner_.find(*entry->owner);
    if (--count->second == 0) by_owner_.erase(count);
    entry->owner.reset();
    --open_known_;
  }

  // Removes an entry and closes its descriptor. If `early`, first shuts the connection down and discards the bytes that
  // have arrived, which the server could otherwise still read.
  void Drop(Entry* entry, bool early) {
    if (early) {
      shutdown(entry->fd, SHUT_RDWR);
      while (recv(entry->fd, nullptr, kDiscardedAtOnce, MSG_TRUNC | MSG_DONTWAIT) > 0) {
      }
      ++closed_early_;
    }
    Disown(entry);
    close(entry->fd);  // This also removes the descriptor from epoll, unless the server still has its own descriptor.
    entry->where->erase(entry->place);
    const auto found = by_peer_.find(entry->peer);
    if (found != by_peer_.end() && found->second == entry) by_peer_.erase(found);
    by_fd_.erase(entry->fd);
    delete entry;
  }

  bool DropOldestUnknown() {
    Entries& list = !silent_.empty() ? silent_ : unknown_;
    if (list.empty()) return false;
    epoll_ctl(epoll_, EPOLL_CTL_DEL, list.front()->fd, nullptr);
    Drop(list.front(), /*early=*/true);
    return true;
  }

  void Accept() {
    while (true) {
      sockaddr_storage address{};
      socklen_t size = sizeof address;
      const int fd = accept4(listener_, reinterpret_cast<sockaddr*>(&address), &size, SOCK_CLOEXEC | SOCK_NONBLOCK);
      const int error = errno;
      const std::lock_guard lock(mutex_);
      if (fd < 0) {
        if (error == EINTR || error == ECONNABORTED) continue;
        const bool no_room = error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
        if (no_room && DropOldestUnknown()) continue;
        if (no_room) paused_ = true;  // Run listens again after its next poll.
        return;
      }
      const int unknown = silent_.size() + unknown_.size();
      const bool full = unknown + open_known_ >= max_connections_;
      if ((full || unknown >= max_unknown_) && !DropOldestUnknown()) {
        ++closed_early_;
        close(fd);
        continue;
      }
      const int one = 1;
      setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
      auto* entry = new Entry{fd, SocketAddressText(address, size), RealClock().NowNs()};
      MoveTo(&silent_, entry);
      by_fd_[fd] = entry;
      Watch(fd, EPOLLIN | EPOLLRDHUP);
    }
  }

  // Called when the first bytes of a silent connection have arrived, or when a connection has ended.
  void OnEvent(int fd, uint32_t events) {
    int ready = -1;
    {
      const std::lock_guard lock(mutex_);
      const auto found = by_fd_.find(fd);
      if (found == by_fd_.end()) return;
      Entry* entry = found->second;
      if (entry->where != &silent_) {
        if ((events & (EPOLLHUP | EPOLLERR)) == 0) return;
        epoll_ctl(epoll_, EPOLL_CTL_DEL, fd, nullptr);
        Drop(entry, /*early=*/false);
        return;
      }
      char byte = 0;
      const ssize_t peeked = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
      if (peeked < 0 && (errno == EAGAIN || errno == EINTR))
        return;  // The event belongs to an older connection with the same descriptor number.
      epoll_ctl(epoll_, EPOLL_CTL_DEL, fd, nullptr);
      const int copy = peeked == 1 ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : -1;
      if (copy < 0) {
        Drop(entry, /*early=*/false);
        return;
      }
      ready = fd;
      by_fd_.erase(fd);
      entry->fd = copy;
      entry->since_ns = RealClock().NowNs();
      MoveTo(&unknown_, entry);
      by_fd_[copy] = entry;
      by_peer_[entry->peer] = entry;
      Watch(copy, 0);  // Without requested events, only the end of the connection is reported.
    }
    deliver_(ready);
  }

  void DropExpired() {
    const std::lock_guard lock(mutex_);
    const int64_t now_ns = RealClock().NowNs();
    const auto drop_before = [&](Entries& list, int64_t limit_ms) {
      while (!list.empty() && now_ns - list.front()->since_ns > limit_ms * kNsPerMs) {
        epoll_ctl(epoll_, EPOLL_CTL_DEL, list.front()->fd, nullptr);
        Drop(list.front(), /*early=*/true);
      }
    };
    drop_before(silent_, options_.first_byte_ms);
    drop_before(unknown_, options_.unknown_ms);
    if (now_ns < measure_ns_) return;
    measure_ns_ = now_ns + kPollMs * kNsPerMs;
    for (auto next = unknown_.begin(); next != unknown_.end();) {
      Entry* const entry = *next++;
      if (ReceivedBytes(entry->fd) <= options_.max_unknown_bytes) continue;
      epoll_ctl(epoll_, EPOLL_CTL_DEL, entry->fd, nullptr);
      Drop(entry, /*early=*/true);
    }
  }

  void SetListening(bool listening) {
    epoll_event event{};
    event.events = listening ? static_cast<uint32_t>(EPOLLIN) : 0;
    event.data.fd = listener_;
    epoll_ctl(epoll_, EPOLL_CTL_MOD, listener_, &event);
  }

  void Run() {
    epoll_event events[256];
    while (!stopping_) {
      const bool was_paused = std::exchange(paused_, false);
      const int n = epoll_wait(epoll_, events, std::size(events), kPollMs);
      if (was_paused) SetListening(true);
      for (int i = 0; i < n; ++i) {
        if (events[i].data.fd == listener_) {
          Accept();
        } else if (events[i].data.fd != wake_) {
          OnEvent(events[i].data.fd, events[i].events);
        }
      }
      if (paused_) SetListening(false);
      DropExpired();
    }
  }

  const AcceptGateOptions options_;
  const std::function<void(int)> deliver_;
  int max_connections_ = 0;
  int max_unknown_ = 0;
  int listener_ = -1, epoll_ = -1, wake_ = -1;
  std::string address_;
  // Set if the system had no descriptor or memory for a connection. Run then stops listening during its next poll. Used
  // only by the gate's thread.
  bool paused_ = false;
  int64_t measure_ns_ = 0;  // When the received bytes are measured again. Used only by the gate's thread.
  std::atomic<bool> stopping_ = false;
  mutable std::mutex mutex_;  // Guards the lists, the maps and closed_early_.
  Entries silent_, unknown_, known_;
  std::unordered_map<int, Entry*> by_fd_;
  std::unordered_map<std::string, Entry*> by_peer_;  // The connections that were delivered, by the client's address.
  // The numbers of known connections, without those that are being closed: of each owner, and of all.
  std::map<std::string, int> by_owner_;
  int open_known_ = 0;
  int64_t closed_early_ = 0;
  std::thread thread_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<AcceptGate>> AcceptGate::Listen(const std::string& address,
                                                               const AcceptGateOptions& options,
                                                               std::function<void(int fd)> deliver) {
  auto gate = std::make_unique<EpollGate>(options, std::move(deliver));
  XLAD_RETURN_IF_ERROR(gate->Listen(address));
  return gate;
}

}  // namespace xlad
