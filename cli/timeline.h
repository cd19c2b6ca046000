// The timeline of a job, from the events and traces that its coordinator has stored.
#pragma once

#include <string>

#include "base/status.h"
#include "client/coordinator_client.h"

namespace xlad::cli {

// The text of the file (observe/timeline.h).
absl::StatusOr<std::string> FetchTimeline(client::CoordinatorClient& client, const std::string& job_id);

}  // namespace xlad::cli
