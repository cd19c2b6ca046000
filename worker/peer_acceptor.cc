#include "worker/peer_acceptor.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/net/network.h"
#include "base/net/peer_user.h"
#include "base/net/socket_address.h"
#include "collectives/exec/transports/frame.h"

namespace xlad::worker {
namespace {

constexpr size_t kMaxHelloBytes = 64 << 10;
constexpr int kTickMs = 250;  // A connection is closed at most this long after its deadline.
constexpr int64_t kPauseNs = 50 * kNsPerMs;
constexpr size_t kSizeBytes = sizeof(uint32_t);

// Returns the attempt that a hello names. The connections of a session's program have the job id "SESSION/PROGRAM".
TaskKey KeyOf(const PeerHello& hello) { return {hello.job_id().substr(0, hello.job_id().find('/')), hello.attempt()}; }

}  // namespace

absl::StatusOr<std::unique_ptr<PeerAcceptor>> PeerAcceptor::Listen(const std::string& address,
                                                                   const PeerAcceptorLimits& limits) {
  XLAD_ASSIGN_OR_RETURN(const int fd, ListenFd(address));
  FileDescriptor listener(fd);
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
  return std::unique_ptr<PeerAcceptor>(new PeerAcceptor(std::move(listener), BoundAddress(fd), limits));
}

PeerAcceptor::PeerAcceptor(FileDescriptor listener, std::string address, const PeerAcceptorLimits& limits)
    : limits_(limits),
      listener_(std::move(listener)),
      address_(std::move(address)),
      same_user_only_(!IsOffLoopback(address_)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      reserve_(open("/dev/null", O_RDONLY | O_CLOEXEC)) {
  thread_ = std::thread([this] { Run(); });
}

PeerAcceptor::~PeerAcceptor() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    ending_ = true;
  }
  eventfd_write(wake_.get(), 1);
  thread_.join();
}

void PeerAcceptor::Run() {
  while (true) {
    const bool paused = RealClock().NowNs() < accept_from_ns_;
    std::vector<pollfd> ready = {{wake_.get(), POLLIN, 0}, {paused ? -1 : listener_.get(), POLLIN, 0}};
    for (const Guest& guest : greeting_) ready.push_back({guest.socket.get(), POLLIN, 0});
    poll(ready.data(), ready.size(), kTickMs);
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (ending_) return;
      Expire(&waiting_, RealClock().NowNs(), "no such attempt was started on this worker");
    }
    size_t at = 2;
    for (auto guest = greeting_.begin(); guest != greeting_.end(); ++at) {
      const bool keep = ready[at].revents == 0 || Greet(&*guest);
      guest = keep ? std::next(guest) : greeting_.erase(guest);
    }
    Expire(&greeting_, RealClock().NowNs(), "");
    if (ready[1].revents != 0) Accept();
  }
}

void PeerAcceptor::Accept() {
  while (true) {
    sockaddr_storage peer{};
    socklen_t size = sizeof peer;
    FileDescriptor socket(
        accept4(listener_.get(), reinterpret_cast<sockaddr*>(&peer), &size, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.is_open() && errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
      return RefuseOne();  // There is no file descriptor or no memory left.
    }
    if (!socket.is_open()) return;
    const std::string address = SocketAddressText(peer, size);
    // Connections on loopback are not encrypted, so connections of other users of this machine are closed.
    if (same_user_only_) {
      if (const absl::Status same = CheckSameUser(address, address_); !same.ok()) {
        LogWarn("data port: refused a connection", {{"error", std::string(same.message())}});
        continue;
      }
    }
    MakeRoom(&greeting_, limits_.max_greeting);
    Guest& guest = greeting_.emplace_back();
    guest.socket = std::move(socket);
    const absl::StatusOr<HostPort> from = ParseHostPort(address);
    guest.source = from.ok() ? from->host : address;
    guest.address = address;
    guest.until_ns = RealClock().NowNs() + limits_.greeting_ms * kNsPerMs;
    if (!Greet(&guest)) greeting_.pop_back();  // Most peers have sent their hello by now.
  }
}

// Accepts one connection on the reserve descriptor and closes it. Also closes a connection whose hello has not arrived,
// if any. If the accept fails, further ones pause, because the listener stays readable.
void PeerAcceptor::RefuseOne() {
  MakeRoom(&greeting_, std::max<size_t>(greeting_.size(), 1));
  reserve_.Close();
  const FileDescriptor refused(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!refused.is_open()) accept_from_ns_ = RealClock().NowNs() + kPauseNs;
  reserve_ = FileDescriptor(open("/dev/null", O_RDONLY | O_CLOEXEC));
}

bool PeerAcceptor::Greet(Guest* guest) {
  while (true) {
    uint32_t size = 0;
    if (guest->received.size() >= kSizeBytes) std::memcpy(&size, guest->received.data(), kSizeBytes);
    if (size > kMaxHelloBytes) {
      LogWarn("data port: found a connection that is not from a worker",
              {{"peer", guest->address}, {"bytes", absl::StrCat(size)}});
      return false;
    }
    // Reads only the hello, because the bytes after it are for the attempt.
    const size_t want = guest->received.size() < kSizeBytes ? kSizeBytes : kSizeBytes + size;
    if (guest->received.size() == want) {
      if (!guest->hello.ParseFromString(guest->received.substr(kSizeBytes))) {
        LogWarn("data port: found bytes that cannot be parsed as a hello", {{"peer", guest->address}});
      } else {
        Route(std::move(*guest));
      }
      return false;
    }
    char buffer[4096];
    const size_t chunk = std::min(sizeof buffer, want - guest->received.size());
    const ssize_t n = recv(guest->socket.get(), buffer, chunk, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return true;
    if (n <= 0) return false;
    guest->received.append(buffer, n);
  }
}

void PeerAcceptor::Route(Guest guest) {
  fcntl(guest.socket.get(), F_SETFL, fcntl(guest.socket.get(), F_GETFL) & ~O_NONBLOCK);
  const TaskKey key = KeyOf(guest.hello);
  std::lock_guard<std::mutex> lock(mutex_);
  const auto exact = attempts_.find(key);
  if (exact != attempts_.end()) return exact->second(std::move(guest.socket), guest.hello, guest.address);
  const auto later = attempts_.upper_bound(key);
  if (later != attempts_.end() && later->first.job_id == key.job_id) {
    return Refuse(std::move(guest), "a later attempt of the job runs here");
  }
  MakeRoom(&waiting_, limits_.max_waiting);
  guest.until_ns = RealClock().NowNs() + limits_.waiting_ms * kNsPerMs;
  waiting_.push_back(std::move(guest));
}

void PeerAcceptor::Refuse(Guest guest, absl::string_view why) {
  const std::unique_ptr<Connection> connection = AdoptSocket(guest.socket.Release(), guest.address);
  collectives::RefusePeer(connection.get(), why);
}

// Closes connections until there are fewer than `limit`. Each time, closes the oldest one of the source that has the
// most connections.
void PeerAcceptor::MakeRoom(Guests* guests, size_t limit) {
  while (!guests->empty() && guests->size() >= limit) {
    std::map<std::string, int> counts;
    for (const Guest& guest : *guests) ++counts[guest.source];
    const auto less = [](const auto& a, const auto& b) { return a.second < b.second; };
    const std::string& most = std::max_element(counts.begin(), counts.end(), less)->first;
    guests->erase(
        std::find_if(guests->begin(), guests->end(), [&](const Guest& guest) { return guest.source == most; }));
  }
}

// Each list is in the order of its deadlines. If `why` is empty, connections are closed without an answer.
void PeerAcceptor::Expire(Guests* guests, int64_t now_ns, absl::string_view why) {
  while (!guests->empty() && guests->front().until_ns <= now_ns) {
    Guest guest = std::move(guests->front());
    guests->pop_front();
    if (!why.empty()) Refuse(std::move(guest), why);
  }
}

void PeerAcceptor::Add(const TaskKey& key, Take take) {
  std::lock_guard<std::mutex> lock(mutex_);
  for (auto at = waiting_.begin(); at != waiting_.end();) {
    const TaskKey waits_for = KeyOf(at->hello);
    if (waits_for.job_id != key.job_id || waits_for.attempt > key.attempt) {
      ++at;
      continue;
    }
    if (waits_for == key) {
      take(std::move(at->socket), at->hello, at->address);
    } else {
      Refuse(std::move(*at), "a later attempt of the job runs here");
    }
    at = waiting_.erase(at);
  }
  attempts_[key] = std::move(take);
}

void PeerAcceptor::Remove(const TaskKey& key) {
  std::lock_guard<std::mutex> lock(mutex_);
  attempts_.erase(key);
}

}  // namespace xlad::worker
