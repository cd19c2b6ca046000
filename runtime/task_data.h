// Reads the state and data of a task into the memory of its devices, and reads losses and metrics.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "proto/worker.pb.h"
#include "proto/xlad_v1.h"
#include "runtime/batch_reader.h"
#include "runtime/checkpoint_writer.h"
#include "runtime/device_buffers.h"
#include "runtime/entry_layout.h"
#include "runtime/task_io.h"

namespace xlad::runtime {

// In the arguments, `index` is the number of a device on this worker. Thread-safe, but only one thread at a time may
// use the buffers of a device.
class TaskData {
 public:
  // `executables` has one entry per device of this worker; devices of different kinds have different executables. All
  // arguments must outlive the object. InvalidArgument if shapes and boxes of the executables, or kinds of the spec,
  // are not consistent.
  static absl::StatusOr<std::unique_ptr<TaskData>> Make(const LaunchTask& launch,
                                                        absl::Span<const Executable* const> executables,
                                                        TaskStore* store, collectives::AbortSignal* abort);

  ~TaskData();

  // Reads the state before launch.first_step into the parameters of all devices of this worker; `buffers` has one entry
  // per device. Boxes that several devices hold are read once. At most 64 MiB of state are in host memory at a time, or
  // one shard if it is larger.
  absl::Status ReadState(absl::Span<DeviceBuffers* const> buffers);
  // Opens the data and starts to read batches ahead of the steps.
  absl::Status StartData();
  // Writes the batch of `step` and the step's number into the device's parameters.
  absl::Status WriteInputs(int index, int64_t step, DeviceBuffers* buffers);
  // The boxes of the state that the devices of this worker must save. Among the devices of all workers that hold a box,
  // the one with the smallest mesh position saves it. The result points into this object.
  std::vector<SavedBox> SavedBoxes() const;
  // The name of the first tensor of the state with a NaN or an infinity in the part that the device holds, or "" if all
  // elements are finite.
  absl::StatusOr<std::string> FirstNotFinite(int index, const DeviceBuffers& buffers) const;
  // Reads the losses and metrics of a step, in the order of the spec's results. `buffers` belong to device 0.
  absl::StatusOr<std::vector<float>> ReadScalars(const DeviceBuffers& buffers) const;

 private:
  struct Entry : EntryLayout {
    std::string name;
    JobSpec::Parameter::Kind kind = JobSpec::Parameter::KIND_UNSPECIFIED;
    std::vector<Slice> slices;  // For each index, the shard in the device's buffers.
  };
  // A box of the state, and the devices of this worker that hold it.
  struct StateBox {
    const Entry* entry;
    tensor::Box box;
    std::vector<int> indices;
  };

  TaskData(const LaunchTask& launch, TaskStore* store, collectives::AbortSignal* abort);
  absl::Status AddParameter(const Executable& executable, int index);
  absl::Status AddResult(const Executable& executable, int index);
  // Adds the slices of the parameters on one more device.
  absl::Status AddDevice(const Executable& executable);
  std::vector<StateBox> StateBoxes() const;
  absl::Status ReadBoxes(const storage::TensorSource& source, absl::Span<const StateBox> boxes,
                         absl::Span<DeviceBuffers* const> buffers);

  const LaunchTask& launch_;
  TaskStore* const store_;
  collectives::AbortSignal* const abort_;
  collectives::AbortSignal reads_;  // Ends reads of data. Raised when abort_ is raised, and by the destructor.
  int64_t listener_ = 0;
  const std::vector<int> devices_;  // Mesh positions, by index.
  std::vector<Entry> parameters_;
  std::vector<Slice> scalars_;  // The slices of the losses and metrics.
  // For each parameter, the index of its input in the batch plan, or -1 if the parameter is not data.
  std::vector<int> inputs_;
  std::unique_ptr<BatchReader> batches_;
};

}  // namespace xlad::runtime
