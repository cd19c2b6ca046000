// State and data of a task's devices: reads them into device memory and writes state back.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "proto/worker.pb.h"
#include "proto/xlad_v1.h"
#include "runtime/device_buffers.h"
#include "runtime/entry_layout.h"
#include "runtime/task_io.h"

namespace xlad::runtime {

// Devices are mesh positions. Thread-safe; calls for one device's buffers come from one thread at a time.
class TaskData {
 public:
  // All arguments must outlive the object. InvalidArgument if shapes and boxes of the executable, or kinds of the spec,
  // are not consistent.
  static absl::StatusOr<std::unique_ptr<TaskData>> Make(const LaunchTask& launch, const Executable& executable,
                                                        TaskStore* store, collectives::AbortSignal* abort);

  // Reads the state before launch.first_step into the device's parameters.
  absl::Status ReadState(int device, DeviceBuffers* buffers);
  // Reads the device's boxes of all batches into host memory, so that no step waits for the store.
  absl::Status ReadData(int device);
  // Writes the data and the number of `step` into the device's parameters.
  absl::Status WriteInputs(int device, int64_t step, DeviceBuffers* buffers);
  // Uploads the boxes of the state for which this device is responsible: of all devices that hold the same box, the
  // lowest uploads it.
  absl::Status WriteState(int device, int64_t step, const DeviceBuffers& buffers);
  // The losses and metrics of a step, in the order of the spec's results.
  absl::StatusOr<std::vector<float>> ReadScalars(const DeviceBuffers& buffers) const;

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
  // Reads the device's box of a tensor as a padded shard. `row` is added to the box's first dimension.
  absl::StatusOr<tensor::Array> ReadShard(const std::string& digest, const Entry& entry, int device, int64_t row);

  const LaunchTask& launch_;
  TaskStore* const store_;
  collectives::AbortSignal* const abort_;
  std::vector<Entry> parameters_;
  std::vector<Slice> scalars_;  // The results that are losses and metrics.
  std::mutex mutex_;
  // Padded shards of all batches, by parameter and box; devices with the same box share them.
  std::map<std::pair<int, std::string>, std::vector<Bytes>> batches_;
};

}  // namespace xlad::runtime
