// For tests: several workers in one process, connected by loopback TCP and shared memory, with one thread per device.
#pragma once

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "collectives/exec/fabric/fabric.h"
#include "collectives/exec/scheduled_communicator.h"

namespace xlad::collectives {

// Element w contains the devices of worker w.
using DevicesOfWorkers = std::vector<std::vector<int>>;

class TestWorld {
 public:
  struct Worker {
    AbortSignal abort;
    std::unique_ptr<DataPlane> data_plane;
    std::unique_ptr<Fabric> fabric;
  };

  struct Options {
    int slots = 4;  // The slots of each link.
    // The size in bytes of the rings in shared memory between workers, or 0 to use only TCP.
    size_t ring_bytes = TcpOptions().ring_bytes;
    TransportChoice transport;
    DecorateTransport decorate;
  };

  explicit TestWorld(const DevicesOfWorkers& placement, int slots = 4, size_t ring_bytes = TcpOptions().ring_bytes)
      : TestWorld(placement, Options{slots, ring_bytes, {}, nullptr}) {}

  TestWorld(const DevicesOfWorkers& placement, const Options& world) : placement_(placement) {
    std::map<std::string, std::string> values;
    for (size_t w = 0; w < placement.size(); ++w) {
      workers_.push_back(std::make_unique<Worker>());
      workers_[w]->data_plane = *DataPlane::Listen(&TcpNetwork(), "127.0.0.1:0");
      for (int device : placement[w]) {
        values[PeerKey(device)] = EncodePeer({absl::StrCat("w", w), 7, absl::StrCat("host", w),
                                              100 + static_cast<int64_t>(w), workers_[w]->data_plane->address()});
        num_devices_ = std::max(num_devices_, device + 1);
      }
    }
    const std::unique_ptr<Bootstrap> bootstrap = MapBootstrap(values);
    for (size_t w = 0; w < placement.size(); ++w) {
      FabricOptions options;
      options.devices = placement[w];
      options.num_devices = num_devices_;
      options.tcp.job_id = "job";
      options.tcp.attempt = 1;
      options.tcp.worker_id = absl::StrCat("w", w);
      options.tcp.incarnation = 7;
      options.tcp.slots = options.in_process.slots = world.slots;
      options.tcp.ring_bytes = world.ring_bytes;
      // On a busy machine, the message with the reason for an abort may arrive long after the abort.
      options.tcp.close_after_abort_ms = options.tcp.reason_ms = 60'000;
      options.transport = world.transport;
      options.decorate = world.decorate;
      options.network = &TcpNetwork();
      options.data_plane = workers_[w]->data_plane.get();
      auto fabric = Fabric::Make(options, *bootstrap, &workers_[w]->abort);
      XLAD_CHECK(fabric.ok()) << fabric.status();
      workers_[w]->fabric = *std::move(fabric);
    }
  }

  int num_devices() const { return num_devices_; }
  Worker& worker(int w) { return *workers_[w]; }
  Worker& worker_of(int device) {
    for (size_t w = 0; w < placement_.size(); ++w) {
      for (int d : placement_[w]) {
        if (d == device) return *workers_[w];
      }
    }
    std::abort();
  }
  Transport& transport(int device) { return worker_of(device).fabric->transport(device); }

  // Runs `body` on one thread per device and waits for all.
  void Run(const std::function<void(int device)>& body) {
    std::vector<std::thread> threads;
    for (int device = 0; device < num_devices_; ++device) threads.emplace_back([&body, device] { body(device); });
    for (std::thread& thread : threads) thread.join();
  }

  // Later communicators use what the fabric chooses. Without this call, they use messages only.
  void UseMappedMemory() { mapped_ = true; }
  // Like Run, but forms a communicator first, and does not call `body` if that fails. Device d uses sets[d], or the
  // last set if there are fewer. Returns the status of each device.
  std::vector<absl::Status> RunCommunicators(
      const std::vector<const CollectiveSet*>& sets,
      const std::function<absl::Status(int device, Communicator& communicator)>& body) {
    std::vector<absl::Status> statuses(num_devices_);
    Run([&](int device) {
      const CollectiveSet* set = sets[std::min<size_t>(device, sets.size() - 1)];
      Recorder recorder(device, set, &RealClock());
      const absl::StatusOr<std::unique_ptr<Communicator>> formed = Form(device, set, &recorder);
      statuses[device] = formed.ok() ? body(device, **formed) : formed.status();
    });
    return statuses;
  }

  absl::StatusOr<std::unique_ptr<Communicator>> Form(int device, const CollectiveSet* set, Recorder* recorder) {
    Worker& worker = worker_of(device);
    if (mapped_) return worker.fabric->MakeCommunicator({device, set, recorder});
    XLAD_ASSIGN_OR_RETURN(auto formed, ScheduledCommunicator::Form({device, 0, set, &worker.fabric->transport(device),
                                                                    &worker.abort, recorder}));
    XLAD_RETURN_IF_ERROR(formed->PrepareAll());
    return formed;
  }

 private:
  const DevicesOfWorkers placement_;
  bool mapped_ = false;
  int num_devices_ = 0;
  std::vector<std::unique_ptr<Worker>> workers_;
};

}  // namespace xlad::collectives
