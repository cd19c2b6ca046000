// Runs an executable's collectives for one device.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "base/status.h"

namespace xlad::collectives {

// One launch: buffers of the collective's operands and results, in order, and when it is. All members of a group
// must launch the same collective at the same point; where they do not, the error names both sides.
struct CollectiveLaunch {
  int spec = 0;                               // Index into Executable.collectives.
  absl::Span<const std::byte* const> inputs;  // Element i has the bytes of the spec's counts[i].
  absl::Span<std::byte* const> outputs;       // May be the inputs.
  int64_t step = 0;
  uint64_t iteration = 0;  // Fingerprint of the counters of the loops around it; 0: none.
};

// Threads: the device's own. Buffers are the caller's; on return they are free for other use.
// Errors: the task is over for all devices of the task here, and peers are told; outputs are undefined. The error
// names collective, step, rank, the schedule's operation, and the peer where one is to blame.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual absl::Status Launch(const CollectiveLaunch& launch) = 0;
};

}  // namespace xlad::collectives
