#include "collectives/exec/bootstrap/cluster_place.h"

#include "absl/strings/str_cat.h"
#include "base/net/network.h"

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

absl::Status UnknownHost(const Launch& launch) {
  const std::string found = launch.local_ranks.has_value()
                                ? absl::StrCat(*launch.local_ranks, " of ", launch.ranks, " ranks on this host")
                                : absl::StrCat("rank ", launch.rank, " of ", launch.ranks);
  return absl::InvalidArgumentError(absl::StrCat(
      "found ", found, ", started by ", launch.launcher, ", which does not name the host of rank 0",
      launch.local_ranks.has_value() ? "" : " and does not say how many ranks are on this host",
      "; pass the coordinator's address with --coordinator HOST:PORT, or set XLAD_COORDINATOR (127.0.0.1:",
      kCoordinatorPort, " if the coordinator is on this host)"));
}

std::string Optional(const std::optional<int>& number) { return number ? absl::StrCat(*number) : "null"; }

}  // namespace

absl::StatusOr<ClusterPlace> PlaceInCluster(const std::optional<Launch>& launch, const std::string& coordinator,
                                            const std::string& worker_id) {
  ClusterPlace place{coordinator, worker_id};
  if (launch.has_value() && worker_id.empty()) place.worker_id = launch->name;
  if (!coordinator.empty()) return place;
  if (!launch.has_value() || launch->local_ranks.value_or(1) >= launch->ranks) {
    place.coordinator = JoinHostPort("127.0.0.1", kCoordinatorPort);
    return place;
  }
  if (launch->first_host.empty()) return UnknownHost(*launch);
  place.coordinator = JoinHostPort(launch->first_host, kCoordinatorPort);
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
