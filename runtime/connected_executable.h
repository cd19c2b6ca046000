// An executable, loaded on the devices of one worker and connected to its peers: what a task and a session run.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "collectives/exec/communicator.h"
#include "collectives/exec/recorder.h"
#include "proto/worker.pb.h"
#include "proto/xlad_v1.h"
#include "runtime/attempt_fabric.h"
#include "runtime/device.h"
#include "runtime/device_buffers.h"
#include "runtime/step_program.h"

namespace xlad::runtime {

// An executable for the shards of one worker.
struct ExecutableLaunch {
  std::vector<int> shards;  // Mesh positions on this worker.
  google::protobuf::RepeatedPtrField<CollectivePlanProto> plans;
  int shards_per_device = 1;  // These shards share the cores of a device.
};

// The mesh positions that a launch names for this worker.
std::vector<int> MeshPositions(const LaunchTask& launch);

// The calls, in order: Load, SetFeeds (optional), UseFabric; then for each shard Prepare, Connect, and Run any number
// of times. Shards are numbered from 0 on this worker (`index`). Prepare, Connect and Run of one shard are called by
// one thread at a time; those of different shards may run at the same time.
class ConnectedExecutable {
 public:
  ~ConnectedExecutable();
  // Loads the code on the device whose kind the executable's target names, and connects nothing yet. `bytes` must have
  // the given SHA-256. InvalidArgument or DataLoss says what is inconsistent. `environment` and `abort` must outlive
  // the object.
  static absl::StatusOr<std::unique_ptr<ConnectedExecutable>> Load(const std::string& bytes, const std::string& digest,
                                                                   const ExecutableLaunch& launch,
                                                                   const WorkerEnvironment& environment,
                                                                   collectives::AbortSignal* abort);
  // Says how results become parameters of the next step; without it they do not.
  absl::Status SetFeeds(const JobSpec& spec);
  // What connects the shards to their peers, which must outlive the object. All workers must call UseFabric for the
  // same executables in the same order.
  absl::Status UseFabric(AttemptFabric* fabric);

  absl::Status Prepare(int index);  // Allocates memory.
  absl::Status Connect(int index);  // Returns when all devices of a group have called it.
  // Runs one step on the contents of the buffers and returns when it has finished. Collectives need all devices of a
  // group to run the same step.
  absl::Status Run(int index, int64_t step);

  // From now on the time of every step of a run is measured; called while none runs.
  void MeasureSteps(const Clock* clock);
  // The times of a shard since MeasureSteps.
  const StepTimes& times(int index) const { return times_[index]; }

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

  ConnectedExecutable(std::vector<int> positions, const WorkerEnvironment& environment, collectives::AbortSignal* abort)
      : positions_(std::move(positions)), environment_(environment), abort_(abort) {}

  const std::vector<int> positions_;  // Mesh positions, by index.
  int shards_per_device_ = 1;
  const WorkerEnvironment& environment_;
  collectives::AbortSignal* const abort_;
  Device* device_ = nullptr;
  std::unique_ptr<LoadedExecutable> loaded_;
  std::unique_ptr<StepProgram> steps_;
  FeedPlan feeds_;
  Constants constants_;
  collectives::CollectiveSet collectives_;
  std::vector<std::unique_ptr<collectives::Recorder>> recorders_;
  AttemptFabric* fabric_ = nullptr;
  int first_channel_ = 0;
  std::vector<std::unique_ptr<Shard>> shards_;
  std::vector<StepTimes> times_;  // By index; empty unless they are measured.
};

}  // namespace xlad::runtime
