// Delivers connections from other workers' devices to the fabrics of the tasks of this process. The connections come
// from the data plane's own listener, or from another process that accepted them (Deliver).
//
// Thread-safe. A hello for an unknown task, or for a later attempt or generation of a known task, waits until that task
// is added. A hello for an older attempt or generation than that of the task is refused.
#pragma once

#include <condition_variable>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/net/network.h"
#include "collectives/exec/transports/tcp/tcp.h"

namespace xlad::collectives {

class DataPlane {
 public:
  // Listens on `address` (HOST:PORT; if the port is 0, the system chooses a port). InvalidArgument if the host is not a
  // loopback address: this listener is for tools and tests whose processes are all on this machine. A worker daemon has
  // a listener of its own, worker/peer_acceptor.h, which limits the resources that unknown clients can occupy.
  static absl::StatusOr<std::unique_ptr<DataPlane>> Listen(Network* network, const std::string& address);
  // Like Listen, but accepts any address. The fabrics must have a key, and this address as their `data_address`. They
  // then encrypt and authenticate all connections.
  static absl::StatusOr<std::unique_ptr<DataPlane>> ListenForSecured(Network* network, const std::string& address);
  static std::unique_ptr<DataPlane> WithoutListener();
  ~DataPlane();

  // The HOST:PORT to which peers connect; empty if there is no listener.
  std::string address() const { return listener_ == nullptr ? "" : listener_->Address(); }

  // Takes over a connection whose hello has been read. At most 1024 connections wait for their tasks; if there are
  // more, the oldest is closed.
  void Deliver(std::unique_ptr<Connection> connection, const PeerHello& hello);

  // Passes connections for the fabric's task to the fabric until RemoveTask. Has no effect if a later attempt or
  // generation of the task was added before.
  void AddTask(TcpFabric* fabric);
  void RemoveTask(TcpFabric* fabric);

 private:
  struct Waiting {
    std::unique_ptr<Connection> connection;
    PeerHello hello;
  };
  struct PendingHello {
    std::thread thread;
    Connection* connection = nullptr;
    std::unique_ptr<Connection> owned;
    bool done = false;
  };

  explicit DataPlane(std::unique_ptr<Listener> listener);
  void AcceptLoop();
  void ReadHello(PendingHello* pending);
  void JoinDone();

  const std::unique_ptr<Listener> listener_;  // Null if there is no listener.
  std::mutex mutex_;
  bool closing_ = false;
  std::condition_variable closed_;           // Notified when closing_ is set.
  std::map<std::string, TcpFabric*> tasks_;  // By job id.
  std::list<Waiting> waiting_;
  std::list<PendingHello> pending_hellos_;
  std::thread acceptor_;
};

}  // namespace xlad::collectives
