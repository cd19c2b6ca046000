// How the devices of one task on one worker reach each other and their peers: in-process links inside, connections
// to the outside.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "collectives/exec/transports/data_plane.h"
#include "collectives/exec/transports/in_process.h"

namespace xlad::collectives {

struct FabricOptions {
  std::vector<int> devices;  // Here, by mesh position.
  int num_devices = 0;       // In all.
  TcpOptions tcp;
  InProcessOptions in_process;
  Network* network = nullptr;       // May be null where all devices are here.
  DataPlane* data_plane = nullptr;  // May be null where all devices are here.
};

// Thread-safe; each device's transport is for its thread alone.
class Fabric {
 public:
  // Finds the peers of all other devices in `bootstrap` (PeerKey). `abort` and what `options` points to must outlive
  // the fabric.
  static absl::StatusOr<std::unique_ptr<Fabric>> Make(const FabricOptions& options, Bootstrap& bootstrap,
                                                      AbortSignal* abort);
  ~Fabric();

  Transport& transport(int device);
  // How many of the connections to other processes pass their messages through shared memory.
  int shared_connections() const { return tcp_ == nullptr ? 0 : tcp_->shared_connections(); }
  // Ends in good order; see TcpFabric::Finish.
  absl::Status Finish();
  // Ends without waiting for anyone; see TcpFabric::Leave.
  void Leave();

 private:
  class Router;

  explicit Fabric(AbortSignal* abort) : abort_(abort) {}

  AbortSignal* const abort_;
  DataPlane* data_plane_ = nullptr;
  int64_t listener_id_ = -1;
  std::unique_ptr<SharedWaiters> shared_;  // Null: no memory is shared with other processes.
  std::map<int, std::unique_ptr<Waiter>> waiters_;
  std::unique_ptr<InProcessFabric> in_process_;
  std::unique_ptr<TcpFabric> tcp_;
  std::map<int, std::unique_ptr<Transport>> transports_;
};

}  // namespace xlad::collectives
