// The transport between devices of different processes: one connection per pair of devices, over base/network.h.
// Messages go through the connection; or, if both processes are on one machine and can map each other's memory, through
// shared memory; or through a plugin (plugin/xlad_transport.h). The connection then still detects the end of the peer.
//
// One thread per connection reads continuously, so that the end of a peer is detected at once and senders cannot
// deadlock. Messages are kept in memory until the device takes them, at most `slots` per link.
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/network.h"
#include "collectives/exec/bootstrap.h"
#include "collectives/exec/silence.h"
#include "collectives/exec/transport.h"
#include "collectives/exec/transports/plugin/engine.h"
#include "collectives/exec/transports/shared_memory/shared_memory.h"
#include "collectives/exec/transports/tcp/secured_guests.h"
#include "collectives/exec/waiter.h"
#include "proto/worker.pb.h"
#include "proto/xlad_v1.h"

namespace xlad::collectives {

class TcpConnection;  // tcp_connection.h

struct TcpOptions {
  std::string job_id;
  int64_t attempt = 0;
  int64_t generation = 0;
  std::string worker_id;
  uint64_t incarnation = 0;
  // Connections to a data address off loopback are encrypted with this key, which all workers of the attempt have.
  std::string key;
  std::string data_address;  // By which peers reach this worker; empty: on loopback.
  int slots = 4;
  int64_t max_message_bytes = int64_t{1} << 40;
  int64_t dial_timeout_ms = 10'000;
  // The waiting words of the devices on this worker, in order; null to share no memory. Must outlive the fabric.
  const SharedWaiters* shared = nullptr;
  size_t ring_bytes = 256 << 10;  // Shared memory per direction between two devices; 0 to use none.
  bool requires_shared = false;   // A peer with which no memory can be shared is refused.
  // The engines of the devices on this worker, if messages go through a plugin. Must outlive the fabric.
  std::map<int, Engine*> engines;
};

// All connections of one task's devices on this worker. Thread-safe, except that a device's transport is used by its
// thread only. It has more than 25 methods because it has one for each stage of opening and of ending a connection.
class TcpFabric {
 public:
  // `waiters` has the devices on this worker, `peers` all others. Waiters, network and abort signal must outlive the
  // fabric.
  TcpFabric(const TcpOptions& options, const std::map<int, Waiter*>& waiters, const std::map<int, PeerInfo>& peers,
            Network* network, AbortSignal* abort);
  // Closes open connections without notice, unless Finish was called. After an abort it waits until all peers know the
  // reason, but not long for peers that do not respond.
  ~TcpFabric();

  Transport& transport(int device);
  const TcpOptions& options() const { return options_; }

  // Receives the device's messages that do not come through connections. Called by the device's thread.
  void Pump(int device);
  int connections();
  // The number of connections that send messages through shared memory.
  int shared_connections() const { return shared_connections_; }

  // By worker: the milliseconds for which its machine has answered nothing that was awaited; only if it is half a
  // second or more. To be called about every 100 ms, by one thread.
  std::map<std::string, int64_t> SilentWorkers(int64_t now_ns);

  // Takes over a connection that a peer dialed, with its hello, and answers it.
  void Accept(std::unique_ptr<Connection> connection, const PeerHello& hello);

  // Sends the end of the task to every peer and waits until all peers have sent theirs. Returns the error of the abort
  // signal if that is raised. No device uses its transport meanwhile.
  absl::Status Finish();
  // Sends the end of the task without waiting: peers that need no more messages see no failure.
  void Leave();

 private:
  friend class TcpTransport;
  using Pair = std::pair<int, int>;  // Local device, peer device.

  absl::StatusOr<TcpConnection*> GetConnection(int device, int peer);
  struct Dialed {
    std::unique_ptr<Connection> connection;
    std::unique_ptr<SharedPipe> pipe;
    std::string plugin_address;
  };
  absl::StatusOr<std::unique_ptr<Connection>> Connect(Pair pair);
  absl::StatusOr<Dialed> Dial(int device, int peer);
  PeerHello HelloTo(int device, int peer, const SharedPipe* pipe) const;
  absl::StatusOr<PeerWelcome> SayHello(Pair pair, const PeerHello& hello, std::unique_ptr<Connection>* connection);
  absl::Status SecureDialed(const PeerHello& hello, std::unique_ptr<Connection>* connection);
  // Answers a hello on a connection that is secured if it has to be.
  void Welcome(std::unique_ptr<Connection> connection, const PeerHello& hello);
  // Returns null, and logs the reason, if memory cannot be shared.
  std::unique_ptr<SharedPipe> OfferPipe(int device);
  std::unique_ptr<SharedPipe> AcceptPipe(const PeerHello& hello);
  absl::Status CheckHello(const PeerHello& hello) const;
  absl::Status CheckPaths(const PeerHello& hello) const;
  absl::Status CheckShared(const SharedPipe* pipe, const std::string& peer) const;
  std::string Plugin() const { return options_.engines.empty() ? "" : options_.engines.begin()->second->name(); }
  void OnAbort();
  void SayFarewell();
  void TellDialed(Connection* connection);
  TcpConnection* Adopt(Pair pair, Dialed dialed);
  int IndexOf(int device) const;

  const TcpOptions options_;
  const std::map<int, Waiter*> waiters_;
  const std::string machine_;  // Empty if no memory is shared.
  const std::map<int, PeerInfo> peers_;
  Network* const network_;
  AbortSignal* const abort_;
  int64_t listener_id_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool closing_ = false;
  std::thread farewell_;  // Started by an abort.
  std::map<Pair, std::unique_ptr<TcpConnection>> connections_;
  // The connections of a device that have a FramePath. `seen` is used by its thread only.
  struct Pumped {
    std::vector<TcpConnection*> all, seen;
    std::atomic<size_t> count = 0;
  };
  std::map<int, std::unique_ptr<Pumped>> pumped_;
  std::atomic<int> shared_connections_ = 0;
  std::set<Pair> connecting_;            // Pairs for which there is no connection yet.
  std::map<Pair, Connection*> dialing_;  // Connections that wait for the peer's answer.
  SilenceWatch silence_;
  std::map<int, std::unique_ptr<Transport>> transports_;
  std::unique_ptr<SecuredGuests> guests_;  // Null if this worker is on loopback. Last: its threads use the rest.
};

}  // namespace xlad::collectives
