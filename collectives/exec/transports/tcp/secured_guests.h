// Secures connections that peers have opened. Each connection has a thread of its own, so a slow peer does not delay
// the others.
//
// Thread-safe.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/net/network.h"
#include "proto/worker.pb.h"
#include "proto/xlad_v1.h"

namespace xlad::collectives {

class SecuredGuests {
 public:
  using Ready = std::function<void(std::unique_ptr<Connection> connection, const PeerHello& hello)>;

  // `key` is the key of the attempt. `ready` is called with each secured connection, on the connection's thread.
  SecuredGuests(std::string key, Ready ready) : key_(std::move(key)), ready_(std::move(ready)) {}
  ~SecuredGuests();  // Closes the connections as Close does, and joins the threads.

  // Begins to secure a connection. Closes it if its handshake fails, or if 1024 handshakes are already in progress.
  void Take(std::unique_ptr<Connection> connection, const PeerHello& hello);
  // Closes the connections whose handshake is in progress, and all later ones. Does not wait.
  void Close();

 private:
  struct Guest {
    std::unique_ptr<Connection> connection;
    std::thread thread;
    bool done = false;
  };

  void Greet(Guest* guest, const PeerHello& hello);

  const std::string key_;
  const Ready ready_;
  std::mutex mutex_;
  bool closed_ = false;
  std::list<Guest> guests_;
};

// Returns the context of the handshake: the bytes that both sides of a connection know before it is secured.
std::string ContextOf(const PeerHello& hello);

}  // namespace xlad::collectives
