#include "sharding/proof/check.h"

#include "hlo/attribute_keys.h"
#include "hlo/verify/verifier.h"
#include "sharding/proof/check_instances.h"
#include "sharding/proof/check_structure.h"

namespace xlad::sharding {

namespace {

bool HasManual(const hlo::Module& module) {
  for (const auto& computation : module.computations()) {
    for (const auto& instruction : computation->instructions()) {
      if (hlo::FindAttribute(*instruction, hlo::kManualAxesKey) != nullptr) return true;
    }
  }
  return false;
}

}  // namespace

absl::Status Check(const ShardedModule& before, const PartitionedProgram& after, ProvenInstances* proven) {
  for (const Variant& variant : after.variants) {
    XLAD_RETURN_IF_ERROR(Annotate(hlo::Verify(*variant.module), "partitioned program"));
    XLAD_RETURN_IF_ERROR(CheckCollectives(after, *variant.module));
    XLAD_RETURN_IF_ERROR(CheckPartials(after, *variant.module));
    // The shardings that a manual computation declares for its results cannot be proven.
    if (after.variants.size() == 1 && !HasManual(*before.module)) {
      XLAD_RETURN_IF_ERROR(CheckReplicasAgree(after, *variant.module));
    }
  }
  if (before.mesh.devices() == 1) return absl::OkStatus();
  return CheckInstances(before, proven).status();
}

}  // namespace xlad::sharding
