// Symbolic values of buffers.
#include "collectives/plan/symbolic.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace xlad::collectives {
namespace {

// Appends a segment, or extends the last one if it has the same value.
void AppendSegment(Segments* out, const Segment& segment) {
  if (segment.begin == segment.end) return;
  if (!out->empty()) {
    Segment& last = out->back();
    if (last.end == segment.begin && last.tree == segment.tree && last.shift == segment.shift &&
        last.depth == segment.depth) {
      last.end = segment.end;
      return;
    }
  }
  out->push_back(segment);
}

// Returns the index of the first segment that ends after `position`.
int64_t SegmentAt(const Segments& all, int64_t position) {
  const auto at = std::upper_bound(all.begin(), all.end(), position,
                                   [](int64_t p, const Segment& segment) { return p < segment.end; });
  return at - all.begin();
}

}  // namespace

ReductionTrees::ReductionTrees(int ranks) : ranks_(ranks), trees_(ranks) {
  for (int rank = 0; rank < ranks; ++rank) {
    trees_[rank].contributors.resize((ranks + 63) / 64);
    trees_[rank].contributors[rank / 64] |= uint64_t{1} << (rank % 64);
  }
}

absl::StatusOr<int> ReductionTrees::Combine(absl::Span<const int> operands) {
  for (int operand : operands) {
    if (operand < 0) return absl::InternalError(operand == kZero ? "reduces zeros" : "reduces undefined elements");
  }
  if (operands.size() == 1) return operands[0];
  std::vector<int> key(operands.begin(), operands.end());
  const auto found = by_operands_.find(key);
  if (found != by_operands_.end()) return found->second;
  Tree tree;
  tree.operands = key;
  tree.contributors.resize((ranks_ + 63) / 64);
  for (int operand : operands) {
    for (size_t word = 0; word < tree.contributors.size(); ++word) {
      const uint64_t more = trees_[operand].contributors[word];
      if ((tree.contributors[word] & more) != 0) {
        return absl::InternalError(absl::StrCat("combines a rank's contribution twice: it is in ",
                                                ToString(operand), " and in an earlier operand"));
      }
      tree.contributors[word] |= more;
    }
  }
  const int id = std::ssize(trees_);
  trees_.push_back(std::move(tree));
  by_operands_.emplace(std::move(key), id);
  return id;
}

absl::StatusOr<int> ReductionTrees::CombineBalanced(absl::Span<const int> operands) {
  if (operands.size() <= 2) return Combine(operands);
  size_t half = 1;
  while (half * 2 < operands.size()) half *= 2;
  XLAD_ASSIGN_OR_RETURN(const int left, CombineBalanced(operands.subspan(0, half)));
  XLAD_ASSIGN_OR_RETURN(const int right, CombineBalanced(operands.subspan(half)));
  return Combine({left, right});
}

bool ReductionTrees::IsComplete(int tree) const {
  if (tree < 0) return false;
  int64_t count = 0;
  for (uint64_t word : trees_[tree].contributors) count += __builtin_popcountll(word);
  return count == ranks_;
}

std::string ReductionTrees::ToString(int tree) const {
  if (tree == kUndefined) return "undefined";
  if (tree == kZero) return "zero";
  if (tree < ranks_) return absl::StrCat(tree);
  std::string out = "(";
  for (size_t i = 0; i < trees_[tree].operands.size(); ++i) {
    absl::StrAppend(&out, i == 0 ? "" : " + ", ToString(trees_[tree].operands[i]));
  }
  return out + ")";
}

Segments ReadSegments(const Segments& all, int64_t begin, int64_t count) {
  Segments out;
  for (int64_t i = SegmentAt(all, begin); i < std::ssize(all) && all[i].begin < begin + count; ++i) {
    Segment segment = all[i];
    segment.begin = std::max(segment.begin, begin) - begin;
    segment.end = std::min(segment.end, begin + count) - begin;
    segment.shift += begin;
    AppendSegment(&out, segment);
  }
  return out;
}

void WriteSegments(Segments* all, int64_t begin, const Segments& values) {
  if (values.empty()) return;
  const int64_t end = begin + values.back().end;
  const int64_t first = SegmentAt(*all, begin);
  int64_t last = first;  // The index of the first segment that begins at `end` or later.
  while (last < std::ssize(*all) && (*all)[last].begin < end) ++last;
  Segments out;
  if (first < last && (*all)[first].begin < begin) {
    out.push_back((*all)[first]);
    out.back().end = begin;
  }
  for (Segment segment : values) {
    segment.begin += begin;
    segment.end += begin;
    segment.shift -= begin;
    AppendSegment(&out, segment);
  }
  if (first < last && (*all)[last - 1].end > end) {
    out.push_back((*all)[last - 1]);
    out.back().begin = end;
  }
  const int64_t replaced = std::min(last - first, std::ssize(out));
  std::copy(out.begin(), out.begin() + replaced, all->begin() + first);
  if (replaced < last - first) {
    all->erase(all->begin() + first + replaced, all->begin() + last);
  } else {
    all->insert(all->begin() + first + replaced, out.begin() + replaced, out.end());
  }
}

absl::StatusOr<Segments> CombineSegments(absl::Span<const Segments> operands, bool balanced, ReductionTrees* trees) {
  Segments out;
  std::vector<size_t> at(operands.size(), 0);
  const int64_t size = operands[0].empty() ? 0 : operands[0].back().end;
  std::vector<int> ids(operands.size());
  for (int64_t begin = 0; begin < size;) {
    Segment piece{begin, size, 0, operands[0][at[0]].shift, 0};
    for (size_t i = 0; i < operands.size(); ++i) {
      const Segment& segment = operands[i][at[i]];
      ids[i] = segment.tree;
      piece.end = std::min(piece.end, segment.end);
      piece.depth = std::max(piece.depth, segment.depth);
      if (segment.tree >= 0 && segment.shift != piece.shift) {
        return absl::InternalError(absl::StrCat("combines element ", begin + piece.shift, " of ",
                                                trees->ToString(ids[0]), " with element ", begin + segment.shift,
                                                " of ", trees->ToString(segment.tree)));
      }
    }
    XLAD_ASSIGN_OR_RETURN(piece.tree, balanced ? trees->CombineBalanced(ids) : trees->Combine(ids));
    AppendSegment(&out, piece);
    for (size_t i = 0; i < operands.size(); ++i) {
      if (operands[i][at[i]].end == piece.end) ++at[i];
    }
    begin = piece.end;
  }
  return out;
}

}  // namespace xlad::collectives
