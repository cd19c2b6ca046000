// The coordinator's address and the worker's id, which a worker takes from its launcher if no flag sets them.
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

// `coordinator` and `worker_id` are the values that the user set, or empty. Values of the user are kept. If the user
// set no worker id, it is Launch::name. If the user set no coordinator, its port is kCoordinatorPort. Its host is this
// machine if there is no launch, if there is one rank, or if the launcher says that all ranks are on this host.
// Otherwise it is the launcher's first host. InvalidArgument if the launcher does not name that host.
absl::StatusOr<ClusterPlace> PlaceInCluster(const std::optional<Launch>& launch, const std::string& coordinator,
                                            const std::string& worker_id);

// Returns the launch and the place as one JSON object, for display.
std::string PlaceToJson(const std::optional<Launch>& launch, const ClusterPlace& place);

}  // namespace xlad::collectives
