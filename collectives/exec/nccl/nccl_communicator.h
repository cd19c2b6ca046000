// Runs the collectives of a device with NCCL, on device memory. Another communicator runs those that NCCL cannot run.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "collectives/exec/abort.h"
#include "collectives/exec/communicator.h"
#include "collectives/exec/device_ops.h"
#include "collectives/exec/nccl/nccl_group.h"
#include "collectives/exec/nccl/nccl_rules.h"
#include "collectives/exec/recorder.h"
#include "collectives/exec/text_links.h"

namespace xlad::collectives::nccl {

// What a device needs to use NCCL. `stream` is null if the device has no side streams. `library` is null if the device
// cannot use NCCL.
struct OpenedDevice {
  const Library* library = nullptr;
  std::unique_ptr<SideStream> stream;
  Endpoint endpoint;
};

// If the device cannot use NCCL, the reason is in the endpoint. NCCL is only loaded for devices that have side streams.
OpenedDevice OpenDevice(DeviceOps* ops, absl::StatusOr<const Library*> (*load)() = TheNccl);

// NCCL's operations are enqueued on a side stream of the device, after the work that is on the device's stream at that
// time. A started collective runs while the device computes. Launch and Wait wait for the side stream only. The host
// therefore never waits for the device's stream while NCCL waits for a peer.
class NcclCommunicator final : public Communicator {
 public:
  struct Options {
    int device = 0;
    const CollectiveSet* collectives = nullptr;
    AbortSignal* abort = nullptr;
    Transport* transport = nullptr;
    int channel = 0;  // The channel for the ids of NCCL's communicators.
    Recorder* recorder = nullptr;
    int64_t reason_ms = Group::Options().reason_ms;
  };

  // `endpoints` contains the endpoints of this device and of all devices that share a group with it. Returns `other` if
  // NCCL runs no collective. FailedPrecondition, with the reason, if a plan requires NCCL (CollectivePlan::engine) and
  // NCCL cannot run the collective. Blocks until the peers call Form too. Everything in `options` must outlive the
  // communicator.
  static absl::StatusOr<std::unique_ptr<Communicator>> Form(const Options& options, OpenedDevice opened,
                                                            const std::map<int, Endpoint>& endpoints,
                                                            std::unique_ptr<Communicator> other);
  // Aborts NCCL's operations that have not ended.
  ~NcclCommunicator() override;

  absl::Status Launch(const CollectiveLaunch& launch) override;
  absl::StatusOr<int64_t> Start(const CollectiveLaunch& launch) override;
  absl::Status Wait(int64_t number) override;
  std::string Medium(int spec) const override { return IsOwn(spec) ? "NCCL" : other_->Medium(spec); }

 private:
  struct Started {
    Recorder::Place place;
    Group* group = nullptr;
    std::unique_ptr<SideStream::Mark> mark;                // Null if the operation could not be enqueued.
    std::vector<std::shared_ptr<const std::byte>> copies;  // The copies of inputs that overlap outputs.
  };

  NcclCommunicator(const Options& options, OpenedDevice opened, std::unique_ptr<Communicator> other)
      : options_(options), opened_(std::move(opened)), other_(std::move(other)) {}
  absl::Status FormGroups(const std::map<int, Endpoint>& endpoints);
  absl::StatusOr<Group*> FormGroup(const std::vector<int>& devices, int rank, TextLinks* links);
  bool IsOwn(int spec) const { return spec >= 0 && spec < std::ssize(by_spec_) && by_spec_[spec] != nullptr; }
  // Fills `started`, whose copies must be kept even after an error.
  absl::Status Enqueue(const CollectiveLaunch& launch, Started* started);
  absl::Status Fail(const Recorder::Place& place, const absl::Status& status);
  // `collectives` is the number of collectives in which the device takes part.
  void LogChoice(int collectives, const std::set<std::string>& reasons) const;

  const Options options_;
  OpenedDevice opened_;
  std::map<std::vector<int>, std::unique_ptr<Group>> groups_;  // By devices.
  std::vector<Group*> by_spec_;                                // Null if `other_` runs the collective.
  std::map<int64_t, Started> started_;                         // By number. The numbers are negative.
  int64_t last_number_ = 0;
  std::unique_ptr<Communicator> other_;
};

}  // namespace xlad::collectives::nccl
