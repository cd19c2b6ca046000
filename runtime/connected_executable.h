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

// An executable as it was stored.
struct StoredExecutable {
  std::string bytes;
  std::string digest;  // Its SHA-256.
};

// A program for the shards of one worker.
struct ExecutableLaunch {
  std::vector<int> shards;  // Mesh positions on this worker.
  google::protobuf::RepeatedPtrField<CollectivePlanProto> plans;
  // By shard: the number of its executable, if the program has several, one for each kind of device. Empty: 0 for all.
  std::vector<int> executable_of;
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
  // Loads the code of each executable on the device whose kind its target names, and connects nothing yet.
  // `executables` has at least one. InvalidArgument or DataLoss says what is inconsistent: also that two of them have
  // different collectives. `environment` and `abort` must outlive the object.
  static absl::StatusOr<std::unique_ptr<ConnectedExecutable>> Load(absl::Span<const StoredExecutable> executables,
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
  absl::Status Run(int index, int64_t step) { return Run(index, step, nullptr); }
  // The same; records the step if `tracer` is not null.
  absl::Status Run(int index, int64_t step, StepTracer* tracer);

  // From now on the time of every step of a run is measured; called while none runs.
  void MeasureSteps(const Clock* clock);
  // The times of a shard since MeasureSteps.
  const StepTimes& times(int index) const { return times_[index]; }

  // The executable of a shard.
  const Executable& executable(int index = 0) const { return CodeOf(index).loaded->executable(); }
  DeviceBuffers& buffers(int index) { return *shards_[index]->buffers; }
  // What the shards have run since Prepare; called while none runs.
  RunReport Report() const;
  // What traces name: the instructions, and the collectives of the shards here.
  TracedProgram Describe() const { return TracedProgramOf(executable(), collectives_, positions_); }
  // The last collectives of each shard here, a line each, for the log.
  std::string RecentCollectives() const;

 private:
  // An executable on its device. In the order in which they are made; each may use those before it.
  struct Code {
    Device* device = nullptr;
    std::unique_ptr<LoadedExecutable> loaded;
    std::unique_ptr<StepProgram> steps;
    FeedPlan feeds;
    Constants constants;
  };
  class CountingLauncher;
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
    int64_t launches = 0;
    std::unique_ptr<collectives::Communicator> communicator;
  };

  ConnectedExecutable(const ExecutableLaunch& launch, const WorkerEnvironment& environment,
                      collectives::AbortSignal* abort)
      : positions_(launch.shards), code_of_(launch.executable_of),
        shards_per_device_(std::max(1, launch.shards_per_device)), environment_(environment), abort_(abort) {
    code_of_.resize(positions_.size());
  }
  absl::Status AddCode(const StoredExecutable& stored);
  absl::Status CheckSameCollectives(const Executable& other) const;
  const Code& CodeOf(int index) const { return codes_[code_of_.empty() ? 0 : code_of_[index]]; }
  collectives::Recorder& MappedRecorder(size_t index) const { return *recorders_[index]; }
  collectives::Recorder& MessageRecorder(size_t index) const { return *recorders_[positions_.size() + index]; }

  const std::vector<int> positions_;  // Mesh positions, by index.
  std::vector<int> code_of_;          // Numbers of codes_, by index.
  int shards_per_device_ = 1;
  const WorkerEnvironment& environment_;
  collectives::AbortSignal* const abort_;
  std::vector<Code> codes_;
  collectives::CollectiveSet collectives_;
  // Two for each shard, because collectives on mapped memory and those by messages may run at the same time: first
  // those of all shards for the former, then those for the latter.
  std::vector<std::unique_ptr<collectives::Recorder>> recorders_;
  AttemptFabric* fabric_ = nullptr;
  int first_channel_ = 0;
  std::vector<std::unique_ptr<Shard>> shards_;
  std::vector<StepTimes> times_;  // By index; empty unless they are measured.
};

}  // namespace xlad::runtime
