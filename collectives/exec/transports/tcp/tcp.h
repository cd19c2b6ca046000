// The transport between devices of different processes, with one connection per pair of devices (base/net/network.h).
// Messages are sent through the connection by default. They are sent through shared memory if both processes are on one
// machine and can map each other's memory, or through a plugin (plugin/xlad_transport.h) if the caller chooses one. In
// both cases the connection carries only aborts and the end of the task, and detects the end of the peer's process.
//
// One thread per connection reads continuously, so the end of a peer is detected at once and senders cannot deadlock.
// Messages are kept in memory until the device receives them, at most `slots` per link.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/net/network.h"
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
  // The key that encrypts connections to data addresses other than loopback. All workers of the attempt have it.
  std::string key;
  // The HOST:PORT at which peers reach this worker. An empty address is treated like a loopback address.
  std::string data_address;
  int slots = 4;  // The slots of each link; at least kMinDeviceSlots if devices share memory.
  int64_t max_message_bytes = int64_t{1} << 40;
  int64_t dial_timeout_ms = 10'000;
  // How long a device waits for a connection that the peer dials, or 0 if there is no limit. A coordinator tells the
  // other workers when a worker fails. A group without a coordinator needs a limit; with a limit, a worker whose task
  // fails also tells the peers to which it has not connected yet.
  int64_t accept_timeout_ms = 0;
  // Whether the process of a peer has ended; null if this worker cannot find out. Called repeatedly while a device
  // waits, with a limit, for a connection that the peer dials.
  std::function<bool(const PeerInfo& peer)> has_ended;
  // After an abort, a connection is closed when the reason has been sent and the peer has answered, or after this time.
  int64_t close_after_abort_ms = 250;
  // How long the peer's reason may take to arrive on the connection after its path has failed.
  int64_t reason_ms = 200;
  // The waiting words of the devices on this worker, in order, or null if no memory is shared. Must outlive the fabric.
  const SharedWaiters* shared = nullptr;
  // The size in bytes of the ring in shared memory for each direction between two devices, or 0 to share no memory.
  size_t ring_bytes = 256 << 10;
  bool requires_shared = false;  // A peer is refused if memory cannot be shared with it.
  // The engines of the devices on this worker, if messages are sent through a plugin. Must outlive the fabric.
  std::map<int, Engine*> engines;
};

// All connections of one task's devices on this worker. Thread-safe, except that only the thread of a device may use
// its transport. The class has more than 25 methods because it has one for each stage of opening and of ending a
// connection.
class TcpFabric {
 public:
  // `waiters` contains the devices on this worker, `peers` all others. The waiters, the network and the abort signal
  // must outlive the fabric.
  TcpFabric(const TcpOptions& options, const std::map<int, Waiter*>& waiters, const std::map<int, PeerInfo>& peers,
            Network* network, AbortSignal* abort);
  // Closes open connections without notice, unless Finish or Leave was called. After an abort, first waits until all
  // peers have been told the reason, but at most for about TcpOptions::close_after_abort_ms.
  ~TcpFabric();

  Transport& transport(int device);
  const TcpOptions& options() const { return options_; }

  // Receives those messages of the device that are not sent through connections. Called by the device's thread.
  void Pump(int device);
  int connections();
  // The number of connections that send messages through shared memory.
  int shared_connections() const { return shared_connections_; }

  // Returns, by worker id, for how many milliseconds the worker's machine has not answered although a connection awaits
  // an answer. Omits times below 500 ms. Must be called about every 100 ms, by one thread (SilenceWatch).
  std::map<std::string, int64_t> SilentWorkers(int64_t now_ns);

  // Takes over and answers a connection that a peer dialed, given its hello.
  void Accept(std::unique_ptr<Connection> connection, const PeerHello& hello);

  // Tells every peer that the task has ended, and waits until all peers have told this worker the same. Returns the
  // error of the abort signal if it is raised. Devices must not use their transports meanwhile.
  absl::Status Finish();
  // Tells the peers that the task has ended, without waiting for them. Peers that need no more messages do not fail.
  void Leave();

 private:
  friend class TcpTransport;
  using Pair = std::pair<int, int>;  // The local device and the peer device.
  // The machine in the hello of a worker whose task has failed. An abort frame follows the hello, which gets no answer.
  static constexpr char kFailedMark[] = "failed";

  absl::StatusOr<TcpConnection*> GetConnection(int device, int peer);
  absl::Status WaitForDialer(Pair pair, std::unique_lock<std::mutex>* lock);
  struct Dialed {
    std::unique_ptr<Connection> connection;
    std::unique_ptr<SharedPipe> pipe;
    std::string plugin_address;
    bool brings_reason = false;  // The peer opened the connection only to send the reason of its failure.
  };
  absl::StatusOr<std::unique_ptr<Connection>> Connect(Pair pair);
  absl::StatusOr<Dialed> Dial(int device, int peer);
  PeerHello HelloTo(int device, int peer, const SharedPipe* pipe) const;
  absl::StatusOr<PeerWelcome> SayHello(Pair pair, const PeerHello& hello, std::unique_ptr<Connection>* connection);
  absl::Status SecureDialed(const PeerHello& hello, Connection** known, std::unique_ptr<Connection>* connection);
  // Answers a hello on a connection that has been secured if necessary.
  void Welcome(std::unique_ptr<Connection> connection, const PeerHello& hello);
  // Returns null, and logs the reason, if memory cannot be shared.
  std::unique_ptr<SharedPipe> OfferPipe(int device);
  std::unique_ptr<SharedPipe> AcceptPipe(const PeerHello& hello);
  absl::Status CheckHello(const PeerHello& hello) const;
  absl::Status CheckPaths(const PeerHello& hello) const;
  absl::Status CheckShared(const SharedPipe* pipe, const std::string& peer) const;
  std::string Plugin() const { return options_.engines.empty() ? "" : options_.engines.begin()->second->name(); }
  void OnAbort();
  void CloseAfterAbort();
  void TellDialed(Connection* connection);
  void TellUnconnected(std::chrono::steady_clock::time_point end);
  absl::Status TellReason(Pair pair, const std::string& reason, std::chrono::steady_clock::time_point end);
  void HearReason(std::unique_ptr<Connection> connection, const PeerHello& hello);
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
  bool told_ = false;   // The peers without a connection know the reason, or there is no more time to tell them.
  std::thread closer_;  // Started by an abort; runs CloseAfterAbort.
  std::map<Pair, std::unique_ptr<TcpConnection>> connections_;
  // The connections of a device that have a FramePath. Only the device's thread uses `seen`.
  struct Pumped {
    std::vector<TcpConnection*> all, seen;
    std::atomic<size_t> count = 0;
  };
  std::map<int, std::unique_ptr<Pumped>> pumped_;
  std::atomic<int> shared_connections_ = 0;
  std::set<Pair> connecting_;            // Pairs whose connection is being dialed.
  std::map<Pair, Connection*> dialing_;  // Connections that wait for the peer's answer.
  std::map<Pair, Connection*> telling_;  // Connections that bring a reason to a peer (TellReason).
  SilenceWatch silence_;
  std::map<int, std::unique_ptr<Transport>> transports_;
  // Null if this worker is on loopback. Declared last, because its threads use the other members.
  std::unique_ptr<SecuredGuests> guests_;
};

}  // namespace xlad::collectives
