// Runs the collectives of one device: those among devices of this host on mapped memory, all others by messages.
//
// A collective by messages that is started runs on a thread of its own while the device computes. One on mapped memory
// runs when it is started, because it needs the cores that would compute.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "collectives/exec/host/host_group.h"
#include "collectives/exec/progress_thread.h"
#include "collectives/exec/scheduled_communicator.h"

namespace xlad::collectives {

class HostCommunicator final : public Communicator {
 public:
  struct Options {
    ScheduledCommunicator::Options messages;
    std::shared_ptr<HostMemory> memory;
    bool exclusive = false;  // Every device of the task has a core.
    Recorder* recorder = nullptr;  // For collectives on mapped memory. It may be that of the messages, and then
                                   // messages are not sent while the device computes.
  };

  // Forms a ScheduledCommunicator, then a HostGroup for each group of devices that can reach each other's memory and
  // has a collective that HostGroup can run. The members of a group decide together; if one of them cannot map the
  // memory, all use messages, with the same results. Blocks until the peers call Form too.
  static absl::StatusOr<std::unique_ptr<HostCommunicator>> Form(const Options& options);

  absl::Status Launch(const CollectiveLaunch& launch) override;
  absl::StatusOr<int64_t> Start(const CollectiveLaunch& launch) override;
  absl::Status Wait(int64_t number) override;

  // The number of collectives that run on mapped memory.
  int mapped_collectives() const;

 private:
  class Meeting;

  explicit HostCommunicator(const Options& options) : options_(options) {}
  absl::Status FormGroups();
  absl::StatusOr<HostGroup*> FormGroup(const std::vector<int>& devices, int rank, Meeting* meeting);
  bool IsMapped(int spec) const { return spec >= 0 && spec < std::ssize(mapped_) && mapped_[spec].group != nullptr; }
  absl::Status Check(const HostOperation& operation, const CollectiveLaunch& launch) const;

  const Options options_;
  std::unique_ptr<ScheduledCommunicator> messages_;
  std::map<std::vector<int>, std::unique_ptr<HostGroup>> groups_;  // By devices; null if they use messages.
  struct Mapped {
    HostGroup* group = nullptr;
    std::unique_ptr<HostOperation> operation;
  };
  std::vector<Mapped> mapped_;  // By spec; null if it runs by messages, or the device takes no part.
  std::unique_ptr<ProgressThread> progress_;  // Uses `messages_`; null before the first start.
};

}  // namespace xlad::collectives
