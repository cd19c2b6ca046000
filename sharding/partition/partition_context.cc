#include "sharding/partition/partition_context.h"

#include "base/containers.h"

namespace xlad::sharding {

hlo::Computation* PartitionContext::Cloned(const hlo::Computation& computation) {
  hlo::Computation*& clone = cloned_[&computation];
  if (clone == nullptr) clone = module_->CloneComputation(computation, computation.name());
  return clone;
}

void PartitionContext::Warn(const hlo::Instruction& op, absl::string_view what) {
  const std::string place = source_.module->SourceOf(op);
  std::string warning = absl::StrCat(op.name(), ": ", what, place.empty() ? "" : absl::StrCat(" (", place, ")"));
  if (!Contains(warnings_, warning)) {
    warnings_.push_back(std::move(warning));
  }
}

}  // namespace xlad::sharding
