// The listener of a worker daemon for connections from other workers' devices. It reads the hello of each connection
// and passes the socket to the attempt that the hello names.
//
// Unknown clients can connect to the port, so the resources that they can occupy are bounded: at most `max_greeting`
// connections whose hello has not arrived, and at most `max_waiting` for attempts that have not been added, each for a
// limited time. Beyond these limits, the oldest connection of the source with the most connections is closed, so that
// peers that send their hello at once are accepted. If the process has no descriptor left, new connections are closed
// immediately.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "base/file_descriptor.h"
#include "base/status.h"
#include "proto/worker.pb.h"
#include "proto/xlad_v1.h"
#include "worker/worker_core.h"

namespace xlad::worker {

struct PeerAcceptorLimits {
  size_t max_greeting = 256;
  size_t max_waiting = 1024;
  int64_t greeting_ms = 5000;
  int64_t waiting_ms = 60'000;
};

// Thread-safe.
class PeerAcceptor {
 public:
  // Receives the socket of a peer's connection, its hello, and its address for messages. Must not block and must
  // not call the acceptor.
  using Take = std::function<void(FileDescriptor socket, const PeerHello& hello, const std::string& address)>;

  // Listens on HOST:PORT; the system chooses the port if it is 0. On loopback, connections of other users of this
  // machine are closed. On other addresses, everyone can connect and send a hello; the attempts secure the connections
  // (security/secure_connection.h). InvalidArgument for unknown hosts, AlreadyExists if the port is in use, Unavailable
  // for other errors of the system.
  static absl::StatusOr<std::unique_ptr<PeerAcceptor>> Listen(const std::string& address,
                                                              const PeerAcceptorLimits& limits = {});
  ~PeerAcceptor();

  std::string address() const { return address_; }

  // Passes the connections of this attempt to `take` until Remove has returned, including connections that are already
  // waiting. Until then, connections of earlier attempts of the job are refused, unless these attempts have been added
  // too.
  void Add(const TaskKey& key, Take take);
  void Remove(const TaskKey& key);

 private:
  // A connection that has not been passed to an attempt yet.
  struct Guest {
    FileDescriptor socket;
    std::string source;   // The peer's host.
    std::string address;  // The peer's HOST:PORT.
    int64_t until_ns = 0;
    std::string received;
    PeerHello hello;  // Set if the connection waits for its attempt.
  };
  using Guests = std::list<Guest>;

  PeerAcceptor(FileDescriptor listener, std::string address, const PeerAcceptorLimits& limits);
  void Run();
  void Accept();
  void RefuseOne();
  // Reads the part of a hello that has arrived. Returns false if the guest must be removed because it was routed, has
  // disconnected, or has sent bytes that are not a hello.
  bool Greet(Guest* guest);
  void Route(Guest guest);
  static void Refuse(Guest guest, absl::string_view why);
  static void MakeRoom(Guests* guests, size_t limit);
  static void Expire(Guests* guests, int64_t now_ns, absl::string_view why);

  const PeerAcceptorLimits limits_;
  const FileDescriptor listener_;
  const std::string address_;
  const bool same_user_only_;
  FileDescriptor wake_;     // An eventfd.
  FileDescriptor reserve_;  // Closed when the process has no descriptor left, to accept and close a connection.
  // Used by the thread only.
  Guests greeting_;
  int64_t accept_from_ns_ = 0;  // The time from which connections are accepted again after a failure.

  std::mutex mutex_;
  bool ending_ = false;
  std::map<TaskKey, Take> attempts_;
  Guests waiting_;
  std::thread thread_;
};

}  // namespace xlad::worker
