// Runs collectives on buffers that the host cannot access, through copies in host memory ("staging").
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "collectives/exec/collective_set.h"
#include "collectives/exec/communicator.h"
#include "collectives/exec/device_ops.h"

namespace xlad::collectives {

// Wraps `inner`, which reads and writes host memory, so that it works on buffers of the device of `ops`. Each launch
// and start waits for the stream of `ops`, so the inputs are complete. If the host can access the buffers, `inner` gets
// them directly. Otherwise the inputs are copied to host memory, the collective runs there, and the outputs are copied
// back. The results have the same bits either way.
class StagedCommunicator final : public Communicator {
 public:
  // `device` is the device's number in Collective::groups, and `inner` is its communicator. `ops` and `collectives`
  // must outlive this communicator.
  StagedCommunicator(DeviceOps* ops, const CollectiveSet* collectives, int device, std::unique_ptr<Communicator> inner)
      : ops_(*ops), collectives_(*collectives), device_(device), inner_(std::move(inner)) {}

  absl::Status Launch(const CollectiveLaunch& launch) override;
  // If the host cannot access the buffers, copies the inputs before it returns; Wait copies the outputs.
  absl::StatusOr<int64_t> Start(const CollectiveLaunch& launch) override;
  absl::Status Wait(int64_t number) override;
  std::string Medium(int spec) const override;
  // Says why a collective does not run in device memory.
  void SetReason(int spec, std::string why) { reasons_[spec] = std::move(why); }

 private:
  // The buffers of one collective in host memory.
  struct Staging {
    CollectiveLaunch ToLaunch(const CollectiveLaunch& launch) const {
      return {launch.spec, inputs, outputs, launch.step, launch.iteration};
    }
    std::vector<std::byte> memory;  // The inputs, then the outputs that are not in place.
    std::vector<const std::byte*> inputs;
    std::vector<std::byte*> outputs;
    // The outputs to copy to the device: their addresses there and their copies. Empty if the rank keeps its outputs.
    std::vector<std::pair<std::byte*, absl::Span<const std::byte>>> results;
    int64_t inner = 0;  // The number that `inner_` returned.
  };
  absl::StatusOr<Staging> CopyIn(const CollectiveLaunch& launch);
  absl::Status CopyOut(Staging staging);

  DeviceOps& ops_;
  const CollectiveSet& collectives_;
  const int device_;
  std::map<int, std::string> reasons_;        // By collective.
  std::vector<std::vector<std::byte>> free_;  // The memory of finished collectives, for later ones.
  std::map<int64_t, Staging> started_;        // The started collectives, by number.
  int64_t count_ = 0;
  // Declared last and destroyed first, because it may use the memory of started collectives.
  const std::unique_ptr<Communicator> inner_;
};

}  // namespace xlad::collectives
