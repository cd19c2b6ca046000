#include "collectives/exec/transports/tcp/data_plane.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "collectives/exec/transports/frame.h"

namespace xlad::collectives {
namespace {

constexpr size_t kMaxWaiting = 1024;
constexpr std::chrono::milliseconds kPause{50};  // After an error of Accept.

// Whether `hello` belongs to an earlier attempt or generation than `task`.
bool IsStale(const PeerHello& hello, const TcpOptions& task) {
  return std::make_pair(hello.attempt(), hello.generation()) < std::make_pair(task.attempt, task.generation);
}
bool IsLater(const TcpOptions& a, const TcpOptions& b) {
  return std::make_pair(a.attempt, a.generation) > std::make_pair(b.attempt, b.generation);
}

}  // namespace

absl::StatusOr<std::unique_ptr<DataPlane>> DataPlane::Listen(Network* network, const std::string& address) {
  XLAD_ASSIGN_OR_RETURN(const HostPort host_port, ParseHostPort(address));
  if (!IsLoopback(host_port.host)) {
    return absl::InvalidArgumentError(
        absl::StrCat("found data address ", address,
                     ", expected a loopback address such as 127.0.0.1:0, because these connections are neither "
                     "encrypted nor authenticated"));
  }
  return ListenForSecured(network, address);
}

absl::StatusOr<std::unique_ptr<DataPlane>> DataPlane::ListenForSecured(Network* network, const std::string& address) {
  XLAD_ASSIGN_OR_RETURN(std::unique_ptr<Listener> listener, network->Listen(address));
  return std::unique_ptr<DataPlane>(new DataPlane(std::move(listener)));
}

std::unique_ptr<DataPlane> DataPlane::WithoutListener() { return std::unique_ptr<DataPlane>(new DataPlane(nullptr)); }

DataPlane::DataPlane(std::unique_ptr<Listener> listener) : listener_(std::move(listener)) {
  if (listener_ != nullptr) acceptor_ = std::thread([this] { AcceptLoop(); });
}

DataPlane::~DataPlane() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    closing_ = true;
    closed_.notify_all();
    for (PendingHello& pending : pending_hellos_) {
      if (pending.connection != nullptr) pending.connection->Shutdown();
    }
  }
  if (listener_ != nullptr) {
    listener_->Shutdown();
    acceptor_.join();
  }
  for (PendingHello& pending : pending_hellos_) pending.thread.join();
}

void DataPlane::AcceptLoop() {
  bool is_failing = false;
  while (true) {
    absl::StatusOr<std::unique_ptr<Connection>> connection = listener_->Accept();
    if (absl::IsCancelled(connection.status())) return;
    JoinDone();
    if (!connection.ok()) {
      // The process may have no free descriptor, for example. Only the first error is logged.
      if (!std::exchange(is_failing, true)) {
        LogError("data plane: cannot accept a connection, trying again",
                 {{"error", std::string(connection.status().message())}});
      }
      std::unique_lock<std::mutex> lock(mutex_);
      closed_.wait_for(lock, kPause, [&] { return closing_; });
      continue;
    }
    is_failing = false;
    std::lock_guard<std::mutex> lock(mutex_);
    if (closing_ || pending_hellos_.size() >= kMaxWaiting) continue;
    PendingHello& pending = pending_hellos_.emplace_back();
    pending.owned = *std::move(connection);
    pending.connection = pending.owned.get();
    pending.thread = std::thread([this, &pending] { ReadHello(&pending); });
  }
}

// Joins the threads of connections whose hello has been read.
void DataPlane::JoinDone() {
  std::list<PendingHello> done;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    for (auto at = pending_hellos_.begin(); at != pending_hellos_.end();) {
      const auto next = std::next(at);
      if (at->done) done.splice(done.end(), pending_hellos_, at);
      at = next;
    }
  }
  for (PendingHello& pending : done) pending.thread.join();
}

// Reads the hello of a new connection. Each connection has its own thread, because a peer may be silent for a long
// time.
void DataPlane::ReadHello(PendingHello* pending) {
  const absl::StatusOr<std::string> block = ReadBlock(pending->connection);
  std::unique_ptr<Connection> connection;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    connection = std::move(pending->owned);
    pending->connection = nullptr;
  }
  PeerHello hello;
  if (block.ok() && hello.ParseFromString(*block)) {
    Deliver(std::move(connection), hello);
  } else {
    LogWarn("data plane: a connection sent no valid hello",
            {{"peer", connection->Peer()}, {"error", std::string(block.status().message())}});
  }
  std::lock_guard<std::mutex> lock(mutex_);
  pending->done = true;
}

void DataPlane::Deliver(std::unique_ptr<Connection> connection, const PeerHello& hello) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto task = tasks_.find(hello.job_id());
  const TcpOptions* here = task == tasks_.end() ? nullptr : &task->second->options();
  if (here == nullptr ||
      std::make_pair(hello.attempt(), hello.generation()) > std::make_pair(here->attempt, here->generation)) {
    if (waiting_.size() >= kMaxWaiting) waiting_.pop_front();
    waiting_.push_back({std::move(connection), hello});
    return;
  }
  task->second->Accept(std::move(connection), hello);
}

void DataPlane::AddTask(TcpFabric* fabric) {
  std::lock_guard<std::mutex> lock(mutex_);
  const TcpOptions& options = fabric->options();
  TcpFabric*& here = tasks_[options.job_id];
  // An attempt that is ending must not replace the attempt that follows it.
  if (here != nullptr && IsLater(here->options(), options)) return;
  here = fabric;
  for (auto at = waiting_.begin(); at != waiting_.end();) {
    const auto next = std::next(at);
    if (at->hello.job_id() == options.job_id) {
      const bool same = at->hello.attempt() == options.attempt && at->hello.generation() == options.generation;
      if (same) fabric->Accept(std::move(at->connection), at->hello);
      if (!same && IsStale(at->hello, options)) {
        RefusePeer(at->connection.get(), "a later attempt or generation of the job runs here");
      }
      if (same || IsStale(at->hello, options)) waiting_.erase(at);
    }
    at = next;
  }
}

void DataPlane::RemoveTask(TcpFabric* fabric) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto task = tasks_.find(fabric->options().job_id);
  if (task != tasks_.end() && task->second == fabric) tasks_.erase(task);
}

}  // namespace xlad::collectives
