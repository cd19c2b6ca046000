#include "sharding/partition/halo_plan.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace xlad::sharding {
namespace {

// Elements that `target` needs of another shard: [offset, offset + length) of `source`.
struct Piece {
  int64_t source = 0, target = 0;
  int64_t offset = 0, length = 0;
};

// All pieces, by target, then by source.
std::vector<Piece> PiecesOf(const HaloNeed& need) {
  std::vector<Piece> pieces;
  for (int64_t target = 0; target < need.shards(); ++target) {
    const int64_t begin = std::max(need.starts[target], need.real_first());
    const int64_t end = std::min(need.starts[target] + need.length, need.real_limit());
    for (int64_t at = begin; at < end;) {
      const int64_t source = at / need.shard;
      const int64_t next = std::min((source + 1) * need.shard, end);
      if (source != target) pieces.push_back({source, target, at - source * need.shard, next - at});
      at = next;
    }
  }
  return pieces;
}

// The rounds planned so far, and the shards that send and receive in each.
class Rounds {
 public:
  explicit Rounds(const HaloNeed& need) : need_(need) {}

  // The first round in which all pairs (source, target) are free, or a new one of `length`.
  int Find(const std::vector<std::pair<int64_t, int64_t>>& pairs, int64_t length) {
    const auto fits = [&](const Round& round) {
      return std::none_of(pairs.begin(), pairs.end(), [&](const auto& pair) {
        return round.sends[pair.first] || round.plan.source[pair.second] >= 0;
      });
    };
    const auto found = std::find_if(rounds_.begin(), rounds_.end(), fits);
    if (found != rounds_.end()) return found - rounds_.begin();
    const size_t shards = need_.starts.size();
    rounds_.push_back({{length, Dims(shards, -1), Dims(shards, 0)}, std::vector<bool>(shards, false)});
    return std::ssize(rounds_) - 1;
  }
  int64_t length(int round) const { return rounds_[round].plan.length; }
  void Add(int round, int64_t source, int64_t target, int64_t offset) {
    rounds_[round].plan.source[target] = source;
    rounds_[round].plan.offset[source] = offset;
    rounds_[round].sends[source] = true;
  }
  std::vector<HaloRound> Take() {
    std::vector<HaloRound> plans;
    for (Round& round : rounds_) plans.push_back(std::move(round.plan));
    return plans;
  }

 private:
  struct Round {
    HaloRound plan;
    std::vector<bool> sends;
  };
  const HaloNeed& need_;
  std::vector<Round> rounds_;
};

// The slots of the adjacent form, one for each delta from the leftmost to the rightmost needed shard. The slot of the
// leftmost shard has the last elements of this shard, and the slot of the rightmost shard has its first elements. Both
// are as long as the longest piece that any target needs. The other slots are complete shards.
std::vector<HaloSlot> AdjacentSlots(const HaloNeed& need, const std::vector<Piece>& pieces) {
  std::map<int64_t, int64_t> lengths = {{0, need.shard}};  // The lengths by delta.
  for (const Piece& piece : pieces) {
    const bool left = piece.source < piece.target;
    int64_t& longest = lengths[piece.source - piece.target];
    longest = std::max(longest, left ? need.shard - piece.offset : piece.offset + piece.length);
  }
  const int64_t leftmost = lengths.begin()->first, rightmost = lengths.rbegin()->first;
  std::vector<HaloSlot> slots;
  for (int64_t delta = leftmost; delta <= rightmost; ++delta) {
    const bool between = delta != leftmost && delta != rightmost;
    slots.push_back({delta, between ? need.shard : lengths[delta]});
  }
  return slots;
}

// The plan of the adjacent form, in which the pieces are concatenated.
HaloPlan AdjacentPlan(const HaloNeed& need, const std::vector<Piece>& pieces, std::vector<HaloSlot> slots) {
  std::map<int64_t, std::vector<std::pair<int64_t, int64_t>>> pairs;  // By delta: (source, target).
  for (const Piece& piece : pieces) pairs[piece.source - piece.target].emplace_back(piece.source, piece.target);
  std::vector<HaloSlot*> order;
  for (HaloSlot& slot : slots) {
    if (slot.delta != 0 && pairs.contains(slot.delta)) order.push_back(&slot);
  }
  std::stable_sort(order.begin(), order.end(),
                   [](const HaloSlot* a, const HaloSlot* b) { return a->length > b->length; });
  Rounds rounds(need);
  for (HaloSlot* slot : order) {
    slot->round = rounds.Find(pairs[slot->delta], slot->length);
    const int64_t offset = slot->delta < 0 ? need.shard - rounds.length(slot->round) : 0;
    for (const auto& [source, target] : pairs[slot->delta]) rounds.Add(slot->round, source, target, offset);
  }
  return {rounds.Take(), std::move(slots)};
}

// The plan of the scattered form. Pieces are added greedily to rounds, the longest piece first.
HaloPlan ScatteredPlan(const HaloNeed& need, std::vector<Piece> pieces) {
  std::stable_sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) {
    return std::tuple(-a.length, a.source - a.target) < std::tuple(-b.length, b.source - b.target);
  });
  Rounds rounds(need);
  for (const Piece& piece : pieces) {
    const int round = rounds.Find({{piece.source, piece.target}}, piece.length);
    rounds.Add(round, piece.source, piece.target, std::min(piece.offset, need.shard - rounds.length(round)));
  }
  return {rounds.Take(), {}};
}

}  // namespace

int64_t HaloPlan::sent() const {
  int64_t sum = 0;
  for (const HaloRound& round : rounds) sum += round.length;
  return sum;
}

HaloPlan PlanHalo(const HaloNeed& need) {
  const std::vector<Piece> pieces = PiecesOf(need);
  std::vector<HaloSlot> slots = AdjacentSlots(need, pieces);
  int64_t assembled = 0;
  for (const HaloSlot& slot : slots) assembled += slot.length;
  // If the needed shards are far apart, the adjacent form would assemble a large array and use little of it.
  if (assembled > 2 * (need.length + need.shard)) return ScatteredPlan(need, pieces);
  HaloPlan adjacent = AdjacentPlan(need, pieces, std::move(slots));
  HaloPlan scattered = ScatteredPlan(need, pieces);
  return scattered.sent() < adjacent.sent() ? std::move(scattered) : std::move(adjacent);
}

}  // namespace xlad::sharding
