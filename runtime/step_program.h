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

// How often each step has run and how long it took, by its number: steps are numbered from 0 in the order of the
// executable, a loop before its condition and body, a branching before its branches. The time of these includes that of
// what is inside.
struct StepTimes {
  const Clock* clock = nullptr;
  std::vector<int64_t> calls, ns;
};

// What one run needs. Used by one thread at a time.
struct StepEnvironment {
  Stream* stream = nullptr;
  Launcher* launcher = nullptr;                       // Enqueues on `stream`.
  collectives::Communicator* communicator = nullptr;  // May be null if there are no collectives.
  absl::Span<std::byte* const> allocations;           // Device addresses, by the executable's allocations.
  void* scratch = nullptr;                            // StepProgram::scratch_bytes() of device memory.
  int64_t step = 0;                                   // The step of the job.
  int device = 0;                                     // The position in the mesh, for messages.
  StepTimes* times = nullptr;  // If it is not null, the run waits for each step to finish and adds its time.
  StepTracer* tracer = nullptr;  // If it is not null, each step becomes a span, and the run waits for each to finish.
  const collectives::AbortSignal* abort = nullptr;    // If it is raised the run ends, even inside an endless loop.
};

// Immutable; thread-safe.
class StepProgram {
 public:
  struct Node;

  // InvalidArgument, naming the step, if a step refers to a buffer, kernel, library op or collective that does not
  // exist, or has buffers that are too small. `loaded` must outlive the program.
  static absl::StatusOr<std::unique_ptr<StepProgram>> Prepare(const LoadedExecutable& loaded);
  ~StepProgram();

  // Enqueues all steps in order and returns when they have finished. The predicate of a loop and the selector of a
  // branch are read by the host, which waits for the stream. Collectives that are started run beside the steps up to
  // their ends (proto CollectiveStep); after an error they run until the abort signal is raised. After an error, which
  // names the step that reported it and the line of the user's code, the buffers are undefined. If the executable says
  // which floats its steps read and write (CompilePolicy.check_numerics), the first NaN or infinity that a step makes
  // is an error: OutOfRange.
  absl::Status Run(const StepEnvironment& environment) const;

  int64_t scratch_bytes() const { return scratch_bytes_; }
  int num_steps() const { return num_steps_; }  // Nested ones included.

 private:
  StepProgram() = default;

  std::vector<Node> nodes_;
  int64_t scratch_bytes_ = 0;
  int num_steps_ = 0;
};

}  // namespace xlad::runtime
