#include "simulate/broken_chips.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "collectives/plan/grid.h"

namespace xlad::simulate {
namespace {

// The positions of a box along one dimension: `length` positions from `start`. They continue at 0 after the last
// position of the dimension.
struct Interval {
  int start = 0, length = 0;
};
using Box = std::vector<Interval>;

// The offset of a position from the start of the interval, in a dimension of `size` positions.
int OffsetIn(const Interval& interval, int position, int size) { return (position - interval.start + size) % size; }

bool Contains(const Box& box, const std::vector<int>& chip, const std::vector<int>& grid) {
  for (size_t d = 0; d < box.size(); ++d) {
    if (OffsetIn(box[d], chip[d], grid[d]) >= box[d].length) return false;
  }
  return true;
}

// The complete dimension, and the intervals that end at its borders and beside the positions of broken chips. In a
// dimension that is not a ring, no interval continues at 0. The largest box consists of such intervals.
std::vector<Interval> IntervalsOf(int size, bool wraps, const std::set<int>& broken) {
  std::vector<Interval> intervals = {{0, size}};
  std::set<int> starts, ends = broken;  // The end is the position after the last one.
  if (!wraps) {
    starts.insert(0);
    ends.insert(size);
  }
  for (const int position : broken) starts.insert(position + 1);
  for (const int start : starts) {
    for (const int end : ends) {
      const int length = wraps ? (end - start + size) % size : end - start;
      if (length > 0 && length < size) intervals.push_back({start % size, length});
    }
  }
  return intervals;
}

// Returns the box with the most chips that contains none of `broken`, or an empty box if there is none. Among boxes
// with the same number of chips, those with all positions of the last dimensions are preferred.
Box LargestBox(const Slice& slice, const std::set<std::vector<int>>& broken) {
  std::vector<std::vector<Interval>> intervals;
  for (int d = 0; d < slice.chip.ici_dimensions; ++d) {
    std::set<int> positions;
    for (const std::vector<int>& chip : broken) positions.insert(chip[d]);
    intervals.push_back(IntervalsOf(slice.grid[d], slice.Wraps(d), positions));
  }
  Box best;
  int64_t most = 0;
  std::vector<size_t> chosen(intervals.size());
  while (chosen.back() < intervals.back().size()) {
    int64_t chips = 1;
    for (size_t d = 0; d < chosen.size(); ++d) chips *= intervals[d][chosen[d]].length;
    if (chips > most) {
      Box box;
      for (size_t d = 0; d < chosen.size(); ++d) box.push_back(intervals[d][chosen[d]]);
      const auto is_in_box = [&](const std::vector<int>& chip) { return Contains(box, chip, slice.grid); };
      if (std::none_of(broken.begin(), broken.end(), is_in_box)) {
        most = chips;
        best = std::move(box);
      }
    }
    // The next combination: the first dimension changes fastest.
    for (size_t d = 0; d < chosen.size() && ++chosen[d] == intervals[d].size() && d + 1 < chosen.size(); ++d) {
      chosen[d] = 0;
    }
  }
  return best;
}

// The links between chips of the box, with their numbers in the box.
std::vector<std::pair<int, int>> LinksIn(const Box& box, const std::vector<int>& whole, const Slice& slice) {
  std::vector<int> sizes;
  for (const Interval& interval : box) sizes.push_back(interval.length);
  std::vector<std::pair<int, int>> links;
  for (const auto& [a, b] : slice.broken_links) {
    std::vector<int> ends;
    for (const int chip : {a, b}) {
      std::vector<int> position = collectives::CoordinatesOf(whole, chip);
      if (!Contains(box, position, whole)) continue;
      for (size_t d = 0; d < box.size(); ++d) position[d] = OffsetIn(box[d], position[d], whole[d]);
      ends.push_back(collectives::PositionIn(sizes, position));
    }
    if (ends.size() == 2) links.emplace_back(ends[0], ends[1]);
  }
  return links;
}

}  // namespace

absl::Status CutAround(const std::vector<std::string>& chips, Slice* slice) {
  if (chips.empty()) return absl::OkStatus();
  if (std::ssize(chips) > kMaxBrokenChips) {
    return absl::InvalidArgumentError(
        absl::StrCat("found ", chips.size(), " broken chips, expected at most ", kMaxBrokenChips));
  }
  const std::vector<int> whole(slice->grid.begin(), slice->grid.begin() + slice->chip.ici_dimensions);
  const int chips_of_slice = slice->chips() / slice->slices();
  std::set<std::vector<int>> broken;
  for (const std::string& text : chips) {
    int chip = 0;
    if (!absl::SimpleAtoi(text, &chip) || chip < 0 || chip >= slice->chips()) {
      return absl::InvalidArgumentError(
          absl::StrCat("found broken chip \"", text, "\", expected a number from 0 to ", slice->chips() - 1));
    }
    broken.insert(collectives::CoordinatesOf(whole, chip % chips_of_slice));
  }
  const Box box = LargestBox(*slice, broken);
  if (box.empty()) return absl::InvalidArgumentError("found only broken chips, expected at least one other chip");
  slice->broken_links = LinksIn(box, whole, *slice);
  slice->cut.assign(box.size(), false);
  for (size_t d = 0; d < box.size(); ++d) {
    slice->cut[d] = box[d].length < whole[d];
    slice->grid[d] = box[d].length;
  }
  const std::string name = slice->name;
  const std::vector<int> sizes(slice->grid.begin(), slice->grid.begin() + std::ssize(box));
  slice->name = absl::StrCat(name.substr(0, name.rfind('-') + 1), absl::StrJoin(sizes, "x"), " of ", name);
  return absl::OkStatus();
}

}  // namespace xlad::simulate
