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
#include "base/network.h"
#include "collectives/exec/abort.h"
#include "collectives/exec/transports/tcp/secured_guests.h"
#include "proto/worker.pb.h"
#include "proto/xlad_v1.h"
#include "storage/host_cache.h"

namespace xlad::worker {

// The workers of an attempt, as one of them sees them.
struct AttemptPeers {
  AttemptPeers(const LaunchTask& launch, const std::string& self);

  PeerHello hello;                               // What begins a connection for blobs.
  std::string key;                               // The key of the attempt.
  std::map<std::string, std::string> addresses;  // By worker: its data port.
};

// Serves the blocks that the cache of this host has. Thread-safe.
class PeerBlobServer {
 public:
  static constexpr int64_t kMaxRangeBytes = 64 << 20;

  struct Options {
    size_t max_connections = 64;  // Further ones are closed. Each has a thread and the memory for one block.
    int64_t max_wait_ms = 3000;   // For a block that is about to be read here.
  };
  PeerBlobServer(std::shared_ptr<storage::HostCache> cache, AttemptPeers peers, const Options& options);
  ~PeerBlobServer();  // Closes all connections.

  // Serves a connection whose hello has been read. It is closed if the hello is not of this attempt.
  void Take(std::unique_ptr<Connection> connection, const PeerHello& hello);

  int64_t sent_bytes() const { return sent_bytes_; }

 private:
  struct Guest {
    std::unique_ptr<Connection> connection;
    std::thread thread;
    bool done = false;
  };
  void Serve(Connection* connection);
  absl::Status Answer(const PeerBlobRequest& request, Connection* connection);
  void Start(std::unique_ptr<Connection> connection);

  const std::shared_ptr<storage::HostCache> cache_;
  const AttemptPeers peers_;
  const Options options_;
  std::atomic<bool> ending_ = false;
  std::atomic<int64_t> sent_bytes_ = 0;
  std::mutex mutex_;
  std::list<Guest> guests_;
  collectives::SecuredGuests secured_;  // Last: its threads use the other members.
};

// Reads from peers. Thread-safe.
class PeerBlobs {
 public:
  PeerBlobs(Network* network, AttemptPeers peers) : network_(network), peers_(std::move(peers)) {}

  // Fills `out` with the bytes of the blob from `offset`, and compares each block with its checksum. `offset` is the
  // beginning of a block. NotFound if the peer does not have them, DataLoss if they differ, InvalidArgument if the
  // attempt has no such peer, Unavailable if it cannot be reached; the status of `abort` when that is raised.
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
  absl::StatusOr<std::unique_ptr<Connection>> Dial(const std::string& address) const;
  static absl::Status Receive(Connection* connection, const PeerBlobRequest& request, const std::vector<uint64_t>& sums,
                              absl::Span<std::byte> out);

  Network* const network_;
  const AttemptPeers peers_;
  std::atomic<int64_t> received_bytes_ = 0;
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Link>> links_;
};

}  // namespace xlad::worker
