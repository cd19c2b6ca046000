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
// set no worker id, it is Launch::name. If the user set no coordinator, its port is kCoordinatorPort. Its host is the
// launcher's first host if ranks are on several hosts, or if there are several ranks and the launcher names that host
// but not the number of ranks on this host; otherwise its host is this machine. InvalidArgument if ranks are on several
// hosts and the first host is unknown.
absl::StatusOr<ClusterPlace> PlaceInCluster(const std::optional<Launch>& launch, const std::string& coordinator,
                                            const std::string& worker_id);

// Returns the launch and the place as one JSON object, for display.
std::string PlaceToJson(const std::optional<Launch>& launch, const ClusterPlace& place);

}  // namespace xlad::collectives
