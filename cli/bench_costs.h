// The parameters of the cost model for `xlad bench`: measured once for each machine, transport and number of ranks, and
// kept in the user's cache folder.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "collectives/exec/group/process_group.h"
#include "collectives/exec/messages/message_group.h"
#include "collectives/plan/cost.h"

namespace xlad::cli {

struct CostSource {
  std::string transport;   // The name of the group's transport.
  bool refresh = false;    // Measure even if there are parameters of an earlier run.
  int64_t budget_ms = 1000;
};

// Makes the group choose plans by the parameters of this machine. All ranks call it together; rank 0 reads the file, or
// keeps what all have measured. If the file cannot be written, rank 0 says so on standard error, and the call succeeds.
absl::Status UseMachineCosts(const CostSource& source, collectives::MessageGroup* group);

// The same for a group on mapped memory, which does not choose by them.
absl::StatusOr<collectives::CostModel> MachineCosts(const CostSource& source, collectives::ProcessGroup* group);

// The file of the parameters; empty if there is no cache folder.
std::string CostsPath(const std::string& transport, int ranks);

// A plan, why it was chosen, and the predicted times of all candidates.
struct PlanChoice {
  collectives::CollectivePlan plan;
  std::string why;
  std::vector<collectives::PlanCost> candidates;
};
// The same as lines that begin with "# ".
std::string ExplainChoice(int64_t bytes, const PlanChoice& choice);

}  // namespace xlad::cli
