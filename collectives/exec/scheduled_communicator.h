// Runs collectives by their schedules over a transport.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "collectives/exec/collective_set.h"
#include "collectives/exec/communicator.h"
#include "collectives/exec/recorder.h"
#include "collectives/exec/schedule_run.h"
#include "collectives/exec/transport.h"

namespace xlad::collectives {

// Results depend only on the schedules: not on the transport, on timing, or on which devices share a process.
class ScheduledCommunicator final : public Communicator {
 public:
  struct Options {
    int device = 0;
    int first_channel = 0;  // The channels of this communicator begin here, equally on all devices.
    const CollectiveSet* collectives = nullptr;
    Transport* transport = nullptr;
    AbortSignal* abort = nullptr;
    Recorder* recorder = nullptr;
    bool checksums = false;  // Each message carries a checksum of its payload, which the receiver compares.
    // The links that communicators of one device and one thread share, so that a message of another communicator than
    // the expected one is noticed. Null: links of its own.
    ScheduleLinks* links = nullptr;
  };

  // Connects to all devices with which `device` shares a group and compares the hashes of the schedules of all
  // collectives. Blocks until these devices call Form too. Everything in `options` must outlive the communicator.
  static absl::StatusOr<std::unique_ptr<ScheduledCommunicator>> Form(const Options& options);

  ~ScheduledCommunicator() override;

  // Builds the schedule of this device for a collective and opens its links. Does nothing if the device takes no part.
  // Unimplemented, naming the operation, if a schedule needs mapped memory. Call it before the first launch.
  absl::Status Prepare(int spec);
  absl::Status PrepareAll();
  absl::Status Launch(const CollectiveLaunch& launch) override;

  // The devices with which this one shares a group, in ascending order.
  std::vector<int> Peers() const;
  // Raises the abort signal, and returns when no peer reads this device's memory any longer.
  absl::Status Fail(const absl::Status& status);

 private:
  explicit ScheduledCommunicator(const Options& options)
      : options_(options), links_(options.links == nullptr ? own_links_ : *options.links) {}
  absl::Status Connect();
  absl::Status CompareHashes(const std::vector<int>& peers, const std::vector<uint64_t>& own);
  absl::Status Difference(size_t spec, uint64_t theirs, ScheduleLink* link);
  absl::StatusOr<ScheduleLink*> OpenLink(int peer, int channel);

  const Options options_;
  ScheduleLinks own_links_;
  ScheduleLinks& links_;
  std::string difference_;                                  // What Difference sends.
  std::vector<std::unique_ptr<ScheduleProgram>> programs_;  // By spec; null if it is not prepared.
  std::vector<std::byte> scratch_;
  std::vector<std::byte> staging_;  // A copy of the input if the output would overwrite it too early.
};

}  // namespace xlad::collectives
