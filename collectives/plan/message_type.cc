#include "collectives/plan/message_type.h"

#include "collectives/plan/algorithm.h"

namespace xlad::collectives {

tensor::ElementType MessageType(const CollectivePlan& plan, const CollectiveSpec& spec) {
  const absl::StatusOr<const Algorithm*> algorithm = FindAlgorithm(plan.algorithm);
  const bool sends_partials = algorithm.ok() && !(*algorithm)->reduces_once;
  const bool rounds = spec.reduction == Reduction::kSum || spec.reduction == Reduction::kProduct;
  const bool is_narrow = tensor::IsFloating(spec.type) && tensor::ByteWidth(spec.type) < 4;
  const bool widens = spec.mode == ReductionMode::kCanonical && sends_partials && rounds && is_narrow;
  return widens ? tensor::ElementType::kF32 : spec.type;
}

}  // namespace xlad::collectives
