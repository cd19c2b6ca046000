// State and data of a task's devices: which boxes they hold, reading them in and writing state out.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "proto/worker.pb.h"
#include "runtime/device_buffers.h"
#include "runtime/entry_layout.h"
#include "runtime/task_io.h"

namespace xlad::runtime {

// Thread-safe.
class TaskData {
 public:
  // Everything must outlive the object. InvalidArgument where shapes and boxes of the executable, or kinds of the
  // spec, do not hold together.
  static absl::StatusOr<std::unique_ptr<TaskData>> Make(const LaunchTask& launch, const Executable& executable,
                                                        TaskStore* store, collectives::AbortSignal* abort);

  // Reads the state before launch.first_step into the device's parameters.
  absl::Status ReadState(int device, DeviceBuffers* buffers);
  // Reads all batches of the device's boxes, so that no step waits for the store.
  absl::Status ReadData(int device);
  // Data and step number of `step` into the device's parameters.
  absl::Status Fill(int device, int64_t step, DeviceBuffers* buffers);
  // Writes those boxes of the state that this device is to upload: of all that hold the same box, the lowest does.
  absl::Status WriteState(int device, int64_t step, const DeviceBuffers& buffers);
  // The losses and metrics of a step, in the order of the spec's results.
  std::vector<float> ReadScalars(const DeviceBuffers& buffers) const;

 private:
  struct Entry : EntryLayout {
    std::string name;
    JobSpec::Parameter::Kind kind = JobSpec::Parameter::KIND_UNSPECIFIED;
  };
  using Bytes = std::shared_ptr<const std::vector<std::byte>>;

  TaskData(const LaunchTask& launch, TaskStore* store, collectives::AbortSignal* abort)
      : launch_(launch), store_(store), abort_(abort) {}
  absl::Status AddParameter(const Executable& executable, int index);
  absl::Status AddResult(const Executable& executable, int index);
  // A box of a blob's tensor as a padded local array. `row`: added to the box's first dimension.
  absl::StatusOr<tensor::Array> Read(const std::string& digest, const Entry& entry, int device, int64_t row);

  const LaunchTask& launch_;
  TaskStore* const store_;
  collectives::AbortSignal* const abort_;
  std::vector<Entry> parameters_;
  std::vector<Slice> scalars_;  // Results that are losses and metrics.
  std::mutex mutex_;
  // Padded batches by parameter and box; devices with the same box share them.
  std::map<std::pair<int, std::string>, std::vector<Bytes>> batches_;
};

}  // namespace xlad::runtime
