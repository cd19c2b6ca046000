// The part of TcpFabric that ends a failed task: it tells the peers the reason, and closes the connections.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <system_error>
#include <thread>
#include <vector>

#include "base/net/network.h"
#include "collectives/exec/transports/tcp/tcp.h"
#include "collectives/exec/transports/tcp/tcp_connection.h"

namespace xlad::collectives {
namespace {

// How often the fabric tests, after an abort, whether connections can be closed.
constexpr std::chrono::milliseconds kPollClosingEvery{1};
// How many peers without a connection are told the reason of an abort at the same time.
constexpr size_t kMaxTellers = 16;

}  // namespace

// Tells the peer the reason of the abort. If the peer has accepted the connection, it would otherwise report this
// worker as the cause of the connection's end.
void TcpFabric::TellDialed(Connection* connection) {
  connection->TryWrite(AsBytes(AbortFrame(abort_->failure()))).IgnoreError();
  connection->Shutdown();
}

void TcpFabric::OnAbort() {
  if (guests_ != nullptr) guests_->Close();
  std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [pair, connection] : connections_) connection->TellAbort();
  for (const auto& [pair, connection] : dialing_) TellDialed(connection);
  changed_.notify_all();
  if (!closer_.joinable()) closer_ = std::thread([this] { CloseAfterAbort(); });
}

// Closes all connections when both sides of each have sent the reason for its end, or after
// TcpOptions::close_after_abort_ms. A peer that has stopped reading or writing must not block a thread forever.
void TcpFabric::CloseAfterAbort() {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(options_.close_after_abort_ms);
  std::thread teller;
  if (options_.accept_timeout_ms > 0) teller = std::thread([this, end] { TellUnconnected(end); });
  {
    std::unique_lock<std::mutex> lock(mutex_);
    const auto all_have_ended = [&] {
      bool all = told_ || !teller.joinable();
      for (const auto& [pair, connection] : connections_) {
        all = connection->TellAbort() && connection->HasEnded() && all;
      }
      return all;
    };
    while (!all_have_ended() && std::chrono::steady_clock::now() < end) changed_.wait_for(lock, kPollClosingEvery);
    told_ = true;
    for (const auto& [pair, connection] : connections_) connection->stream().Shutdown();
    for (const auto& [pair, connection] : telling_) connection->Shutdown();
  }
  if (teller.joinable()) teller.join();
}

// Tells the reason of the abort to the peers without a connection. Peers with higher numbers would wait for a
// connection from this worker. Peers with lower numbers are refused with the reason (Welcome), but only as long as this
// fabric exists. Several threads do this, because a peer that does not answer blocks its thread. Each device begins
// with the peer that follows it, so that workers that fail together begin with different peers.
void TcpFabric::TellUnconnected(std::chrono::steady_clock::time_point end) {
  std::vector<Pair> pairs;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& [device, waiter] : waiters_) {
      auto peer = peers_.upper_bound(device);
      for (size_t i = 0; i < peers_.size(); ++i, ++peer) {
        if (peer == peers_.end()) peer = peers_.begin();
        if (connections_.count({device, peer->first}) == 0) pairs.emplace_back(device, peer->first);
      }
    }
  }
  const std::string reason = AbortFrame(abort_->failure());
  std::atomic<size_t> next = 0;
  const auto tell = [&] {
    // A peer that cannot be reached needs no reason.
    for (size_t i = next++; i < pairs.size(); i = next++) TellReason(pairs[i], reason, end).IgnoreError();
  };
  std::vector<std::thread> others;
  try {
    for (size_t i = 1; i < std::min(pairs.size(), kMaxTellers); ++i) others.emplace_back(tell);
  } catch (const std::system_error&) {  // There can be no more threads. Those that exist tell all peers.
  }
  tell();
  for (std::thread& other : others) other.join();
  std::lock_guard<std::mutex> lock(mutex_);
  told_ = true;
}

absl::Status TcpFabric::TellReason(Pair pair, const std::string& reason, std::chrono::steady_clock::time_point end) {
  const auto is_told = [&] { return told_ || connections_.count(pair) > 0; };
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (is_told()) return absl::OkStatus();
  }
  // If the peer does not answer, half of the remaining time is left for others.
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
  if (left.count() <= 0) return absl::DeadlineExceededError("no time is left");
  const std::string& address = peers_.at(pair.second).data_address;
  XLAD_ASSIGN_OR_RETURN(auto connection, network_->Dial(address, left.count() / 2));
  PeerHello hello = HelloTo(pair.first, pair.second, nullptr);
  hello.set_machine(kFailedMark);
  hello.clear_segment();
  Connection** known = nullptr;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (is_told()) return absl::OkStatus();
    known = &telling_[pair];
    *known = connection.get();
  }
  absl::Status status = WriteBlock(connection.get(), hello.SerializeAsString());
  if (status.ok() && IsOffLoopback(address)) status = SecureDialed(hello, known, &connection);
  if (status.ok()) status = connection->Write(AsBytes(reason));
  std::lock_guard<std::mutex> lock(mutex_);
  telling_.erase(pair);
  return status;
}

// Takes over a connection on which a peer, whose task has failed, sends the reason.
void TcpFabric::HearReason(std::unique_ptr<Connection> connection, const PeerHello& hello) {
  const Pair pair(hello.to_device(), hello.from_device());
  std::lock_guard<std::mutex> lock(mutex_);
  if (abort_->raised() || !CheckHello(hello).ok() || closing_ || connections_.count(pair) > 0) return;
  Adopt(pair, {std::move(connection), nullptr, "", /*brings_reason=*/true});
}

}  // namespace xlad::collectives
