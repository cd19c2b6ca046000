// What connects the devices of one task: in-process links and shared memory between the devices on one worker and on
// others of the same machine, and connections to the devices of other workers; or the transport that was chosen.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "collectives/exec/communicator.h"
#include "collectives/exec/host/host_memory.h"
#include "collectives/exec/recorder.h"
#include "collectives/exec/transports/in_process/in_process.h"
#include "collectives/exec/transports/tcp/data_plane.h"

namespace xlad::collectives {

// How messages travel between processes. The rows of transports/registry/ make such choices.
struct TransportChoice {
  std::string name = "auto";
  bool one_process = false;             // Devices of other processes are an error.
  bool shares_memory = true;            // Processes that can map each other's memory use it.
  bool requires_shared_memory = false;  // Those that cannot are an error.
  const xlad_transport_api* plugin = nullptr;
  bool any_network = false;  // The plugin may use other networks than the loopback interface.
};

// Puts a transport around that of a device, for example one that injects faults. `inner` outlives the result.
using DecorateTransport = std::function<std::unique_ptr<Transport>(int device, Transport* inner)>;

struct FabricOptions {
  std::vector<int> devices;  // The devices on this worker, by mesh position.
  int num_devices = 0;       // The number of devices of the task.
  TcpOptions tcp;
  InProcessOptions in_process;
  Network* network = nullptr;       // May be null if all devices are on this worker.
  DataPlane* data_plane = nullptr;  // May be null if all devices are on this worker.
  TransportChoice transport;
  DecorateTransport decorate;  // May be null.
};

// Thread-safe, except that a device's transport is used by its thread only.
class Fabric {
 public:
  // Reads from `bootstrap` (key PeerKey) which worker has each device that is not in `options.devices`. `abort` and the
  // objects in `options` must outlive the fabric.
  static absl::StatusOr<std::unique_ptr<Fabric>> Make(const FabricOptions& options, Bootstrap& bootstrap,
                                                      AbortSignal* abort);
  ~Fabric();

  Transport& transport(int device);
  // The memory that the devices on this worker share with each other and with other processes of this machine.
  HostMemory& memory() { return *memory_; }
  // The first of new channels for the collectives of a program. All workers must reserve channels for the same programs
  // in the same order. ResourceExhausted if there are none left.
  absl::StatusOr<int> ReserveChannels(const CollectiveSet& collectives);
  // What the communicator of one device for one program is made of. All of it must outlive the communicator.
  struct Member {
    int device = 0;
    const CollectiveSet* collectives = nullptr;
    Recorder* recorder = nullptr;
    int first_channel = 0;  // From ReserveChannels.
    // For collectives by messages, which may run while one on mapped memory does. Null: `recorder` is for both, and
    // collectives that are started end at once.
    Recorder* message_recorder = nullptr;
  };
  // Forms a communicator; see HostCommunicator.
  absl::StatusOr<std::unique_ptr<Communicator>> MakeCommunicator(const Member& member);
  // The number of open connections to devices of other processes.
  int connections() const { return tcp_ == nullptr ? 0 : tcp_->connections(); }
  // The number of connections to other processes that send messages through shared memory.
  int shared_connections() const { return tcp_ == nullptr ? 0 : tcp_->shared_connections(); }
  // The workers whose machines are silent; see TcpFabric.
  std::map<std::string, int64_t> SilentWorkers(int64_t now_ns) {
    return tcp_ == nullptr ? std::map<std::string, int64_t>() : tcp_->SilentWorkers(now_ns);
  }
  // Waits until all peers have finished; see TcpFabric::Finish.
  absl::Status Finish();
  // Sends the end of the task to the peers without waiting for theirs; see TcpFabric::Leave.
  void Leave();

 private:
  class Router;

  explicit Fabric(AbortSignal* abort) : abort_(abort) {}
  absl::Status ConnectOutside(const FabricOptions& options, const std::map<int, PeerInfo>& peers,
                              const std::map<int, Waiter*>& waiters);

  AbortSignal* const abort_;
  DataPlane* data_plane_ = nullptr;
  std::atomic<int> next_channel_ = 0;
  bool own_cores_ = false;  // Every device of the task has a core.
  std::shared_ptr<HostMemory> memory_;
  int64_t listener_id_ = -1;
  std::unique_ptr<SharedWaiters> shared_;  // Null if no memory is shared with other processes.
  std::map<int, std::unique_ptr<Waiter>> waiters_;
  std::unique_ptr<InProcessFabric> in_process_;
  std::map<int, std::unique_ptr<Engine>> engines_;  // The engines of the plugin, by device.
  std::unique_ptr<TcpFabric> tcp_;
  std::map<int, std::unique_ptr<Transport>> transports_;
  std::map<int, std::unique_ptr<Transport>> decorated_;
};

}  // namespace xlad::collectives
