// An executable, loaded on the devices of one worker and connected to its peers: what a task and a session run.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/network.h"
#include "collectives/exec/communicator.h"
#include "collectives/exec/fabric/fabric.h"
#include "collectives/exec/recorder.h"
#include "proto/worker.pb.h"
#include "proto/xlad_v1.h"
#include "runtime/device.h"
#include "runtime/device_buffers.h"
#include "runtime/step_program.h"

namespace xlad::runtime {

// What a worker has for all its tasks. All of it must outlive them.
struct WorkerEnvironment {
  // One device of each kind and model; each runs any number of logical shards.
  std::vector<Device*> devices;
  const Clock* clock = nullptr;
  Network* network = nullptr;
  collectives::DataPlane* data_plane = nullptr;
  std::string worker_id;
  uint64_t incarnation = 0;
  // The longest time in one operation of a collective before the task fails; 0: no limit.
  int64_t progress_limit_ms = 0;
  // The cores that each logical shard may keep busy; 0: an equal share of the machine for each shard of this process.
  int threads_of_each = 0;
};

// Which logical shards run on this worker, and how their peers identify the program.
struct LaunchInfo {
  std::string job_id;
  int64_t attempt = 0;
  int64_t generation = 0;
  std::vector<int> shards;                         // Mesh positions on this worker.
  google::protobuf::RepeatedPtrField<Peer> peers;  // All workers, including this one.
  google::protobuf::RepeatedPtrField<CollectivePlanProto> plans;
};

// The mesh positions that a launch names for this worker.
std::vector<int> MeshPositions(const LaunchTask& launch);

// The calls, in order: Load, SetFeeds (optional), MakeFabric; then for each shard Prepare, Connect, and Run any number
// of times; then Finish or Leave. Shards are numbered from 0 on this worker (`index`). Prepare, Connect and Run of one
// shard are called by one thread at a time; those of different shards may run at the same time.
class ConnectedExecutable {
 public:
  ~ConnectedExecutable();
  // Loads the code on the device whose kind the executable's target names, and connects nothing yet. `bytes` must have
  // the given SHA-256. InvalidArgument or DataLoss says what is inconsistent. `environment` and `abort` must outlive
  // the object.
  static absl::StatusOr<std::unique_ptr<ConnectedExecutable>> Load(const std::string& bytes, const std::string& digest,
                                                                   const LaunchInfo& launch,
                                                                   const WorkerEnvironment& environment,
                                                                   collectives::AbortSignal* abort);
  // Says how results become parameters of the next step; without it they do not.
  absl::Status SetFeeds(const JobSpec& spec);
  // Listens for and dials the peers.
  absl::Status MakeFabric();

  absl::Status Prepare(int index);  // Allocates memory.
  absl::Status Connect(int index);  // Returns when all devices of a group have called it.
  // Runs one step on the contents of the buffers and returns when it has finished. Collectives need all devices of a
  // group to run the same step.
  absl::Status Run(int index, int64_t step);

  // Ends in good order; see collectives::Fabric.
  absl::Status Finish() { return fabric_ == nullptr ? absl::OkStatus() : fabric_->Finish(); }
  void Leave();

  const Executable& executable() const { return loaded_->executable(); }
  DeviceBuffers& buffers(int index) { return *shards_[index]->buffers; }
  // The last collectives of each shard here, a line each, for the log.
  std::string RecentCollectives() const;

 private:
  // In the order in which they are made; each may use those before it.
  struct Shard {
    // Work that uses the memory may be enqueued still, if a step failed.
    ~Shard() {
      if (stream != nullptr) stream->Synchronize().IgnoreError();
    }
    std::unique_ptr<Stream> stream;
    std::unique_ptr<DeviceBuffers> buffers;
    std::unique_ptr<DeviceMemory> scratch;
    std::unique_ptr<Launcher> launcher;
    std::unique_ptr<collectives::Communicator> communicator;
  };

  ConnectedExecutable(const LaunchInfo& launch, const WorkerEnvironment& environment, collectives::AbortSignal* abort)
      : launch_(launch), environment_(environment), abort_(abort) {}

  // Raises the signal if a collective makes no progress.
  void Watch();

  const LaunchInfo launch_;
  const WorkerEnvironment& environment_;
  collectives::AbortSignal* const abort_;
  Device* device_ = nullptr;
  std::unique_ptr<LoadedExecutable> loaded_;
  std::unique_ptr<StepProgram> steps_;
  FeedPlan feeds_;
  Constants constants_;
  collectives::CollectiveSet collectives_;
  std::vector<std::unique_ptr<collectives::Recorder>> recorders_;
  std::unique_ptr<collectives::Bootstrap> bootstrap_;
  std::unique_ptr<collectives::Fabric> fabric_;
  std::vector<std::unique_ptr<Shard>> shards_;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool ending_ = false;
  std::thread watch_;
};

}  // namespace xlad::runtime
