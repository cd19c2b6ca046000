// An executable that is loaded on the devices of one worker and connected to its peers. Tasks and sessions run it.
#pragma once

#include <atomic>
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
  std::string digest;  // The SHA-256 of `bytes`.
};

// A program for the shards of one worker.
struct ExecutableLaunch {
  std::vector<int> shards;  // Mesh positions on this worker.
  google::protobuf::RepeatedPtrField<CollectivePlanProto> plans;
  // For each shard, the index of its executable; a program has one executable per kind of device. May be empty if there
  // is only one executable.
  std::vector<int> executable_of;
  int shards_per_device = 1;  // The number of shards that share the cores of a device.
};

// The mesh positions that a launch names for this worker.
std::vector<int> MeshPositions(const LaunchTask& launch);

// The calls, in order: Load, SetFeeds (optional), UseFabric; then for each shard Prepare, Connect, and Run any number
// of times. Shards are numbered from 0 on this worker (`index`). Prepare, Connect and Run of one shard are called by
// one thread at a time. Threads may call them for different shards at the same time.
class ConnectedExecutable {
 public:
  ~ConnectedExecutable();
  // Loads the code of each executable on the device that its target names, or on the first device if the target has no
  // kind. Does not open connections. `executables` must not be empty. DataLoss if the bytes of an executable do not
  // have its digest or cannot be parsed. InvalidArgument if an executable is inconsistent or needs a device that this
  // worker does not have, if two executables have different collectives, or if `launch` names a position or an
  // executable that does not exist. `environment` and `abort` must outlive the object.
  static absl::StatusOr<std::unique_ptr<ConnectedExecutable>> Load(absl::Span<const StoredExecutable> executables,
                                                                   const ExecutableLaunch& launch,
                                                                   const WorkerEnvironment& environment,
                                                                   collectives::AbortSignal* abort);
  // Sets which results become parameters of the next step. Without this call, none do. Errors are those of PlanFeeds.
  absl::Status SetFeeds(const JobSpec& spec);
  // Sets the connections between the shards and their peers. `fabric` must outlive the object. All workers must call
  // UseFabric for the same executables in the same order.
  absl::Status UseFabric(AttemptFabric* fabric);

  absl::Status Prepare(int index);  // Makes the shard's stream, memory and launcher.
  // Connects the shard to its peers. Returns when all devices with which it has collectives have called Connect.
  absl::Status Connect(int index);
  // Runs one step on the contents of the buffers and returns when it has finished. Collectives need all devices of a
  // group to run the same step.
  absl::Status Run(int index, int64_t step) { return Run(index, step, nullptr); }
  // The same as above, but also records the step if `tracer` is not null.
  absl::Status Run(int index, int64_t step, StepTracer* tracer);

  // Loads an executable of the program that all shards run, with other code for its kernels. Each shard runs the new
  // code from its next step on. Steps may run during the call. Must be called after Prepare of all shards, and not
  // again after it has succeeded. FailedPrecondition if the shards run several executables, InvalidArgument with the
  // first difference if anything but the code differs, and the errors of Load. After an error, the shards keep their
  // code.
  absl::Status ReplaceCode(StoredExecutable stored);
  // Whether the last step of the shard ran quickly compiled code (Executable.quick).
  bool RanQuickCode(int index) const { return shards_[index]->code->loaded->executable().quick(); }

  // Starts measuring the time of each part of a step. Must not be called while a step is running.
  void MeasureSteps(const Clock* clock);
  // The times of a shard's steps since MeasureSteps, which must have been called.
  const StepTimes& times(int index) const { return times_[index]; }

  // The executable of a shard.
  const Executable& executable(int index = 0) const { return CodeOf(index).loaded->executable(); }
  const Device& device(int index) const { return *CodeOf(index).device; }
  DeviceBuffers& buffers(int index) { return *shards_[index]->buffers; }
  // The launches of all shards since Prepare, and their collectives since Connect. Must not be called while a step is
  // running.
  RunReport Report() const;
  // The instructions and collectives of this worker's shards, by the names that traces use. The name of a collective
  // says in which memory it runs, except if this is host memory or if none of its shards on this worker is connected
  // yet. Other shards may run or connect during the call.
  TracedProgram Describe() const;
  // The most recent collectives of each shard of this worker, one line per collective, for the log.
  std::string RecentCollectives() const;

 private:
  // An executable on its device. A member may use the members above it.
  struct Code {
    Device* device = nullptr;
    std::unique_ptr<LoadedExecutable> loaded;
    std::unique_ptr<StepProgram> steps;
    FeedPlan feeds;
    Constants constants;
  };
  class CountingCommunicator;
  class CountingLauncher;
  // The state of one shard. A member may use the members above it.
  struct Shard {
    // If a step failed, work that uses the memory may still be enqueued.
    ~Shard();
    const Code* code = nullptr;  // The code that the launcher runs.
    bool keeps_code = false;     // Whether the shard has failed to use replacement_.
    std::unique_ptr<Stream> stream;
    std::unique_ptr<DeviceBuffers> buffers;
    std::unique_ptr<DeviceMemory> scratch;
    std::unique_ptr<Launcher> launcher;
    int64_t launches = 0;
    std::unique_ptr<CountingCommunicator> communicator;
    std::atomic<bool> is_connected = false;  // Set last. Other threads then may call const functions of `communicator`.
  };

  ConnectedExecutable(const ExecutableLaunch& launch, const WorkerEnvironment& environment,
                      collectives::AbortSignal* abort)
      : positions_(launch.shards), code_of_(launch.executable_of),
        shards_per_device_(std::max(1, launch.shards_per_device)), environment_(environment), abort_(abort) {
    code_of_.resize(positions_.size());
  }
  absl::Status AddCode(const StoredExecutable& stored);
  absl::Status MakeLauncher(int index, const Code& code);
  void UseNewCode(int index);
  absl::Status CheckSameCollectives(const Executable& other) const;
  const Code& CodeOf(int index) const { return codes_[code_of_.empty() ? 0 : code_of_[index]]; }
  collectives::Recorder& MappedRecorder(size_t index) const { return *recorders_[index]; }
  collectives::Recorder& MessageRecorder(size_t index) const { return *recorders_[positions_.size() + index]; }

  const std::vector<int> positions_;  // The mesh position of each shard of this worker.
  std::vector<int> code_of_;          // For each shard of this worker, the index of its executable in codes_.
  int shards_per_device_ = 1;
  const WorkerEnvironment& environment_;
  collectives::AbortSignal* const abort_;
  std::vector<Code> codes_;
  Code replacement_code_;  // Only its device, executable and steps are set.
  std::atomic<const Code*> replacement_ = nullptr;  // Null until replacement_code_ is complete.
  collectives::CollectiveSet collectives_;
  // Two recorders per shard, because collectives on mapped memory and collectives by messages may run at the same time.
  // First come the recorders of all shards for mapped memory, then those for messages.
  std::vector<std::unique_ptr<collectives::Recorder>> recorders_;
  AttemptFabric* fabric_ = nullptr;
  int first_channel_ = 0;
  std::vector<std::unique_ptr<Shard>> shards_;
  std::vector<StepTimes> times_;  // One per shard. Empty unless MeasureSteps was called.
};

}  // namespace xlad::runtime
