#include "compiler/buffers/buffer_assignment.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/kernel_abi.h"
#include "base/rounding.h"
#include "base/sort_distinct.h"
#include "base/work.h"
#include "compiler/buffers/coalesce.h"

namespace xlad::compiler {
namespace {

// Chooses offsets in the arena by best fit.
//
// Time is divided at the starts of all intervals. These times are the leaves of a segment tree. A placed block is
// entered in the few nodes that together cover its intervals, and in all nodes above them. A node has two sets of
// addresses: those that are taken during the node's whole time (`always`), and those that are taken during any part of
// it (`sometimes`). Neighboring blocks are one range of addresses, so the sets are small even if thousands of blocks
// are live at the same time.
class Arena {
 public:
  Arena(const BufferClasses& classes, const std::vector<int>& numbers) : classes_(classes) {
    for (const int number : numbers) {
      for (const Interval& interval : classes.live[number]) starts_.push_back(interval.first);
    }
    SortDistinct(&starts_);
    nodes_.resize(2 * std::bit_ceil(std::max<size_t>(starts_.size(), 1)));
  }

  // Returns the offset of class `number`: the start of the smallest sufficient gap between the classes that were placed
  // before and are live at the same time. If there is no such gap, the offset is the end of the last of these classes.
  int64_t Place(int number, int64_t bytes) {
    std::vector<Block> taken;
    for (const Interval& interval : classes_.live[number]) {
      AddTaken(Root(), LeavesOf(interval), &taken);
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
    for (const Interval& interval : classes_.live[number]) {
      Enter(Root(), LeavesOf(interval), {best, best + bytes});
    }
    size_ = std::max(size_, best + bytes);
    return best;
  }
  int64_t size() const { return size_; }

 private:
  struct Block {
    int64_t first, last;  // The address after the block is `last`.
  };
  using Blocks = std::vector<Block>;  // Sorted; there is a gap between any two.
  struct Node {
    Blocks always, sometimes;  // `sometimes` includes `always`.
  };

  struct Leaves {
    int first, last;
  };
  // A node and its leaves. Its children 2n and 2n + 1 have half of the leaves each.
  struct Subtree {
    int node, first, size;
    int last() const { return first + size - 1; }
    bool IsIn(Leaves leaves) const { return leaves.first <= first && last() <= leaves.last; }
    bool Meets(Leaves leaves) const { return leaves.first <= last() && first <= leaves.last; }
    Subtree Left() const { return {2 * node, first, size / 2}; }
    Subtree Right() const { return {2 * node + 1, first + size / 2, size / 2}; }
  };
  Subtree Root() const { return {1, 0, static_cast<int>(nodes_.size() / 2)}; }

  // A leaf is the time from a start to the next one. Intervals that begin at starts overlap if and only if they have a
  // common leaf.
  Leaves LeavesOf(const Interval& interval) const {
    const auto first = std::lower_bound(starts_.begin(), starts_.end(), interval.first);
    const auto end = std::upper_bound(first, starts_.end(), interval.last);
    return {static_cast<int>(first - starts_.begin()), static_cast<int>(end - starts_.begin()) - 1};
  }

  void AddTaken(Subtree at, Leaves leaves, std::vector<Block>* taken) const {
    const Node& node = nodes_[at.node];
    if (!at.Meets(leaves) || node.sometimes.empty()) return;
    const Blocks& blocks = at.IsIn(leaves) ? node.sometimes : node.always;
    CountWork(1 + std::ssize(blocks));
    taken->insert(taken->end(), blocks.begin(), blocks.end());
    if (at.IsIn(leaves)) return;
    AddTaken(at.Left(), leaves, taken);
    AddTaken(at.Right(), leaves, taken);
  }

  void Enter(Subtree at, Leaves leaves, const Block& block) {
    if (!at.Meets(leaves)) return;
    CountWork();
    Insert(block, &nodes_[at.node].sometimes);
    if (at.IsIn(leaves)) return Insert(block, &nodes_[at.node].always);
    Enter(at.Left(), leaves, block);
    Enter(at.Right(), leaves, block);
  }

  static void Insert(Block block, Blocks* blocks) {
    const auto first = std::partition_point(blocks->begin(), blocks->end(),
                                            [&](const Block& other) { return other.last < block.first; });
    auto end = first;
    for (; end != blocks->end() && end->first <= block.last; ++end) {
      block.first = std::min(block.first, end->first);
      block.last = std::max(block.last, end->last);
    }
    if (first == end) {
      blocks->insert(first, block);
    } else {
      *first = block;
      blocks->erase(first + 1, end);
    }
  }

  const BufferClasses& classes_;
  std::vector<int64_t> starts_;
  std::vector<Node> nodes_;  // Node 1 is the root.
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
    FillArena();
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

  void FillArena() {
    std::vector<int> order;
    for (int c = 0; c < std::ssize(classes_.members); ++c) {
      if (IsTemporary(program_, classes_, c)) order.push_back(c);
    }
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return Bytes(a) > Bytes(b); });
    Arena arena(classes_, order);
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
