// Connects the devices of one task. Devices on one worker use in-process links and each other's memory. Devices on
// different workers use connections and, if the workers are on one machine, shared memory. A chosen transport
// (TransportChoice) can replace these.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "collectives/exec/communicator.h"
#include "collectives/exec/device/mailbox.h"
#include "collectives/exec/device/shared_blocks.h"
#include "collectives/exec/device_ops.h"
#include "collectives/exec/host/host_memory.h"
#include "collectives/exec/recorder.h"
#include "collectives/exec/transports/in_process/in_process.h"
#include "collectives/exec/transports/tcp/data_plane.h"

namespace xlad::collectives {

// How processes exchange messages. Each row of transports/registry/ contains such a choice.
struct TransportChoice {
  std::string name = "auto";
  bool one_process = false;             // Devices in other processes are an error.
  bool shares_memory = true;            // Processes that can map each other's memory use shared memory.
  bool requires_shared_memory = false;  // Processes that cannot map each other's memory are an error.
  const xlad_transport_api* plugin = nullptr;
  // The plugin may use networks other than the loopback interface, and NCCL may connect machines.
  bool any_network = false;
};

// Wraps the transport of a device, for example to inject faults. `inner` outlives the result.
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

// Thread-safe, except that only the thread of a device may use its transport.
class Fabric {
 public:
  // Reads from `bootstrap` (key PeerKey) which worker runs each device that is not in `options.devices`. `abort` and
  // the objects in `options` must outlive the fabric.
  static absl::StatusOr<std::unique_ptr<Fabric>> Make(const FabricOptions& options, Bootstrap& bootstrap,
                                                      AbortSignal* abort);
  ~Fabric();

  Transport& transport(int device);
  // The memory that the devices on this worker share with each other and with other processes of this machine.
  HostMemory& memory() { return *memory_; }
  // Reserves channels for the collectives of a program and returns the first one. All workers must reserve channels for
  // the same programs in the same order. ResourceExhausted if too few channels are left.
  absl::StatusOr<int> ReserveChannels(const CollectiveSet& collectives);
  // The arguments of MakeCommunicator for one device and one program. All objects must outlive the communicator.
  struct Member {
    int device = 0;
    const CollectiveSet* collectives = nullptr;
    Recorder* recorder = nullptr;
    int first_channel = 0;  // The result of ReserveChannels.
    // Records the collectives that use messages. These may run at the same time as a collective on mapped memory. If
    // this is null, `recorder` records both kinds, and a collective has finished when Start returns.
    Recorder* message_recorder = nullptr;
    // The operations of the device whose memory contains the buffers, or null if the buffers are in host memory. NCCL
    // runs the collectives on device memory if it can (nccl_rules.h). If not, the device runs their schedules if it can
    // (DeviceCommunicator). The others run on the host, on copies if it cannot access the buffers (StagedCommunicator).
    DeviceOps* ops = nullptr;
  };
  // Forms a communicator; see HostCommunicator.
  absl::StatusOr<std::unique_ptr<Communicator>> MakeCommunicator(const Member& member);
  // The number of open connections to devices of other processes.
  int connections() const { return tcp_ == nullptr ? 0 : tcp_->connections(); }
  // The number of connections to other processes that send messages through shared memory.
  int shared_connections() const { return tcp_ == nullptr ? 0 : tcp_->shared_connections(); }
  // The workers whose machines do not respond; see TcpFabric.
  std::map<std::string, int64_t> SilentWorkers(int64_t now_ns) {
    return tcp_ == nullptr ? std::map<std::string, int64_t>() : tcp_->SilentWorkers(now_ns);
  }
  // Waits until all peers in other processes have finished; see TcpFabric::Finish.
  absl::Status Finish();
  // Tells the peers that the task has ended, without waiting for their answers; see TcpFabric::Leave.
  void Leave();

 private:
  class Router;

  explicit Fabric(AbortSignal* abort) : abort_(abort) {}
  absl::Status ConnectOutside(const FabricOptions& options, const std::map<int, PeerInfo>& peers,
                              const std::map<int, Waiter*>& waiters);

  AbortSignal* const abort_;
  DataPlane* data_plane_ = nullptr;
  std::atomic<int> next_channel_ = 0;
  bool any_network_ = false;
  bool own_cores_ = false;  // Whether every device of the task has a core of its own.
  std::shared_ptr<HostMemory> memory_;
  DeviceMailboxes mailboxes_;
  SharedBlockPool blocks_;
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
