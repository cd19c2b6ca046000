#include "collectives/exec/bootstrap/cluster_place.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace xlad::collectives {
namespace {

std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x20) continue;  // Launchers do not put control characters into these values.
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + "\"";
}

std::string Optional(const std::optional<int>& number) { return number ? absl::StrCat(*number) : "null"; }

}  // namespace

absl::StatusOr<ClusterPlace> PlaceInCluster(const std::optional<Launch>& launch, const std::string& coordinator,
                                            const std::string& worker_id) {
  ClusterPlace place{coordinator, worker_id};
  if (launch.has_value() && worker_id.empty()) place.worker_id = launch->name;
  if (!coordinator.empty()) return place;
  std::string host = "127.0.0.1";
  const bool has_peers = launch.has_value() && launch->ranks > 1;
  const bool has_host = has_peers && !launch->first_host.empty();
  // If the launcher names a host but not the number of local ranks, the ranks are assumed to be on several hosts.
  if (has_peers && (launch->local_ranks.has_value() ? *launch->local_ranks < launch->ranks : has_host)) {
    if (!has_host) {
      return absl::InvalidArgumentError(absl::StrCat(
          "found ", *launch->local_ranks, " of ", launch->ranks, " ranks on this host, started by ", launch->launcher,
          ", which does not name the host of rank 0; pass the coordinator's address with "
          "--coordinator HOST:PORT, or set XLAD_COORDINATOR"));
    }
    host = absl::StrContains(launch->first_host, ':') ? absl::StrCat("[", launch->first_host, "]") : launch->first_host;
  }
  place.coordinator = absl::StrCat(host, ":", kCoordinatorPort);
  return place;
}

std::string PlaceToJson(const std::optional<Launch>& launch, const ClusterPlace& place) {
  std::string json = "{";
  if (launch.has_value()) {
    absl::StrAppend(&json, "\"launcher\": ", Quoted(launch->launcher), ", \"rank\": ", launch->rank,
                    ", \"ranks\": ", launch->ranks, ", \"local_rank\": ", Optional(launch->local_rank),
                    ", \"local_ranks\": ", Optional(launch->local_ranks),
                    ", \"first_host\": ", Quoted(launch->first_host), ", ");
  } else {
    absl::StrAppend(&json, "\"launcher\": null, ");
  }
  absl::StrAppend(&json, "\"coordinator\": ", Quoted(place.coordinator), ", \"worker\": ", Quoted(place.worker_id),
                  "}");
  return json;
}

}  // namespace xlad::collectives
