// The user's own collectives in manual computations.
#include "sharding/partition/ops/families.h"

namespace xlad::sharding {

// Dimensions that the collective does not split or concatenate may be split over axes that are not manual.
absl::Status EmitCollective(LocalBuilder& local, LocalOp& op) {
  hlo::Instruction* collective = local.CloneLocal(*op.source, LocalResultShape(op), Locals(op.operands));
  local.context().recorder().RecordUserCollective(*op.source, collective);
  SetResults(local, op, collective);
  return absl::OkStatus();
}

}  // namespace xlad::sharding
