#include "service/placement/apart.h"

#include <optional>
#include <set>
#include <utility>

namespace xlad::service {
namespace {

// Each level leaves out one worker of a pair, so that at most 2^6 choices are tried.
constexpr int kMaxLeftOut = 6;

using Ids = std::set<std::string>;

std::optional<std::pair<std::string, std::string>> FindCutPair(const std::vector<Peer>& peers, const IsCut& is_cut) {
  for (size_t a = 0; a < peers.size(); ++a) {
    for (size_t b = a + 1; b < peers.size(); ++b) {
      if (is_cut(peers[a].worker_id(), peers[b].worker_id())) return {{peers[a].worker_id(), peers[b].worker_id()}};
    }
  }
  return std::nullopt;
}

FreeDevices::MayHave Without(const FreeDevices::MayHave& may_have, const Ids& left_out) {
  if (left_out.empty()) return may_have;
  return [&may_have, left_out](const std::string& worker) {
    return !left_out.contains(worker) && (may_have == nullptr || may_have(worker));
  };
}

// The workers to leave out; nothing if no choice was found.
std::optional<Ids> FindLeftOut(const FreeDevices& free, const FreeDevices::MayHave& may_have, const IsCut& is_cut,
                               const TakePeers& take, const Ids& left_out) {
  FreeDevices trial = free;
  const std::vector<Peer> peers = take(&trial, Without(may_have, left_out));
  if (peers.empty()) return std::nullopt;
  const auto pair = FindCutPair(peers, is_cut);
  if (!pair.has_value()) return left_out;
  if (left_out.size() == kMaxLeftOut) return std::nullopt;
  for (const std::string& worker : {pair->second, pair->first}) {
    Ids more = left_out;
    more.insert(worker);
    if (auto found = FindLeftOut(free, may_have, is_cut, take, more); found.has_value()) return found;
  }
  return std::nullopt;
}

}  // namespace

std::vector<Peer> TakeConnected(const FreeDevices::MayHave& may_have, const IsCut& is_cut, const TakePeers& take,
                                FreeDevices* free) {
  const Ids left_out = FindLeftOut(*free, may_have, is_cut, take, {}).value_or(Ids());
  return take(free, Without(may_have, left_out));
}

}  // namespace xlad::service
