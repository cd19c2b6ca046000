// Runs the collectives of one device. Collectives among devices of this host use mapped memory if HostGroup can run
// them; all others use messages.
//
// Start runs a collective by messages on another thread, while the device computes. A collective on mapped memory has
// finished when Start returns, because it needs the cores that would compute.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "collectives/exec/host/host_group.h"
#include "collectives/exec/progress_thread.h"
#include "collectives/exec/scheduled_communicator.h"
#include "collectives/plan/placed_plan.h"

namespace xlad::collectives {

class HostCommunicator final : public Communicator {
 public:
  struct Options {
    ScheduledCommunicator::Options messages;
    std::shared_ptr<HostMemory> memory;
    bool exclusive = false;  // Every device of the task has a core of its own.
    // Records collectives on mapped memory. If it is also the recorder of the messages, collectives by messages do not
    // run while the device computes.
    Recorder* recorder = nullptr;
    std::string greeting;  // A text of at most 1000 bytes that is sent to each peer.
    // Replaces plans of collectives that use messages. If the rules of the members of a group have different names, the
    // group keeps the plan.
    PlacementRules rules = RulesOverHosts();
  };

  // Forms a ScheduledCommunicator. Then forms a HostGroup for each group of devices that can reach each other's memory
  // and has a collective that HostGroup can run. The members of a group decide together: if one of them cannot map the
  // memory, all use messages. Only results in mode kFast depend on this. FailedPrecondition, with both plans, if two
  // members with rules of the same name run a collective with different plans. Blocks until the peers call Form too.
  static absl::StatusOr<std::unique_ptr<HostCommunicator>> Form(const Options& options);

  absl::Status Launch(const CollectiveLaunch& launch) override;
  absl::StatusOr<int64_t> Start(const CollectiveLaunch& launch) override;
  absl::Status Wait(int64_t number) override;

  // The greetings of the devices that share a group with this one.
  const std::map<int, std::string>& greetings() const { return greetings_; }

 private:
  class Meeting;

  explicit HostCommunicator(const Options& options) : options_(options) {}
  absl::Status FormGroups();
  absl::Status Greet(Meeting* meeting);
  absl::Status PlacePlan(int spec, const std::vector<int>& devices, const Meeting& meeting);
  absl::Status ComparePlans(Meeting* meeting) const;
  // The collective with the plan that runs if the collective uses messages.
  const Collective& PlacedAs(int spec) const;
  absl::StatusOr<HostGroup*> FormGroup(const std::vector<int>& devices, int rank, Meeting* meeting);
  bool IsMapped(int spec) const { return spec >= 0 && spec < std::ssize(mapped_) && mapped_[spec].group != nullptr; }
  absl::Status Check(const HostOperation& operation, const CollectiveLaunch& launch) const;

  const Options options_;
  std::map<int, Collective> placed_;  // The collectives whose plans are replaced, by spec.
  std::unique_ptr<ScheduledCommunicator> messages_;
  std::map<int, std::string> greetings_;
  std::map<std::vector<int>, std::unique_ptr<HostGroup>> groups_;  // By devices; null if the group uses messages.
  struct Mapped {
    HostGroup* group = nullptr;
    std::unique_ptr<HostOperation> operation;
  };
  // By spec. The group is null if the collective uses messages or the device does not take part.
  std::vector<Mapped> mapped_;
  std::unique_ptr<ProgressThread> progress_;  // Runs collectives on `messages_`. Null before the first start.
};

}  // namespace xlad::collectives
