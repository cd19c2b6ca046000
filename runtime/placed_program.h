// An executable on the devices of one worker, connected to its peers: what a task and a session run.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/network.h"
#include "collectives/exec/fabric/fabric.h"
#include "collectives/exec/scheduled_communicator.h"
#include "proto/worker.pb.h"
#include "runtime/device.h"
#include "runtime/device_buffers.h"
#include "runtime/step_program.h"

namespace xlad::runtime {

// What a worker has for all its tasks. All of it must outlive them.
struct WorkerEnvironment {
  Device* device = nullptr;  // Makes every logical shard's memory and code.
  const Clock* clock = nullptr;
  Network* network = nullptr;
  collectives::DataPlane* data_plane = nullptr;
  std::string worker_id;
  uint64_t incarnation = 0;
  int64_t progress_limit_ms = 0;  // Longest in one operation of a collective, then the task fails; 0: no limit.
};

// Which devices run it, and what the peers know it by. `peers`: all workers, this one too.
struct Placement {
  std::string job_id;
  int64_t attempt = 0;
  int64_t generation = 0;
  std::vector<int> devices;  // Here, by mesh position.
  google::protobuf::RepeatedPtrField<Peer> peers;
  google::protobuf::RepeatedPtrField<CollectivePlanProto> plans;
};

// Devices are numbered from 0 on this worker. Prepare, Connect and Run of a device are called by one thread at a time.
class PlacedProgram {
 public:
  ~PlacedProgram();
  // Loads the code; nobody is connected yet. `bytes` must have the given SHA-256. InvalidArgument and DataLoss say what
  // does not fit. `environment` and `abort` must outlive the program.
  static absl::StatusOr<std::unique_ptr<PlacedProgram>> Load(const std::string& bytes, const std::string& digest,
                                                             const Placement& placement,
                                                             const WorkerEnvironment& environment,
                                                             collectives::AbortSignal* abort);
  // How results become parameters of the next step. Before any Prepare; without it they do not.
  absl::Status Feed(const JobSpec& spec);
  // Makes ready to reach the peers. Before any Connect.
  absl::Status MakeFabric();

  absl::Status Prepare(int index);  // Memory.
  absl::Status Connect(int index);  // Returns when all devices of a group have got here.
  // One step on what lies in the buffers; collectives need all devices to do the same.
  absl::Status Run(int index, int64_t step);

  // Ends in good order; see collectives::Fabric.
  absl::Status Finish() { return fabric_ == nullptr ? absl::OkStatus() : fabric_->Finish(); }
  void Leave();

  const Executable& executable() const { return loaded_->executable(); }
  DeviceBuffers& buffers(int index) { return *contexts_[index]->buffers; }
  const std::vector<int>& devices() const { return placement_.devices; }
  // What the devices here did last, a line each.
  std::string RecentCollectives() const;

 private:
  struct DeviceContext {
    std::unique_ptr<DeviceBuffers> buffers;
    std::unique_ptr<DeviceMemory> scratch;
    std::unique_ptr<Launcher> launcher;
    std::unique_ptr<collectives::ScheduledCommunicator> communicator;
  };

  // Raises the signal where a collective does not go on.
  void Watch();

  PlacedProgram(const Placement& placement, const WorkerEnvironment& environment, collectives::AbortSignal* abort)
      : placement_(placement), environment_(environment), abort_(abort) {}

  const Placement placement_;
  const WorkerEnvironment& environment_;
  collectives::AbortSignal* const abort_;
  std::unique_ptr<LoadedExecutable> loaded_;
  std::unique_ptr<StepProgram> steps_;
  FeedPlan feeds_;
  Constants constants_;
  collectives::CollectiveSet collectives_;
  std::vector<std::unique_ptr<collectives::Recorder>> recorders_;
  std::unique_ptr<collectives::Bootstrap> bootstrap_;
  std::unique_ptr<collectives::Fabric> fabric_;
  std::vector<std::unique_ptr<DeviceContext>> contexts_;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool ending_ = false;
  std::thread watch_;
};

}  // namespace xlad::runtime
