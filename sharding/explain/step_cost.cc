#include "sharding/explain/step_cost.h"

#include "sharding/cost/cost.h"
#include "sharding/explain/explain.h"

namespace xlad::sharding {

absl::StatusOr<double> StepCost(const PartitionedProgram& program) {
  XLAD_ASSIGN_OR_RETURN(const Explanation explanation, Explain(program));
  const double flops = Flops(*program.variants[0].module->entry());
  return explanation.assumed_bytes_per_device + flops / kFlopsPerByte;
}

}  // namespace xlad::sharding
