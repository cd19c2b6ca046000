// The timeline of a job, from what its coordinator has kept.
#pragma once

#include <string>

#include "base/status.h"
#include "client/coordinator_client.h"

namespace xlad::cli {

// The text of the file (observe/timeline.h).
absl::StatusOr<std::string> FetchTimeline(client::CoordinatorClient& client, const std::string& job_id);

}  // namespace xlad::cli
