#include "sharding/check.h"

#include "hlo/verifier.h"
#include "sharding/check_instances.h"
#include "sharding/check_structure.h"

namespace xlad::sharding {

absl::Status Check(const ShardedModule& before, const PartitionedProgram& after) {
  for (const Variant& variant : after.variants) {
    XLAD_RETURN_IF_ERROR(Annotate(hlo::Verify(*variant.module), "partitioned program"));
    XLAD_RETURN_IF_ERROR(CheckCollectives(after, *variant.module));
    XLAD_RETURN_IF_ERROR(CheckPartials(after, *variant.module));
    if (after.variants.size() == 1) XLAD_RETURN_IF_ERROR(CheckReplicasAgree(after, *variant.module));
  }
  if (before.mesh.devices() == 1) return absl::OkStatus();
  return CheckInstances(before).status();
}

}  // namespace xlad::sharding
