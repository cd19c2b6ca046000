// The memory that a program needs, and the check that a machine has it.
#pragma once

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "base/status.h"
#include "proto/worker.pb.h"
#include "proto/xlad_v1.h"
#include "runtime/connected_executable.h"

namespace xlad::runtime {

// Lists up to four values, largest first: "w (parameter, 4.29 GB), sort.3 (train.py:31) (temporary, 1.07 GB)". Only
// values in the allocations that `counts` accepts are listed. The result is empty if there are none.
std::string LargestValues(const Executable& executable, absl::FunctionRef<bool(int allocation)> counts);

// Memory in bytes, with swap space.
struct AvailableMemory {
  int64_t of_group = 0;  // For the control group of this process.
  int64_t of_machine = 0;

  static AvailableMemory Now();
};

// ResourceExhausted if the devices of this worker need more memory than its control group may use, or if all devices of
// the job on this machine need more than the machine has. Only allocations in the machine's memory count; a GPU's
// memory is not part of it. Workers are on one machine if their host names and the hosts of their data addresses are
// equal. In a job on several kinds of devices, only the devices of this worker count. The arrays and the other programs
// of a session do not count. The error names the largest values in the machine's memory of the shard that needs the
// most of it, and ends with `advice`.
//
// Without this check, the system would promise the memory, and kill a process when it writes to it.
absl::Status CheckHostMemory(const ConnectedExecutable& executable, const LaunchTask& launch,
                             const std::string& worker_id, const AvailableMemory& available, absl::string_view advice);

}  // namespace xlad::runtime
