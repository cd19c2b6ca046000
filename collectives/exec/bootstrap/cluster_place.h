// What a worker takes from its launcher if no flag says it: the coordinator's address and the worker's id.
#pragma once

#include <optional>
#include <string>

#include "base/status.h"
#include "collectives/exec/bootstrap/launcher.h"

namespace xlad::collectives {

inline constexpr int kCoordinatorPort = 7411;

struct ClusterPlace {
  std::string coordinator;  // HOST:PORT
  std::string worker_id;    // Empty if neither the user nor the launcher names the worker.
  friend bool operator==(const ClusterPlace&, const ClusterPlace&) = default;
};

// `coordinator` and `worker_id` are what the user has said, empty if nothing. Otherwise the coordinator is on this
// machine if all ranks are, or if no launcher has started them. It is on the launcher's first host if ranks are on
// several hosts, or if the launcher names that host and not how many ranks are here. InvalidArgument if ranks are on
// several hosts and the first one is unknown.
absl::StatusOr<ClusterPlace> PlaceInCluster(const std::optional<Launch>& launch, const std::string& coordinator,
                                            const std::string& worker_id);

// The launch and the place as one JSON object, for display.
std::string PlaceToJson(const std::optional<Launch>& launch, const ClusterPlace& place);

}  // namespace xlad::collectives
