#include "compiler/buffers/saved_values.h"

#include <algorithm>

#include "base/sort_distinct.h"
#include "base/work.h"

namespace xlad::compiler {
namespace {

// The maximum time of a value, because sums of times along paths can grow exponentially with the lengths of the paths.
constexpr double kMaxNs = 1e15;
// A value, such as a mask, is not saved at the end of a segment if computing it with all of its dropped operands takes
// at most this time.
constexpr double kCheapNsPerByte = 0.5;
// An expensive result that does not cross a cut is saved if it is at least this many times smaller than the crossing
// results that are computed from it.
constexpr int64_t kMinRatio = 4;

}  // namespace

Cuts::Cuts(std::vector<int> positions, int size) : positions_(std::move(positions)), up_to_(size, 0) {
  for (const int position : positions_) ++up_to_[position];
  for (int i = 1; i < size; ++i) up_to_[i] += up_to_[i - 1];
}

int Cuts::Next(int position) const {
  const auto next = std::lower_bound(positions_.begin(), positions_.end(), position);
  return next == positions_.end() ? std::ssize(up_to_) : *next;
}

SavePlanner::SavePlanner(const RecomputeFacts& facts, const Cuts& cuts)
    : facts_(facts),
      cuts_(cuts),
      crosses_(facts.def.size()),
      crossing_bytes_(facts.size),
      feeds_bytes_(facts.size),
      last_early_use_(facts.def.size(), -1),
      needed_bytes_(facts.size + 1) {
  for (int i = 0; i < facts.size; ++i) {
    if (!facts.can_repeat[i]) continue;
    const int cut = cuts.Next(i);
    for (const int value : facts.writes[i]) {
      int before = i;
      for (const int use : facts.uses[value]) {
        CountWork();
        if (cuts.Between(before, use)) crosses_[value] = true;
        if (use <= cut) last_early_use_[value] = use;
        before = use;
      }
      if (crosses_[value]) crossing_bytes_[i] += facts.bytes[value];
      if (last_early_use_[value] < 0) continue;
      needed_bytes_[i] += facts.bytes[value];
      needed_bytes_[last_early_use_[value]] -= facts.bytes[value];
    }
  }
  for (int i = 0; i < facts.size; ++i) {
    if (i > 0) needed_bytes_[i] += needed_bytes_[i - 1];
    for (const int value : facts.reads[i]) {
      if (facts.def[value] < 0) continue;
      int64_t& bytes = feeds_bytes_[facts.def[value]];
      bytes = std::max(bytes, crossing_bytes_[i]);
    }
  }
}

std::vector<bool> SavePlanner::Plan(const SavingRule& rule) {
  saved_.assign(facts_.def.size(), true);
  is_dropped_.assign(facts_.size, false);
  visited_.assign(facts_.size, {});
  open_.clear();
  int64_t bytes = 0;      // Dropped in the segment.
  int half = 0, cut = 0;  // The position at which half of them were dropped; the end of the segments.
  for (int i = 0; i < facts_.size; ++i) {
    CountWork();
    if (i > cut || i == 0) {
      cut = cuts_.Next(i);
      open_.clear();
      bytes = 0;
      half = i;
    }
    Visit(i, rule);
    if (bytes < rule.segment_bytes / 2) half = i;
    if (is_dropped_[i]) bytes += crossing_bytes_[i];
    if (bytes <= rule.segment_bytes || i >= cut) continue;
    i = EndSegment(half, i);  // Operations after the segment's end are visited again.
    bytes = 0;
    half = i + 1;
  }
  return saved_;
}

void SavePlanner::Visit(int position, const SavingRule& rule) {
  Visited& self = visited_[position];
  if (!facts_.can_repeat[position]) return Save(position);
  self = {facts_.ns[position], facts_.ns[position], facts_.size};
  std::vector<int> operations;  // The distinct operations that compute dropped operands.
  for (const int value : facts_.reads[position]) {
    const int def = facts_.def[value];
    if (def < 0 || saved_[value]) {
      self.last = std::min(self.last, facts_.LastRead(value, position));
      continue;
    }
    self.last = std::min(self.last, visited_[def].last);
    operations.push_back(def);
  }
  SortDistinct(&operations);
  for (const int operation : operations) {
    self.full_ns += visited_[operation].full_ns;
    if (crossing_bytes_[operation] == 0) self.own_ns += visited_[operation].own_ns;
  }
  self.own_ns = std::min(self.own_ns, kMaxNs);
  self.full_ns = std::min(self.full_ns, kMaxNs);
  int64_t bytes = 0;
  int last_use = 0;
  for (const int value : facts_.writes[position]) {
    bytes += facts_.bytes[value];
    if (!facts_.uses[value].empty()) last_use = std::max(last_use, facts_.uses[value].back());
  }
  const bool crosses = crossing_bytes_[position] > 0;
  const double freed = static_cast<double>(crosses ? crossing_bytes_[position] : bytes);
  const bool is_expensive = self.own_ns > rule.max_ns_per_byte * freed * (1 + 1e-9);
  const bool is_small = bytes * kMinRatio <= feeds_bytes_[position];
  if (last_use > self.last || (is_expensive && (crosses || is_small))) return Save(position);
  is_dropped_[position] = crosses;
  for (const int value : facts_.writes[position]) {
    saved_[value] = false;
    open_.push_back(value);
  }
}

void SavePlanner::Save(int position) {
  visited_[position] = {0, 0, facts_.size};
  is_dropped_[position] = false;
  for (const int value : facts_.writes[position]) saved_[value] = true;
}

int SavePlanner::EndSegment(int first, int last) {
  const auto begin = needed_bytes_.begin();
  const int end = std::min_element(begin + first, begin + last + 1) - begin;
  for (const int value : open_) {
    const int position = facts_.def[value];
    if (position > end || last_early_use_[value] <= end) continue;
    const Visited& visited = visited_[position];
    if (visited.full_ns <= kCheapNsPerByte * static_cast<double>(facts_.bytes[value])) continue;
    saved_[value] = true;
    const std::vector<int>& writes = facts_.writes[position];
    if (!std::all_of(writes.begin(), writes.end(), [&](int other) { return saved_[other]; })) continue;
    Save(position);
  }
  open_.clear();
  return end;
}

std::vector<SavePlanner::Dropped> SavePlanner::dropped() const {
  std::vector<Dropped> all;
  for (int i = 0; i < facts_.size; ++i) {
    if (!is_dropped_[i]) continue;
    const int64_t bytes = std::max<int64_t>(crossing_bytes_[i], 1);
    all.push_back({i, visited_[i].own_ns / static_cast<double>(bytes), crossing_bytes_[i]});
  }
  return all;
}

}  // namespace xlad::compiler
