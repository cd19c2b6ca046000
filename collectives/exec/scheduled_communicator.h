// Runs the schedules of collectives over a transport.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "collectives/exec/collective_set.h"
#include "collectives/exec/communicator.h"
#include "collectives/exec/recorder.h"
#include "collectives/exec/schedule_program.h"
#include "collectives/exec/transport.h"

namespace xlad::collectives {

// Results depend only on the inputs and the schedules. They do not depend on the transport, on timing, or on which
// devices share a process.
class ScheduledCommunicator final : public Communicator {
 public:
  struct Options {
    int device = 0;
    int first_channel = 0;  // The first channel of this communicator, which is equal on all devices.
    const CollectiveSet* collectives = nullptr;
    Transport* transport = nullptr;
    AbortSignal* abort = nullptr;
    Recorder* recorder = nullptr;
    bool checksums = false;  // Each message has a checksum of its payload, which the receiver verifies.
    // Links that the communicators of one device and one thread share, so that a message of an unexpected communicator
    // is detected. If it is null, the communicator has links of its own.
    ScheduleLinks* links = nullptr;
  };

  // Connects to all devices that share a group with `device`, and compares the hashes of the schedules of all
  // collectives. Blocks until these devices call Form too. Everything in `options` must outlive the communicator.
  static absl::StatusOr<std::unique_ptr<ScheduledCommunicator>> Form(const Options& options);

  ~ScheduledCommunicator() override;

  // Builds the schedule of this device for a collective and opens its links. Does nothing if the device takes no part.
  // Unimplemented, naming the operation, if an operation needs mapped memory or has several destinations. Must be
  // called before the collective's first launch.
  // If `other` is not null, it is the same collective with another plan and that plan's hash, and replaces the
  // collective of the set. All devices of the group must pass the same plan, which must not use more channels than the
  // plan of the set. `other` must outlive the communicator.
  absl::Status Prepare(int spec, const Collective* other = nullptr);
  absl::Status PrepareAll();
  absl::Status Launch(const CollectiveLaunch& launch) override;

  // Returns the devices that share a group with this device, in ascending order.
  std::vector<int> Peers() const;
  // Raises the abort signal, and waits until no peer reads this device's memory. Returns `status`.
  absl::Status Fail(const absl::Status& status);

 private:
  explicit ScheduledCommunicator(const Options& options)
      : options_(options), links_(options.links == nullptr ? own_links_ : *options.links) {}
  absl::Status Connect();
  absl::Status CompareHashes(const std::vector<int>& peers, const std::vector<uint64_t>& own);
  absl::Status Difference(size_t spec, uint64_t theirs, ScheduleLink* link);
  absl::Status Execute(const ScheduleProgram& program, const CollectiveLaunch& launch);
  absl::StatusOr<ScheduleLink*> OpenLink(int peer, int channel);

  const Options options_;
  ScheduleLinks own_links_;
  ScheduleLinks& links_;
  std::string difference_;                                  // The text that Difference sends.
  std::vector<std::unique_ptr<ScheduleProgram>> programs_;  // By spec; null if the spec is not prepared.
  std::vector<std::byte> scratch_;
  std::vector<std::byte> staging_;  // A copy of the inputs if the outputs would overwrite them too early.
  std::vector<std::byte> widened_;  // The inputs and outputs in f32 if the plan sends partial results in f32.
};

}  // namespace xlad::collectives
