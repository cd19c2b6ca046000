// Runs an executable's collectives for one device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/status.h"

namespace xlad::collectives {

// One launch of a collective: the buffers of its operands and results, in order, and its position in the program. All
// members of a group must launch the same collective at the same position. If they do not, the error names both
// launches.
struct CollectiveLaunch {
  int spec = 0;  // The index into Executable.collectives.
  // InputCounts and OutputCounts (layout.h) return their numbers of elements. The outputs may be the same buffers as
  // the inputs.
  absl::Span<const std::byte* const> inputs;
  absl::Span<std::byte* const> outputs;
  int64_t step = 0;
  uint64_t iteration = 0;  // A fingerprint of the counters of the enclosing loops; 0 outside loops.
};

// What Communicator::Medium returns if the data is in host memory. Like all results of Medium, it is a key of
// RunReport.collectives.
inline constexpr char kHostMedium[] = "host memory";

// Threads: only the thread of its device may use a communicator. Ownership: buffers belong to the caller, who may reuse
// them when Launch returns. After Start, the inputs must not be written and the outputs not accessed until Wait has
// returned. Order: all members of a group must launch and start their collectives in the same order. Errors: an error
// of a running collective ends the task for all devices on this worker and is sent to the peers; outputs are undefined.
// The message names the collective, the step and the rank, and the operation of the schedule if a schedule is run. If a
// peer caused the error, it also names the peer.
class Communicator {
 public:
  virtual ~Communicator() = default;
  // Runs a collective. Returns when this device's part has finished or, if the buffers are in device memory, when work
  // that is enqueued on the device's stream later runs after it.
  virtual absl::Status Launch(const CollectiveLaunch& launch) = 0;
  // Starts a collective, which may run while the caller computes, and returns a number for Wait. The default
  // implementation runs the collective before it returns. So do implementations for which another thread would not
  // help.
  virtual absl::StatusOr<int64_t> Start(const CollectiveLaunch& launch) {
    XLAD_RETURN_IF_ERROR(Launch(launch));
    return 0;
  }
  // Waits until a started collective has finished, and returns its status. Must be called once per Start.
  // InvalidArgument if no Start has returned `number`.
  virtual absl::Status Wait(int64_t number) {
    if (number == 0) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("found collective ", number, ", expected 0, which Start returned"));
  }
  // Says where the collective runs: "host memory", "device memory", "shared device memory", "NCCL", or "host memory
  // (staged: WHY)".
  virtual std::string Medium(int /*spec*/) const { return kHostMedium; }
};

}  // namespace xlad::collectives
