// Delivers connections from other workers' devices to the fabrics of the tasks of this process. The connections come
// from a listener of its own, or from another process that accepted them (Deliver).
//
// Thread-safe. A hello for an unknown task waits until the task is added. A hello for an older attempt or generation
// than that of the task is refused.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/network.h"
#include "collectives/exec/transports/tcp/tcp.h"

namespace xlad::collectives {

class DataPlane {
 public:
  // Listens on `address` (HOST:PORT; if the port is 0, the system chooses one). InvalidArgument if the host is not a
  // loopback address, because the data plane has neither encryption nor tokens.
  static absl::StatusOr<std::unique_ptr<DataPlane>> Listen(Network* network, const std::string& address);
  static std::unique_ptr<DataPlane> WithoutListener();
  ~DataPlane();

  // The HOST:PORT to which peers connect; empty without a listener.
  std::string address() const { return listener_ == nullptr ? "" : listener_->Address(); }

  // Takes over a connection whose hello has been read. If too many wait for their task, the oldest is closed.
  void Deliver(std::unique_ptr<Connection> connection, const PeerHello& hello);

  // Passes connections for the fabric's task to the fabric until RemoveTask.
  void AddTask(TcpFabric* fabric);
  void RemoveTask(TcpFabric* fabric);

 private:
  struct Waiting {
    std::unique_ptr<Connection> connection;
    PeerHello hello;
  };
  struct Greeting {
    std::thread thread;
    Connection* connection = nullptr;
    std::unique_ptr<Connection> owned;
    bool done = false;
  };

  explicit DataPlane(std::unique_ptr<Listener> listener);
  void AcceptLoop();
  void Greet(Greeting* greeting);
  void JoinDone();

  const std::unique_ptr<Listener> listener_;  // May be null.
  std::mutex mutex_;
  bool closing_ = false;
  std::map<std::string, TcpFabric*> tasks_;  // By job id.
  std::list<Waiting> waiting_;
  std::list<Greeting> greetings_;
  std::thread acceptor_;
};

}  // namespace xlad::collectives
