// Runs collectives on buffers that the host cannot access: they are staged through host memory.
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "collectives/exec/collective_set.h"
#include "collectives/exec/communicator.h"
#include "collectives/exec/device_ops.h"

namespace xlad::collectives {

// Makes `inner`, which reads and writes host memory, work on buffers of the device behind `ops`. Each launch and start
// waits for the stream of `ops`, so that the inputs are complete. If the host can access the buffers they are passed on
// as they are; otherwise the inputs are copied to host memory, the collective runs there, and the outputs are copied
// back. The results have the same bits either way. `ops` and `collectives` must outlive the communicator.
class StagedCommunicator final : public Communicator {
 public:
  StagedCommunicator(DeviceOps* ops, const CollectiveSet* collectives, std::unique_ptr<Communicator> inner)
      : ops_(*ops), collectives_(*collectives), inner_(std::move(inner)) {}

  absl::Status Launch(const CollectiveLaunch& launch) override;
  // The inputs are copied before this returns, and the outputs in Wait.
  absl::StatusOr<int64_t> Start(const CollectiveLaunch& launch) override;
  absl::Status Wait(int64_t number) override;

 private:
  // The buffers of one collective in host memory.
  struct Staging {
    CollectiveLaunch ToLaunch(const CollectiveLaunch& launch) const {
      return {launch.spec, inputs, outputs, launch.step, launch.iteration};
    }
    std::vector<std::byte> memory;  // Inputs, then outputs that are not in place.
    std::vector<const std::byte*> inputs;
    std::vector<std::byte*> outputs;
    std::vector<std::pair<std::byte*, int64_t>> results;  // The places of outputs on the device, and their bytes.
    int64_t inner = 0;                                    // The number that `inner_` gave it.
  };
  absl::StatusOr<Staging> CopyIn(const CollectiveLaunch& launch);
  absl::Status CopyOut(Staging staging);

  DeviceOps& ops_;
  const CollectiveSet& collectives_;
  std::vector<std::vector<std::byte>> free_;  // Memory of collectives that have ended, for the next ones.
  std::map<int64_t, Staging> started_;        // By number.
  int64_t count_ = 0;
  // Ends first: it may use what was started.
  const std::unique_ptr<Communicator> inner_;
};

}  // namespace xlad::collectives
