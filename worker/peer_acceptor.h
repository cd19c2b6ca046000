// The listener of a worker daemon for connections from other workers' devices. It reads the hello of each and passes
// the socket to the attempt that the hello names.
//
// Every process of this machine can connect to the port, so the resources that an unknown client can occupy are
// bounded: at most `max_greeting` connections whose hello has not arrived, each for a limited time, and at most
// `max_waiting` whose attempt is not known here (yet). Beyond that the oldest connection of the source that has most of
// them is closed, so that peers that send their hello at once are accepted. If the process has no descriptor left,
// connections are closed as they come.
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

#include "base/spawn.h"
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
  // Receives the socket of a peer's connection, its hello, and its address for messages. Must not block.
  using Take = std::function<void(FileDescriptor socket, const PeerHello& hello, const std::string& address)>;

  // Listens on HOST:PORT; the system chooses the port if it is 0. On loopback, connections of other users of this
  // machine are closed. Off loopback, everyone can connect and send a hello; the attempts secure the connections
  // (security/secure_connection.h). InvalidArgument for unknown hosts.
  static absl::StatusOr<std::unique_ptr<PeerAcceptor>> Listen(const std::string& address,
                                                              const PeerAcceptorLimits& limits = {});
  ~PeerAcceptor();

  std::string address() const { return address_; }

  // Passes the connections of this attempt to `take` until Remove has returned, also those that wait already. Those of
  // earlier attempts of the job are refused from now on.
  void Add(const TaskKey& key, Take take);
  void Remove(const TaskKey& key);

 private:
  struct Guest {
    FileDescriptor socket;
    std::string source;   // Its host.
    std::string address;  // Its HOST:PORT.
    int64_t until_ns = 0;
    std::string received;
    PeerHello hello;      // Of those that wait.
  };
  using Guests = std::list<Guest>;

  PeerAcceptor(FileDescriptor listener, std::string address, const PeerAcceptorLimits& limits);
  void Run();
  void Accept();
  void RefuseOne();
  // Reads what has arrived of a hello. Returns false if the connection is done with: routed, ended, or no hello.
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
  FileDescriptor reserve_;  // Closed to accept, and close, a connection when the process has no descriptor left.
  // Used by the thread only.
  Guests greeting_;
  int64_t accept_from_ns_ = 0;  // When it accepts again, after it could not.

  std::mutex mutex_;
  bool ending_ = false;
  std::map<TaskKey, Take> attempts_;
  Guests waiting_;
  std::thread thread_;
};

}  // namespace xlad::worker
