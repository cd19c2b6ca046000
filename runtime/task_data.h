// State and data of a task's devices: reads them into device memory and writes state back.
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

// `device` is a mesh position, `index` the number of a device on this worker. Thread-safe; calls for one device's
// buffers come from one thread at a time.
class TaskData {
 public:
  // `executables` are by index; devices of different kinds have different ones. All arguments must outlive the object.
  // InvalidArgument if shapes and boxes of the executables, or kinds of the spec, are not consistent.
  static absl::StatusOr<std::unique_ptr<TaskData>> Make(const LaunchTask& launch,
                                                        absl::Span<const Executable* const> executables,
                                                        TaskStore* store, collectives::AbortSignal* abort);

  ~TaskData();

  // Reads the state before launch.first_step into the parameters of all devices here; `buffers` are by index. Boxes
  // that several devices hold are read once. The memory that this takes is limited.
  absl::Status ReadState(absl::Span<DeviceBuffers* const> buffers);
  // Opens the data and begins to read the batches, ahead of the steps.
  absl::Status StartData();
  // Writes the data and the number of `step` into the device's parameters.
  absl::Status WriteInputs(int index, int64_t step, DeviceBuffers* buffers);
  // The boxes of the state for whose checkpoints the devices here are responsible: of all devices that hold the same
  // box, the lowest saves it. They refer to this object.
  std::vector<SavedBox> SavedBoxes() const;
  // The first tensor of the state with a NaN or an infinity in the part that the device holds, or "" if all are finite.
  absl::StatusOr<std::string> FirstNotFinite(int index, const DeviceBuffers& buffers) const;
  // The losses and metrics of a step, in the order of the spec's results.
  absl::StatusOr<std::vector<float>> ReadScalars(const DeviceBuffers& buffers) const;

 private:
  struct Entry : EntryLayout {
    std::string name;
    JobSpec::Parameter::Kind kind = JobSpec::Parameter::KIND_UNSPECIFIED;
    std::vector<Slice> slices;  // By index: where the device has its shard.
  };
  // A box of the state, and the devices here that hold it.
  struct StateBox {
    const Entry* entry;
    tensor::Box box;
    std::vector<int> indices;
  };

  TaskData(const LaunchTask& launch, TaskStore* store, collectives::AbortSignal* abort);
  absl::Status AddParameter(const Executable& executable, int index);
  absl::Status AddResult(const Executable& executable, int index);
  // Adds the places of the entries in the memory of one more device.
  absl::Status AddDevice(const Executable& executable);
  std::vector<StateBox> StateBoxes() const;
  absl::Status ReadBoxes(const storage::TensorSource& source, absl::Span<const StateBox> boxes,
                         absl::Span<DeviceBuffers* const> buffers);

  const LaunchTask& launch_;
  TaskStore* const store_;
  collectives::AbortSignal* const abort_;
  collectives::AbortSignal reads_;  // Raised with `abort_`, and when the object ends: ends reads of data.
  int64_t listener_ = 0;
  const std::vector<int> devices_;  // Mesh positions, by index.
  std::vector<Entry> parameters_;
  std::vector<Slice> scalars_;  // The results that are losses and metrics.
  std::vector<int> inputs_;     // By parameter: its input of the batches, or -1.
  std::unique_ptr<BatchReader> batches_;
};

}  // namespace xlad::runtime
