// Between devices of different processes: one connection for each pair of devices, over base/network.h.
//
// A thread for each connection reads all the time, so that a peer's death is noticed at once and senders never lock
// up; messages wait in memory until the device takes them, at most `slots` for each link.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/network.h"
#include "collectives/exec/bootstrap.h"
#include "collectives/exec/transport.h"
#include "collectives/exec/waiter.h"
#include "proto/worker.pb.h"

namespace xlad::collectives {

class TcpConnection;  // tcp_connection.h

struct TcpOptions {
  std::string job_id;
  int64_t attempt = 0;
  int64_t generation = 0;
  std::string worker_id;
  uint64_t incarnation = 0;
  int slots = 4;
  int64_t max_message_bytes = int64_t{1} << 40;
  int64_t dial_timeout_ms = 10'000;
};

// All connections of one task's devices on this worker. Thread-safe; each device's transport is for its thread alone.
class TcpFabric {
 public:
  // `waiters`: the devices here. `peers`: all others. Waiters, network and abort signal must outlive the fabric.
  TcpFabric(const TcpOptions& options, const std::map<int, Waiter*>& waiters, const std::map<int, PeerInfo>& peers,
            Network* network, AbortSignal* abort);
  // Ends what is open without a word, unless Finish came before.
  ~TcpFabric();

  Transport& transport(int device);
  const TcpOptions& options() const { return options_; }

  // A connection that a peer dialed, and what it said. Answers it.
  void Accept(std::unique_ptr<Connection> connection, const PeerHello& hello);

  // Says good-bye to every peer and waits until they have done so too. The abort signal's error where it was raised.
  absl::Status Finish();
  // Says good-bye without waiting: peers that need nothing more see no failure.
  void Leave();

 private:
  friend class TcpTransport;
  using Pair = std::pair<int, int>;  // Here, there.

  absl::StatusOr<TcpConnection*> GetConnection(int device, int peer);
  absl::StatusOr<std::unique_ptr<Connection>> Dial(int device, int peer);
  absl::Status CheckHello(const PeerHello& hello) const;
  void OnAbort();
  void TellDialed(Connection* connection);
  TcpConnection* Adopt(Pair pair, std::unique_ptr<Connection> connection);

  const TcpOptions options_;
  const std::map<int, Waiter*> waiters_;
  const std::map<int, PeerInfo> peers_;
  Network* const network_;
  AbortSignal* const abort_;
  int64_t listener_id_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool closing_ = false;
  std::thread cutter_;  // From an abort on: ends connections whose writer does not come back.
  std::map<Pair, std::unique_ptr<TcpConnection>> connections_;
  std::map<Pair, Connection*> dialing_;  // Waiting for the peer's answer.
  std::map<int, std::unique_ptr<Transport>> transports_;
};

}  // namespace xlad::collectives
