#include "sharding/partition/halo_plan.h"

#include <algorithm>
#include <map>
#include <utility>

namespace xlad::sharding {
namespace {

// What `target` needs of `source`'s shard, as global indices.
struct Range {
  int64_t begin = 0, end = 0;
  bool empty() const { return begin >= end; }
};

Range Needed(const HaloNeed& need, int64_t source, int64_t target) {
  const int64_t start = need.starts[target];
  return {std::max({start, source * need.shard, need.first}),
          std::min({start + need.length, (source + 1) * need.shard, need.limit, need.size})};
}

bool Disjoint(const HaloRound& a, const HaloRound& b) {
  std::vector<bool> sends(a.source.size(), false);
  for (size_t k = 0; k < a.source.size(); ++k) {
    if (a.source[k] >= 0 && b.source[k] >= 0) return false;
    if (a.source[k] >= 0) sends[a.source[k]] = true;
  }
  return std::none_of(b.source.begin(), b.source.end(),
                      [&](int64_t source) { return source >= 0 && sends[source]; });
}

HaloRound EmptyRound(const HaloNeed& need, int64_t length) {
  return {length, Dims(need.starts.size(), -1), Dims(need.starts.size(), 0)};
}

// Adds the slot's permute to a round that has room for it, else as a round of its own. Slots come longest first.
void PlaceSlot(const HaloNeed& need, HaloSlot* slot, HaloPlan* plan) {
  HaloRound own = EmptyRound(need, slot->length);
  for (int64_t k = 0; k < need.shards(); ++k) {
    const int64_t source = k + slot->delta;
    if (source < 0 || source >= need.shards() || Needed(need, source, k).empty()) continue;
    own.source[k] = source;
  }
  // Between others, needed by nobody.
  if (std::all_of(own.source.begin(), own.source.end(), [](int64_t source) { return source < 0; })) return;
  size_t r = 0;
  while (r < plan->rounds.size() && !Disjoint(plan->rounds[r], own)) ++r;
  if (r == plan->rounds.size()) plan->rounds.push_back(EmptyRound(need, slot->length));
  HaloRound& round = plan->rounds[r];
  for (size_t k = 0; k < own.source.size(); ++k) {
    if (own.source[k] < 0) continue;
    round.source[k] = own.source[k];
    round.offset[own.source[k]] = slot->delta < 0 ? need.shard - round.length : 0;
  }
  slot->round = static_cast<int>(r);
}

// Pieces side by side: of every shard to the left as much of its end as the neediest wants, to the right of its
// beginning; shards in between are whole.
HaloPlan AdjacentPlan(const HaloNeed& need) {
  std::map<int64_t, int64_t> lengths;  // By delta.
  for (int64_t k = 0; k < need.shards(); ++k) {
    for (int64_t j = 0; j < need.shards(); ++j) {
      const Range range = Needed(need, j, k);
      if (j == k || range.empty()) continue;
      const int64_t length = j < k ? (j + 1) * need.shard - range.begin : range.end - j * need.shard;
      int64_t& longest = lengths[j - k];
      longest = std::max(longest, length);
    }
  }
  HaloPlan plan;
  const int64_t leftmost = lengths.empty() ? 0 : std::min<int64_t>(lengths.begin()->first, 0);
  const int64_t rightmost = lengths.empty() ? 0 : std::max<int64_t>(lengths.rbegin()->first, 0);
  for (int64_t delta = leftmost; delta <= rightmost; ++delta) {
    const bool between = delta != leftmost && delta != rightmost;
    plan.slots.push_back({delta, delta == 0 || between ? need.shard : lengths[delta]});
  }
  std::vector<HaloSlot*> order;
  for (HaloSlot& slot : plan.slots) {
    if (slot.delta != 0) order.push_back(&slot);
  }
  std::stable_sort(order.begin(), order.end(),
                   [](const HaloSlot* a, const HaloSlot* b) { return a->length > b->length; });
  for (HaloSlot* slot : order) PlaceSlot(need, slot, &plan);
  return plan;
}

// Exactly what is needed, in rounds filled greedily from the longest piece down.
HaloPlan ScatteredPlan(const HaloNeed& need) {
  struct Piece {
    int64_t source, target, offset, length;
  };
  std::vector<Piece> pieces;
  for (int64_t target = 0; target < need.shards(); ++target) {
    for (int64_t source = 0; source < need.shards(); ++source) {
      const Range range = Needed(need, source, target);
      if (source == target || range.empty()) continue;
      pieces.push_back({source, target, range.begin - source * need.shard, range.end - range.begin});
    }
  }
  std::stable_sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) {
    return std::pair(-a.length, a.source - a.target) < std::pair(-b.length, b.source - b.target);
  });
  HaloPlan plan;
  for (const Piece& piece : pieces) {
    HaloRound own = EmptyRound(need, piece.length);
    own.source[piece.target] = piece.source;
    size_t r = 0;
    while (r < plan.rounds.size() && !Disjoint(plan.rounds[r], own)) ++r;
    if (r == plan.rounds.size()) plan.rounds.push_back(EmptyRound(need, piece.length));
    HaloRound& round = plan.rounds[r];
    round.source[piece.target] = piece.source;
    round.offset[piece.source] = std::min(piece.offset, need.shard - round.length);
  }
  return plan;
}

}  // namespace

int64_t HaloPlan::sent() const {
  int64_t sum = 0;
  for (const HaloRound& round : rounds) sum += round.length;
  return sum;
}

HaloPlan PlanHalo(const HaloNeed& need) {
  HaloPlan adjacent = AdjacentPlan(need);
  HaloPlan scattered = ScatteredPlan(need);
  // Far shards side by side would be a large array to cut a small one from.
  int64_t total = 0;
  for (const HaloSlot& slot : adjacent.slots) total += slot.length;
  const bool wide = total > 2 * (need.length + need.shard);
  const bool scatter = scattered.sent() < adjacent.sent() || (scattered.sent() == adjacent.sent() && wide);
  return scatter ? std::move(scattered) : std::move(adjacent);
}

}  // namespace xlad::sharding
