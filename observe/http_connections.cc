#include "observe/http_connections.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <list>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/clock.h"
#include "base/file_descriptor.h"
#include "base/net/accept_gate.h"
#include "base/net/socket_address.h"

namespace xlad::observe {
namespace {

constexpr int kAnsweringThreads = 4;
constexpr size_t kMaxHttpRequestBytes = 16 << 10;
constexpr int kCheckEveryMs = 250;   // A connection is closed at most this long after its deadline.
constexpr int64_t kEndingMs = 2000;  // The time in which a client must close its side after the response.
constexpr char kTooLargeRequest[] =
    "HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
constexpr char kTooLargeResponse[] =
    "HTTP/1.1 500 Internal Server Error\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";

enum class Phase {
  kReading,
  kAnswering,  // The request waits for a thread (it is in requests_), or a thread computes the response.
  kAbandoned,  // The connection has ended while a thread computes the response. It is removed afterwards.
  kSending,
  kEnding,  // The response has been sent. If the connection were closed now, unread bytes could destroy the response.
};

struct HttpClient {
  FileDescriptor socket;
  std::string address;
  Phase phase = Phase::kReading;
  int64_t until_ns = 0;    // The connection is closed at this time.
  int64_t sent_by_ns = 0;  // The time at which the complete response must have been sent.
  std::string bytes;       // The part of the request that has arrived, then the response.
  size_t sent = 0;
};
using HttpClients = std::list<HttpClient>;  // The oldest connection is the first.

class PollingConnections final : public HttpConnections {
 public:
  PollingConnections(Answer answer, const HttpLimits& limits)
      : answer_(std::move(answer)), limits_(limits), wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

  ~PollingConnections() override {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
      end_by_ns_ = After(kEndingMs);
      requested_.notify_all();
    }
    gate_.reset();  // No connection arrives any more.
    Wake();
    for (std::thread& thread : threads_) thread.join();
    for (HttpClient& client : clients_) shutdown(client.socket.get(), SHUT_RDWR);
    for (const int fd : arrived_) {
      shutdown(fd, SHUT_RDWR);
      close(fd);
    }
  }

  absl::Status Begin(const std::string& address) {
    if (!wake_.is_open()) {
      return absl::ResourceExhaustedError("no file descriptor is left: raise the limit on open files (ulimit -n)");
    }
    AcceptGateOptions options;
    options.max_unknown = limits_.max_connections;
    // All connections stay unknown to the gate, and at most half of its max_connections may be unknown.
    options.max_connections = 2 * limits_.max_connections;
    options.first_byte_ms = limits_.request_ms;
    options.unknown_ms = limits_.request_ms + limits_.response_ms + kEndingMs;
    XLAD_ASSIGN_OR_RETURN(gate_, AcceptGate::Listen(address, options, [this](int fd) {
                            Arrive(fd);
                            Wake();
                          }));
    threads_.emplace_back([this] { Run(); });
    for (int t = 0; t < kAnsweringThreads; ++t) threads_.emplace_back([this] { AnswerRequests(); });
    gate_->Begin();
    return absl::OkStatus();
  }

  std::string Address() const override { return gate_->Address(); }

 private:
  void Wake() { eventfd_write(wake_.get(), 1); }

  // Called by the gate's thread.
  void Arrive(int fd) {
    const std::lock_guard lock(mutex_);
    arrived_.push_back(fd);
    if (arrived_.size() <= limits_.max_connections) return;
    shutdown(arrived_.front(), SHUT_RDWR);  // The gate has ended this one, because newer ones have reached its limit.
    close(arrived_.front());
    arrived_.pop_front();
  }

  // --- The thread of the connections.

  void Run() {
    while (true) {
      std::vector<pollfd> ready = {{wake_.get(), POLLIN, 0}};
      std::vector<HttpClients::iterator> polled;
      for (auto client = clients_.begin(); client != clients_.end(); ++client) {
        if (client->phase == Phase::kAbandoned) continue;
        ready.push_back({client->socket.get(), EventsOf(client->phase), 0});
        polled.push_back(client);
      }
      poll(ready.data(), ready.size(), kCheckEveryMs);
      for (size_t i = 0; i < polled.size(); ++i) {
        if (ready[i + 1].revents != 0 && !Advance(polled[i])) Remove(polled[i]);
      }
      eventfd_t ignored;
      eventfd_read(wake_.get(), &ignored);
      TakeArrived();
      TakeAnswered();
      RemoveLate();
      if (HasEnded()) return;
    }
  }

  // Without requested events, poll reports only that the connection has ended, for example because the gate needs room.
  static int16_t EventsOf(Phase phase) {
    if (phase == Phase::kAnswering) return 0;
    return phase == Phase::kSending ? POLLOUT : POLLIN;
  }

  bool HasEnded() {
    const std::lock_guard lock(mutex_);
    if (!ending_ || answering_ > 0 || !answered_.empty()) return false;
    const auto sends = [](const HttpClient& client) { return client.phase == Phase::kSending; };
    return RealClock().NowNs() >= end_by_ns_ || std::none_of(clients_.begin(), clients_.end(), sends);
  }

  int64_t After(int64_t ms) const { return RealClock().NowNs() + ms * kNsPerMs; }

  void TakeArrived() {
    std::deque<int> arrived;
    {
      const std::lock_guard lock(mutex_);
      arrived.swap(arrived_);
    }
    for (const int fd : arrived) {
      RemoveOldestIfFull();
      const auto client = clients_.emplace(clients_.end());
      client->socket = FileDescriptor(fd);
      sockaddr_storage address{};
      socklen_t size = sizeof address;
      if (getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0) {
        client->address = SocketAddressText(address, size);
      }
      client->until_ns = After(limits_.request_ms);
      if (!Advance(client)) Remove(client);  // Most requests have arrived by now.
    }
  }

  void TakeAnswered() {
    std::vector<std::pair<HttpClients::iterator, std::string>> answered;
    {
      const std::lock_guard lock(mutex_);
      answered.swap(answered_);
    }
    for (auto& [client, response] : answered) {
      const bool is_open = client->phase == Phase::kAnswering;
      if (is_open) Send(client, std::move(response));
      if (!is_open || !Advance(client)) Remove(client);
    }
    // The oldest connections have had the most time.
    for (auto client = clients_.begin(); client != clients_.end() && unsent_ > limits_.max_unsent_bytes;) {
      const auto next = std::next(client);
      if (client->phase == Phase::kSending) Remove(client);
      client = next;
    }
  }

  void RemoveLate() {
    const int64_t now_ns = RealClock().NowNs();
    for (auto client = clients_.begin(); client != clients_.end();) {
      const auto next = std::next(client);
      if (client->until_ns <= now_ns && Withdraw(client)) Remove(client);
      client = next;
    }
  }

  // The gate no longer counts a connection that it has ended, but clients_ has it until poll has reported the end.
  void RemoveOldestIfFull() {
    for (auto client = clients_.begin(); client != clients_.end() && clients_.size() >= 2 * limits_.max_connections;) {
      const auto next = std::next(client);
      if (Withdraw(client)) Remove(client);
      client = next;
    }
  }

  // Returns false if a thread computes the response. Otherwise no thread will, and the connection may be removed.
  bool Withdraw(HttpClients::iterator client) {
    if (client->phase == Phase::kAbandoned) return false;
    if (client->phase != Phase::kAnswering) return true;
    const std::lock_guard lock(mutex_);
    const auto waits = std::find(requests_.begin(), requests_.end(), client);
    if (waits == requests_.end()) return false;
    requests_.erase(waits);
    return true;
  }

  void Remove(HttpClients::iterator client) {
    if (client->phase == Phase::kSending) unsent_ -= std::ssize(client->bytes) - client->sent;
    shutdown(client->socket.get(), SHUT_RDWR);
    clients_.erase(client);
  }

  void Send(HttpClients::iterator client, std::string response) {
    client->phase = Phase::kSending;
    client->bytes = std::move(response);
    client->sent = 0;
    client->until_ns = After(limits_.progress_ms);
    client->sent_by_ns = After(limits_.response_ms);
    unsent_ += std::ssize(client->bytes);
  }

  // Reads or sends what is possible without waiting. Returns false if the connection must be closed.
  bool Advance(HttpClients::iterator client) {
    switch (client->phase) {
      case Phase::kReading:
        return Read(client);
      case Phase::kAnswering:
        if (Withdraw(client)) return false;
        client->phase = Phase::kAbandoned;
        return true;
      case Phase::kAbandoned:
        return true;
      case Phase::kSending:
        return SendMore(client);
      case Phase::kEnding:
        break;
    }
    char dropped[4096];
    const ssize_t n = recv(client->socket.get(), dropped, sizeof dropped, MSG_DONTWAIT);
    return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
  }

  bool Read(HttpClients::iterator client) {
    char buffer[4096];
    while (true) {
      const ssize_t n = recv(client->socket.get(), buffer, sizeof buffer, MSG_DONTWAIT);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && errno == EAGAIN) return true;
      if (n <= 0) return false;
      const size_t searched = client->bytes.size();
      client->bytes.append(buffer, n);
      if (client->bytes.find("\r\n\r\n", searched < 3 ? 0 : searched - 3) != std::string::npos) {
        const std::lock_guard lock(mutex_);
        if (ending_) return false;
        client->phase = Phase::kAnswering;
        client->until_ns = After(limits_.response_ms);
        requests_.push_back(client);
        requested_.notify_one();
        return true;
      }
      if (client->bytes.size() > kMaxHttpRequestBytes) {
        Send(client, kTooLargeRequest);
        return SendMore(client);
      }
    }
  }

  bool SendMore(HttpClients::iterator client) {
    while (client->sent < client->bytes.size()) {
      const absl::string_view rest = absl::string_view(client->bytes).substr(client->sent);
      const ssize_t n = send(client->socket.get(), rest.data(), rest.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && errno == EAGAIN) return true;
      if (n <= 0) return false;
      client->sent += n;
      unsent_ -= n;
      client->until_ns = std::min(After(limits_.progress_ms), client->sent_by_ns);
    }
    shutdown(client->socket.get(), SHUT_WR);
    client->phase = Phase::kEnding;
    std::string().swap(client->bytes);
    client->until_ns = After(kEndingMs);
    return true;
  }

  // --- The threads that compute responses.

  void AnswerRequests() {
    std::unique_lock lock(mutex_);
    while (true) {
      requested_.wait(lock, [this] { return ending_ || !requests_.empty(); });
      if (ending_) return;
      const HttpClients::iterator client = requests_.front();
      requests_.pop_front();
      ++answering_;
      lock.unlock();
      std::string response = answer_(client->bytes, client->address);
      if (std::ssize(response) > limits_.max_unsent_bytes) response = kTooLargeResponse;
      lock.lock();
      --answering_;
      answered_.emplace_back(client, std::move(response));
      Wake();
    }
  }

  const Answer answer_;
  const HttpLimits limits_;
  const FileDescriptor wake_;
  std::unique_ptr<AcceptGate> gate_;
  HttpClients clients_;  // Used by the thread of the connections. The others only read the requests that they answer.
  int64_t unsent_ = 0;   // The bytes of responses that have not been sent.
  std::mutex mutex_;     // Guards the following members.
  std::condition_variable requested_;
  std::deque<int> arrived_;  // The oldest connection is the first.
  std::deque<HttpClients::iterator> requests_;
  std::vector<std::pair<HttpClients::iterator, std::string>> answered_;
  int answering_ = 0;  // The number of responses that are being computed.
  bool ending_ = false;
  int64_t end_by_ns_ = 0;  // When responses are no longer sent. Valid if ending_ is set.
  std::vector<std::thread> threads_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<HttpConnections>> HttpConnections::Listen(const std::string& address, Answer answer,
                                                                         const HttpLimits& limits) {
  auto connections = std::make_unique<PollingConnections>(std::move(answer), limits);
  XLAD_RETURN_IF_ERROR(connections->Begin(address));
  return connections;
}

}  // namespace xlad::observe
