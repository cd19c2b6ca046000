#include "service/placement/apart.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

namespace xlad::service {
namespace {

// Each level of the search leaves out one worker of a pair, so at most 2^7 - 1 choices are tried.
constexpr int kMaxLeftOut = 6;

using Ids = std::set<std::string>;

// Returns a cut pair whose workers are both among `peers`, or null if there is none.
const CutPairs::value_type* FindCutPair(const std::vector<Peer>& peers, const CutPairs& cuts) {
  Ids chosen;
  for (const Peer& peer : peers) chosen.insert(peer.worker_id());
  const auto found = std::find_if(cuts.begin(), cuts.end(), [&](const auto& pair) {
    return chosen.contains(pair.first) && chosen.contains(pair.second);
  });
  return found == cuts.end() ? nullptr : &*found;
}

FreeDevices::MayHave Without(const FreeDevices::MayHave& may_have, const Ids& left_out) {
  if (left_out.empty()) return may_have;
  return [&may_have, left_out](const std::string& worker) {
    return !left_out.contains(worker) && (may_have == nullptr || may_have(worker));
  };
}

// Returns the workers to leave out, or nullopt if the search found no solution.
std::optional<Ids> FindLeftOut(const FreeDevices& free, const FreeDevices::MayHave& may_have, const CutPairs& cuts,
                               const TakePeers& take, const Ids& left_out) {
  FreeDevices trial = free;
  const std::vector<Peer> peers = take(&trial, Without(may_have, left_out));
  if (peers.empty()) return std::nullopt;
  const auto pair = FindCutPair(peers, cuts);
  if (pair == nullptr) return left_out;
  if (left_out.size() == kMaxLeftOut) return std::nullopt;
  for (const std::string& worker : {pair->second, pair->first}) {
    Ids more = left_out;
    more.insert(worker);
    if (auto found = FindLeftOut(free, may_have, cuts, take, more); found.has_value()) return found;
  }
  return std::nullopt;
}

}  // namespace

std::vector<Peer> TakeConnected(const FreeDevices::MayHave& may_have, const CutPairs& cuts, const TakePeers& take,
                                FreeDevices* free) {
  const Ids left_out = FindLeftOut(*free, may_have, cuts, take, {}).value_or(Ids());
  return take(free, Without(may_have, left_out));
}

}  // namespace xlad::service
