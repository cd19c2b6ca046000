#include "compiler/buffers/buffer_assignment.h"

#include <algorithm>
#include <utility>

#include "base/kernel_abi.h"
#include "base/rounding.h"
#include "base/work.h"
#include "compiler/buffers/coalesce.h"

namespace xlad::compiler {
namespace {

struct Block {
  int64_t first, last;
};

// Chooses offsets in the arena by best fit.
class Arena {
 public:
  Arena(const BufferClasses& classes, int64_t points)
      : classes_(classes), points_of_part_(points / kParts + 1), nodes_(2 * kParts), marks_(classes.live.size(), -1) {}

  // Returns the offset of class `number`. Considers the classes that were placed before and are live at the same time:
  // the offset is the start of the smallest sufficient gap between them, or the end of the last one.
  int64_t Place(int number, int64_t bytes) {
    const Intervals& live = classes_.live[number];
    std::vector<Block> taken;
    for (const int other : PlacedNear(live)) {
      if (Overlap(live, classes_.live[placed_[other].number])) taken.push_back(placed_[other].block);
    }
    std::sort(taken.begin(), taken.end(), [](const Block& a, const Block& b) { return a.first < b.first; });
    int64_t best = -1, best_gap = 0, end = 0;
    for (const Block& block : taken) {
      const int64_t gap = block.first - end;
      if (gap >= bytes && (best < 0 || gap < best_gap)) {
        best = end;
        best_gap = gap;
      }
      end = std::max(end, block.last);
    }
    if (best < 0) best = end;
    Enter(live, static_cast<int>(placed_.size()));
    placed_.push_back({number, {best, best + bytes}});
    size_ = std::max(size_, best + bytes);
    return best;
  }
  int64_t size() const { return size_; }

 private:
  struct Placed {
    int number;
    Block block;
  };

  // Time is divided into this many parts of equal length. They are the leaves of a segment tree: a binary tree in which
  // node n has the children 2n and 2n + 1. A placed class is entered in the few nodes that together cover its
  // intervals.
  static constexpr int64_t kParts = 512;

  int64_t LeafOf(int64_t point) const {
    return kParts + std::clamp<int64_t>(point / points_of_part_, 0, kParts - 1);
  }

  void Enter(const Intervals& live, int placed) {
    for (const Interval& interval : live) {
      int64_t first = LeafOf(interval.first), end = LeafOf(interval.last) + 1;
      for (; first < end; first /= 2, end /= 2) {
        if (first % 2 == 1) nodes_[first++].push_back(placed);
        if (end % 2 == 1) nodes_[--end].push_back(placed);
      }
    }
  }

  // The classes that were placed before and are live in one of the parts of `live`.
  std::vector<int> PlacedNear(const Intervals& live) {
    std::vector<int> near;
    const auto mark = static_cast<int>(placed_.size());
    for (const Interval& interval : live) {
      int64_t first = LeafOf(interval.first), last = LeafOf(interval.last);
      for (; first > 0; first /= 2, last /= 2) {
        for (int64_t node = first; node <= last; ++node) {
          CountWork(std::ssize(nodes_[node]));
          for (const int other : nodes_[node]) {
            if (std::exchange(marks_[other], mark) != mark) near.push_back(other);
          }
        }
      }
    }
    return near;
  }

  const BufferClasses& classes_;
  const int64_t points_of_part_;
  std::vector<std::vector<int>> nodes_;  // For each node of the tree, the placed classes that are entered in it.
  std::vector<int> marks_;               // For each placed class, the number of the last search that found it.
  std::vector<Placed> placed_;
  int64_t size_ = 0;
};

class Assigner {
 public:
  Assigner(const LinearProgram& program, const BufferClasses& classes) : program_(program), classes_(classes) {
    result_.slices.resize(program.values.size());
    result_.allocations.resize(1);
    result_.allocations[0].set_kind(Allocation::TEMPORARY);
  }

  BufferAssignment Run(int64_t points) {
    AddAllocations();
    FillArena(points);
    const std::vector<int64_t> live = LiveTemporaryBytes(program_, classes_, points);
    result_.peak_bytes = live.empty() ? 0 : *std::max_element(live.begin(), live.end());
    return std::move(result_);
  }

 private:
  // Adds the allocations of parameters, including unused ones, then of results, then of constants.
  void AddAllocations() {
    for (BufferValue::Kind kind :
         {BufferValue::Kind::kParameter, BufferValue::Kind::kResult, BufferValue::Kind::kConstant}) {
      for (int v = 0; v < std::ssize(program_.values); ++v) {
        const BufferValue& value = program_.values[v];
        if (value.kind == kind) AddAllocation(v, value);
      }
    }
  }

  void AddAllocation(int v, const BufferValue& value) {
    Allocation allocation;
    allocation.set_bytes(value.bytes);
    if (value.kind == BufferValue::Kind::kParameter) {
      allocation.set_kind(Allocation::PARAMETER);
    } else if (value.kind == BufferValue::Kind::kResult) {
      allocation.set_kind(Allocation::RESULT);
    } else {
      allocation.set_kind(Allocation::CONSTANT);
      auto bytes = program_.constants[value.index]->array.bytes();
      allocation.set_blob(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      allocation.mutable_blob()->resize(value.bytes);  // If the constant is elided, its bytes are zeros.
    }
    const int32_t number = result_.allocations.size();
    result_.allocations.push_back(std::move(allocation));
    const int c = classes_.class_of[v];
    for (int member : classes_.members[c]) SetSlice(member, number, 0);
  }

  void FillArena(int64_t points) {
    std::vector<int> order;
    for (int c = 0; c < std::ssize(classes_.members); ++c) {
      if (IsTemporary(program_, classes_, c)) order.push_back(c);
    }
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return Bytes(a) > Bytes(b); });
    Arena arena(classes_, points);
    for (int c : order) {
      const int64_t bytes = RoundUp(Bytes(c), XLAD_BUFFER_ALIGNMENT);
      const int64_t offset = bytes == 0 ? 0 : arena.Place(c, bytes);
      for (int member : classes_.members[c]) SetSlice(member, 0, offset);
    }
    result_.arena_bytes = arena.size();
    result_.allocations[0].set_bytes(arena.size());
  }

  int64_t Bytes(int c) const { return program_.values[classes_.members[c][0]].bytes; }
  void SetSlice(int v, int32_t allocation, int64_t offset) {
    BufferSlice& slice = result_.slices[v];
    slice.set_allocation(allocation);
    slice.set_offset(offset);
    slice.set_bytes(program_.values[v].bytes);
  }

  const LinearProgram& program_;
  const BufferClasses& classes_;
  BufferAssignment result_;
};

}  // namespace

BufferAssignment AssignBuffers(const LinearProgram& program) {
  const Liveness liveness = ComputeLiveness(program);
  const BufferClasses classes = Coalesce(program, liveness);
  return Assigner(program, classes).Run(liveness.points);
}

}  // namespace xlad::compiler
