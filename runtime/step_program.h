// The steps of an executable, checked and ready to run on one device.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "collectives/exec/abort.h"
#include "collectives/exec/communicator.h"
#include "runtime/device.h"

namespace xlad::runtime {

// Part of an allocation of the executable.
struct Slice {
  int allocation = 0;
  int64_t offset = 0;
  int64_t bytes = 0;

  bool operator==(const Slice&) const = default;
};

// What one run needs. All of it belongs to the device's thread.
struct StepEnvironment {
  Launcher* launcher = nullptr;
  collectives::Communicator* communicator = nullptr;  // May be null where there are no collectives.
  absl::Span<std::byte* const> allocations;           // Base addresses, by the executable's allocations.
  void* scratch = nullptr;                            // StepProgram::scratch_bytes.
  int64_t step = 0;                                   // Of the job.
  const collectives::AbortSignal* abort = nullptr;    // Looked at between steps, so that every loop can be ended.
};

// Immutable once made; thread-safe.
class StepProgram {
 public:
  struct Node;

  // InvalidArgument, naming the step, where a step refers to a buffer, kernel, library op or collective that is not
  // there, or buffers do not have the sizes that it needs. `loaded` must outlive the program.
  static absl::StatusOr<std::unique_ptr<StepProgram>> Prepare(const LoadedExecutable& loaded);
  ~StepProgram();

  // All steps in order, on the calling thread. Errors name the step and its place in the user's code; buffers are
  // undefined then.
  absl::Status Run(const StepEnvironment& environment) const;

  int64_t scratch_bytes() const { return scratch_bytes_; }

 private:
  StepProgram() = default;

  std::vector<Node> nodes_;
  int64_t scratch_bytes_ = 0;
};

// The slice of a proto; InvalidArgument where it leaves its allocation.
absl::StatusOr<Slice> ReadSlice(const Executable& executable, const BufferSlice& proto);

}  // namespace xlad::runtime
