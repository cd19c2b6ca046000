// Between devices of different processes: one connection for each pair of devices, over base/network.h; and where both
// processes are on one machine and can map each other's memory, messages go through that.
//
// A thread for each connection reads all the time, so that a peer's death is noticed at once and senders never lock
// up; messages wait in memory until the device takes them, at most `slots` for each link.
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/network.h"
#include "collectives/exec/bootstrap.h"
#include "collectives/exec/transport.h"
#include "collectives/exec/transports/shared_memory.h"
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
  // The waiting words of the devices here, in order; null: no memory is shared. Outlives the fabric.
  const SharedWaiters* shared = nullptr;
  size_t ring_bytes = 256 << 10;  // Of shared memory, for each direction between two devices; 0: none is used.
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

  // Takes what has come for the device through shared memory. By its thread.
  void Pump(int device);
  // So many connections pass their messages through shared memory.
  int shared_connections() const { return shared_connections_; }

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
  struct Dialed {
    std::unique_ptr<Connection> connection;
    std::unique_ptr<SharedPipe> pipe;
  };
  absl::StatusOr<Dialed> Dial(int device, int peer);
  absl::StatusOr<PeerWelcome> SayHello(int device, int peer, const SharedPipe* pipe, Connection* connection);
  // Where memory cannot be shared: null, and the log says why.
  std::unique_ptr<SharedPipe> OfferPipe(int device);
  std::unique_ptr<SharedPipe> AcceptPipe(const PeerHello& hello);
  absl::Status CheckHello(const PeerHello& hello) const;
  void OnAbort();
  void TellDialed(Connection* connection);
  TcpConnection* Adopt(Pair pair, Dialed dialed);
  int IndexOf(int device) const;

  const TcpOptions options_;
  const std::map<int, Waiter*> waiters_;
  const std::string machine_;  // Empty: no memory is shared.
  const std::map<int, PeerInfo> peers_;
  Network* const network_;
  AbortSignal* const abort_;
  int64_t listener_id_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool closing_ = false;
  std::thread cutter_;  // From an abort on: ends connections whose writer does not come back.
  std::map<Pair, std::unique_ptr<TcpConnection>> connections_;
  // Those of a device that share memory; `seen` is for its thread.
  struct Pumped {
    std::vector<TcpConnection*> all, seen;
    std::atomic<size_t> count = 0;
  };
  std::map<int, std::unique_ptr<Pumped>> pumped_;
  std::atomic<int> shared_connections_ = 0;
  std::map<Pair, Connection*> dialing_;  // Waiting for the peer's answer.
  std::map<int, std::unique_ptr<Transport>> transports_;
};

}  // namespace xlad::collectives
