// Runs collectives on buffers that the host cannot access: they are staged through host memory.
#pragma once

#include <memory>
#include <vector>

#include "collectives/exec/collective_set.h"
#include "collectives/exec/communicator.h"
#include "collectives/exec/device_ops.h"

namespace xlad::collectives {

// Makes `inner`, which reads and writes host memory, work on buffers of the device behind `ops`. Each launch waits for
// the stream of `ops`, so that the inputs are complete. If the host can access the buffers they are passed on as they
// are; otherwise the inputs are copied to host memory, the collective runs there, and the outputs are copied back. The
// results have the same bits either way. `ops` and `collectives` must outlive the communicator.
class StagedCommunicator final : public Communicator {
 public:
  StagedCommunicator(DeviceOps* ops, const CollectiveSet* collectives, std::unique_ptr<Communicator> inner)
      : ops_(*ops), collectives_(*collectives), inner_(std::move(inner)) {}

  absl::Status Launch(const CollectiveLaunch& launch) override;

 private:
  absl::Status LaunchStaged(const CollectiveLaunch& launch);

  DeviceOps& ops_;
  const CollectiveSet& collectives_;
  const std::unique_ptr<Communicator> inner_;
  std::vector<std::byte> staging_;  // Inputs, then outputs that are not in place; grows as needed.
};

}  // namespace xlad::collectives
