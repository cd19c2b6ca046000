// The memory of one device for a task: every allocation of its executable, and how results become parameters.
#pragma once

#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "proto/executable.pb.h"
#include "proto/job.pb.h"
#include "runtime/device.h"
#include "runtime/step_program.h"

namespace xlad::runtime {

// Which results become which parameters of the next step, as moves between allocations. Results that share their
// parameter's memory (donation) need nothing; others change places with it; where that cannot be, bytes are copied.
struct FeedPlan {
  std::vector<int> block_from;  // By allocation: whose memory it has after the step. Identity where nothing moves.
  struct Copy {
    Slice from;
    Slice to;
  };
  std::vector<Copy> copies;  // Before the blocks move.
  std::vector<Slice> keep;   // State that no result feeds, in donated memory: put back before every step.
};

// InvalidArgument where the executable's entry and the spec do not belong together.
absl::StatusOr<FeedPlan> PlanFeeds(const Executable& executable, const JobSpec& spec);

// Used by one thread at a time.
class DeviceBuffers {
 public:
  // Constants are shared: they are made once for a worker by MakeConstants and outlive the buffers. `plan` too.
  static absl::StatusOr<std::unique_ptr<DeviceBuffers>> Allocate(Device* device, const Executable& executable,
                                                                 const FeedPlan& plan,
                                                                 const std::vector<std::byte*>& constants);

  absl::Span<std::byte* const> addresses() const { return addresses_; }
  absl::Span<std::byte> At(const Slice& slice) const {
    return absl::MakeSpan(addresses_[slice.allocation] + slice.offset, static_cast<size_t>(slice.bytes));
  }

  // Remembers the state that has to be put back. Once, when the first state is in place.
  void KeepState();
  // Before and after every step.
  void PrepareStep();
  void FeedBack();

 private:
  explicit DeviceBuffers(const FeedPlan& plan) : plan_(plan) {}

  const FeedPlan& plan_;
  std::vector<std::unique_ptr<DeviceMemory>> memory_;
  std::vector<std::byte*> addresses_;
  std::vector<std::byte*> next_addresses_;
  std::vector<std::vector<std::byte>> kept_;
  std::vector<std::vector<std::byte>> staged_;
};

// Memory with the contents of every CONSTANT allocation; null for the others.
struct Constants {
  std::vector<std::unique_ptr<DeviceMemory>> memory;
  std::vector<std::byte*> addresses;
};
absl::StatusOr<Constants> MakeConstants(Device* device, const Executable& executable);

}  // namespace xlad::runtime
