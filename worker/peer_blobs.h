// Blobs from worker to worker: the workers of an attempt read from each other what the coordinator has sent to one of
// them (docs/decisions/0042-blobs-from-worker-to-worker.md).
//
// A reader connects to the data port of a peer with a hello of the attempt, as devices do, and the connection is
// secured in the same way: with the key of the attempt, unless it is on loopback. Then the reader sends PeerBlobRequest
// messages. For each block of the range, the server answers with PeerBlobAnswer and the bytes.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/types/span.h"
#include "base/clock.h"
#include "base/net/network.h"
#include "collectives/exec/abort.h"
#include "collectives/exec/transports/tcp/secured_guests.h"
#include "proto/worker.pb.h"
#include "proto/xlad_v1.h"
#include "storage/host_cache.h"

namespace xlad::worker {

// The workers of an attempt, and the hello with which one of them connects to the others.
struct AttemptPeers {
  AttemptPeers(const LaunchTask& launch, const std::string& self);

  PeerHello hello;                               // The first message of a connection for blobs.
  std::string key;                               // The key of the attempt.
  std::map<std::string, std::string> addresses;  // The data address of each worker, by its id.
};

// Serves the blocks that are in the cache of this host. Thread-safe.
class PeerBlobServer {
 public:
  static constexpr int64_t kMaxRangeBytes = 64 << 20;

  struct Options {
    // Each connection has a thread and memory for one block. At the limit, a new connection replaces the one that has
    // been idle longest. If none is idle, it replaces the one whose reader has been silent longest, without sending a
    // request or taking bytes, provided that the silence has lasted for at least silent_ms. Otherwise, the server
    // answers the new reader that it is full and closes the connection.
    size_t max_connections = 64;
    int64_t max_wait_ms = 3000;  // The time that a reader waits for a block that this host is about to read.
    int64_t silent_ms = 30'000;
    const Clock* clock = &RealClock();
  };
  PeerBlobServer(std::shared_ptr<storage::HostCache> cache, AttemptPeers peers, const Options& options);
  ~PeerBlobServer();  // Closes all connections.

  // Serves a connection whose hello has been read. It is closed if the hello is not of this attempt.
  void Take(std::unique_ptr<Connection> connection, const PeerHello& hello);

  // The number of bytes of blobs that have been sent so far, including the block that is being sent.
  int64_t sent_bytes() const { return sent_bytes_; }

 private:
  struct Guest {
    std::unique_ptr<Connection> connection;
    std::thread thread;
    int64_t idle_since = 0;  // A number that grows with time; 0 if a request is in progress or none has been sent.
    int64_t active_ns = 0;   // When it connected, or when the last request or block was transferred.
    std::atomic<bool> closed = false;  // Another connection has replaced it, or the server is ending.
    bool done = false;
  };
  void Serve(Guest* guest);
  // Returns false if the connection has been closed.
  bool SetIdle(bool is_idle, Guest* guest);
  // Removes and returns the connection that a new one replaces, or returns an empty list if there is none.
  std::list<Guest> TakeReplaced();
  absl::Status Answer(const PeerBlobRequest& request, Guest* guest);
  void Start(std::unique_ptr<Connection> connection);

  const std::shared_ptr<storage::HostCache> cache_;
  const AttemptPeers peers_;
  const Options options_;
  std::atomic<bool> ending_ = false;
  std::atomic<int64_t> sent_bytes_ = 0;
  std::mutex mutex_;
  std::list<Guest> guests_;
  int64_t times_ = 0;
  collectives::SecuredGuests secured_;  // Declared last, because its threads use the other members.
};

// Reads from peers. Thread-safe.
class PeerBlobs {
 public:
  // The network must exist until the process ends, because threads may still connect after an abort.
  PeerBlobs(Network* network, AttemptPeers peers) : network_(network), peers_(std::move(peers)) {}

  // Fills `out` with the range of `request`, and compares each block with its checksum. The range begins at the start
  // of a block, ends at the end of a block or of the blob, and has at most PeerBlobServer::kMaxRangeBytes. If `abort`
  // is raised, returns its status. Other errors:
  //   NotFound           if the peer does not have the bytes, or refuses the request;
  //   DataLoss           if a checksum differs;
  //   InvalidArgument    if `peer` is not another worker of the attempt, or there is not one checksum for each block;
  //   Unavailable        if the peer cannot be reached;
  //   ResourceExhausted  if the peer has too many readers now.
  absl::Status Read(const std::string& peer, const PeerBlobRequest& request, const std::vector<uint64_t>& sums,
                    absl::Span<std::byte> out, collectives::AbortSignal* abort);

  const std::string& self() const { return peers_.hello.worker_id(); }
  const PeerHello& hello() const { return peers_.hello; }
  int64_t received_bytes() const { return received_bytes_; }

 private:
  struct Link {
    std::mutex mutex;  // Held during a request.
    std::unique_ptr<Connection> connection;
  };
  absl::StatusOr<std::unique_ptr<Connection>> Connect(const std::string& address,
                                                      collectives::AbortSignal* abort) const;
  absl::StatusOr<std::unique_ptr<Connection>> Dial(const std::string& address, collectives::AbortSignal* abort) const;
  absl::Status Greet(const std::string& address, std::unique_ptr<Connection>* connection) const;
  static absl::Status Receive(Connection* connection, const PeerBlobRequest& request, const std::vector<uint64_t>& sums,
                              absl::Span<std::byte> out);

  Network* const network_;
  const AttemptPeers peers_;
  std::atomic<int64_t> received_bytes_ = 0;
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Link>> links_;
};

}  // namespace xlad::worker
