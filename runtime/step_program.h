// The steps of an executable (kernels, library ops, collectives, copies, loops and branches), checked and ready to run
// on one device.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "base/clock.h"
#include "collectives/exec/abort.h"
#include "collectives/exec/communicator.h"
#include "runtime/device.h"
#include "runtime/step_tracer.h"

namespace xlad::runtime {

// The number of executions and the total time of each step, by the step's number. Steps are numbered from 0 in the
// order of the executable. A loop comes before its condition and body, and a conditional before its branches. The times
// of loops and conditionals include the times of their nested steps.
struct StepTimes {
  const Clock* clock = nullptr;
  std::vector<int64_t> calls, ns;
};

// The inputs of one run. Used by one thread at a time.
struct StepEnvironment {
  Stream* stream = nullptr;
  Launcher* launcher = nullptr;                       // Enqueues on `stream`.
  collectives::Communicator* communicator = nullptr;  // May be null if there are no collectives.
  absl::Span<std::byte* const> allocations;           // Device addresses, by the executable's allocations.
  void* scratch = nullptr;                            // Device memory of StepProgram::scratch_bytes() bytes.
  int64_t step = 0;                                   // The step of the job.
  int device = 0;                                     // The device's position in the mesh, for messages.
  StepTimes* times = nullptr;    // If not null, the run waits for each step to finish and adds its time here.
  StepTracer* tracer = nullptr;  // If not null, the run waits for each step to finish and records it as a span.
  // When the signal is raised, the run ends, even inside an endless loop.
  const collectives::AbortSignal* abort = nullptr;
};

// Immutable; thread-safe.
class StepProgram {
 public:
  struct Node;

  // Errors name the step. NotFound if the object code does not have the symbol of a kernel. InvalidArgument if a step
  // refers to a buffer, library op or collective that does not exist, has buffers that are too small, or is otherwise
  // malformed. `loaded` must outlive the program.
  static absl::StatusOr<std::unique_ptr<StepProgram>> Prepare(const LoadedExecutable& loaded);
  ~StepProgram();

  // Enqueues all steps in order and returns when they have finished. The predicate of a loop and the selector of a
  // branch are read by the host, which waits for the stream. Asynchronous collectives run concurrently with the steps
  // between their start and their end (proto CollectiveStep). After an error, they run until the abort signal is
  // raised. An error names the step that reported it and the line of the user's code; after it, the contents of the
  // buffers are undefined. If the executable lists the floats that its steps read and write
  // (CompilePolicy.check_numerics), the run returns OutOfRange for the first step that makes a NaN or infinity.
  absl::Status Run(const StepEnvironment& environment) const;

  int64_t scratch_bytes() const { return scratch_bytes_; }
  int num_steps() const { return num_steps_; }  // The number of all steps, including nested ones.

 private:
  StepProgram() = default;

  std::vector<Node> nodes_;
  int64_t scratch_bytes_ = 0;
  int num_steps_ = 0;
};

}  // namespace xlad::runtime
