#include "cli/fault_proxy.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <list>
#include <utility>
#include <vector>

#include "base/net/network.h"

namespace xlad::cli {
namespace {

constexpr int kPollMs = 20;  // A change of the path takes effect within this time.
constexpr size_t kBufferBytes = 256 << 10;

// Begins a non-blocking connection to "127.0.0.1:PORT" and returns its socket, or -1 on failure.
int BeginDial(const std::string& target) {
  const auto host_port = ParseHostPort(target);
  if (!host_port.ok()) return -1;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(host_port->port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  const int one = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 && errno != EINPROGRESS) {
    close(fd);
    return -1;
  }
  return fd;
}

// The bytes that were received and not yet sent in one direction.
struct Flow {
  int from = -1, to = -1;
  std::string waiting;

  bool CanRead() const { return waiting.size() < kBufferBytes; }
  // Returns false at the end of the connection.
  bool Read() {
    char piece[65536];
    const ssize_t n = recv(from, piece, sizeof piece, MSG_DONTWAIT);
    if (n > 0) waiting.append(piece, n);
    return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
  }
  bool Write() {
    if (waiting.empty()) return true;
    const ssize_t n = send(to, waiting.data(), waiting.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n > 0) waiting.erase(0, n);
    return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR || errno == ENOTCONN));
  }
};

}  // namespace

struct FaultProxy::Link {
  Flow requests, answers;

  Link(int worker, int coordinator) : requests{worker, coordinator, ""}, answers{coordinator, worker, ""} {}
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;
  ~Link() {
    // Closing the sockets resets the connections, as a refused path does, instead of ending them in order.
    const linger reset{1, 0};
    for (const int fd : {requests.from, requests.to}) {
      setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
      close(fd);
    }
  }
};

FaultProxy::FaultProxy(int listener, std::string address, std::string target)
    : listener_(listener), address_(std::move(address)), target_(std::move(target)), thread_([this] { Run(); }) {}

FaultProxy::~FaultProxy() {
  stopping_ = true;
  thread_.join();
  close(listener_);
}

absl::StatusOr<std::unique_ptr<FaultProxy>> FaultProxy::Start(const std::string& target) {
  XLAD_ASSIGN_OR_RETURN(const int listener, ListenFd("127.0.0.1:0"));
  fcntl(listener, F_SETFL, fcntl(listener, F_GETFL) | O_NONBLOCK);
  return std::unique_ptr<FaultProxy>(new FaultProxy(listener, BoundAddress(listener), target));
}

void FaultProxy::Run() {
  std::list<Link> links;
  while (!stopping_) {
    const Path path = path_;
    const bool requests_pass = path == Path::kOpen || path == Path::kNoAnswers;
    const bool answers_pass = path == Path::kOpen || path == Path::kNoRequests;
    if (path == Path::kRefused) links.clear();
    // Descriptors that are not served now are -1, which poll ignores. It would otherwise return at once if a connection
    // waits or has been closed.
    std::vector<pollfd> polled = {{path == Path::kBlack ? -1 : listener_, POLLIN, 0}};
    for (Link& link : links) {
      const auto add = [&](int fd, bool read, bool write) {
        const int events = (read ? POLLIN : 0) | (write ? POLLOUT : 0);
        polled.push_back({events == 0 ? -1 : fd, static_cast<short>(events), 0});  // NOLINT(google-runtime-int): poll
      };
      const bool to_coordinator = requests_pass && !link.requests.waiting.empty();
      const bool to_worker = answers_pass && !link.answers.waiting.empty();
      add(link.requests.from, requests_pass && link.requests.CanRead(), to_worker);
      add(link.answers.from, answers_pass && link.answers.CanRead(), to_coordinator);
    }
    poll(polled.data(), polled.size(), kPollMs);
    for (auto link = links.begin(); link != links.end();) {
      bool open = true;
      if (requests_pass) open = (!link->requests.CanRead() || link->requests.Read()) && link->requests.Write();
      if (answers_pass && open) open = (!link->answers.CanRead() || link->answers.Read()) && link->answers.Write();
      link = open ? std::next(link) : links.erase(link);
    }
    if (path == Path::kBlack) continue;  // New connections wait in the kernel's queue.
    const int worker = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (worker < 0) continue;
    const int coordinator = path == Path::kRefused ? -1 : BeginDial(target_);
    if (coordinator < 0) {
      close(worker);
      continue;
    }
    const int one = 1;
    setsockopt(worker, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    links.emplace_back(worker, coordinator);
  }
}

}  // namespace xlad::cli
