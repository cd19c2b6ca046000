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
  std::string transport;     // The name of the group's transport.
  bool refresh = false;      // Measure even if there are parameters of an earlier run.
  int64_t budget_ms = 1000;  // How long a measurement takes.
};

// Makes the group choose plans by the parameters of this machine. All ranks must call this function together. Rank 0
// reads the file. If there is no valid file, all ranks measure and rank 0 writes the file. If the file cannot be
// written, rank 0 prints a warning, and the call succeeds. Does nothing in a group of one rank.
absl::Status UseMachineCosts(const CostSource& source, collectives::MessageGroup* group);

// Returns the parameters for a group on mapped memory. They only serve to print predicted times: the group chooses its
// plans by size (GroupChoice).
absl::StatusOr<collectives::CostModel> MachineCosts(const CostSource& source, collectives::ProcessGroup* group);

// The path of the file of the parameters, or "" if there is no cache folder.
std::string CostsPath(const std::string& transport, int ranks);

// A plan, why it was chosen, and the predicted times of all candidates.
struct PlanChoice {
  collectives::CollectivePlan plan;
  std::string why;
  std::vector<collectives::PlanCost> candidates;
};
// The text of a choice, in lines that begin with "# ".
std::string ExplainChoice(int64_t bytes, const PlanChoice& choice);

}  // namespace xlad::cli
