#include "compiler/buffers/liveness.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"

namespace xlad::compiler {
namespace {

using ValueSet = absl::flat_hash_set<int>;

// Joins intervals, sorted by their first points, that overlap or are adjacent.
Intervals JoinIntervals(const Intervals& sorted) {
  Intervals joined;
  for (const Interval& interval : sorted) {
    if (!joined.empty() && joined.back().last + 1 >= interval.first) {
      joined.back().last = std::max(joined.back().last, interval.last);
    } else {
      joined.push_back(interval);
    }
  }
  return joined;
}

// --- Live sets, computed backward.

// Changes `live` from the set after `ops` to the set before them.
void LiveBefore(const std::vector<LinearOp>& ops, ValueSet* live);

// The live set before a loop's condition, given the set after the loop.
//
// The set is the least fixed point of head = C(after + predicate + B(head)), where C and B are the effects of condition
// and body. Every effect has the form X -> G + (X - K) with sets G and K that do not depend on X, so that B(head) =
// B({}) + (head - K). The second term adds only members of `head`. Therefore the fixed point is C(after + predicate +
// B({})), without iteration. Iteration would take time exponential in the depth of nested loops.
ValueSet LiveAtHead(const LinearOp& loop, const ValueSet& after) {
  ValueSet head;
  LiveBefore(loop.bodies[0], &head);
  head.insert(after.begin(), after.end());
  head.insert(loop.predicate);
  LiveBefore(loop.condition, &head);
  return head;
}

void LiveBefore(const std::vector<LinearOp>& ops, ValueSet* live) {
  for (auto op = ops.rbegin(); op != ops.rend(); ++op) {
    switch (op->kind) {
      case LinearOp::Kind::kWhile:
        *live = LiveAtHead(*op, *live);
        break;
      case LinearOp::Kind::kIf: {
        ValueSet all;
        for (const std::vector<LinearOp>& branch : op->bodies) {
          ValueSet at = *live;
          LiveBefore(branch, &at);
          all.insert(at.begin(), at.end());
        }
        *live = std::move(all);
        live->insert(op->inputs.begin(), op->inputs.end());
        break;
      }
      default:
        for (int value : op->outputs) live->erase(value);
        live->insert(op->inputs.begin(), op->inputs.end());
    }
  }
}

// --- Numbering.

// Counts the operations in `ops` and in their nested lists, plus one for each end of a body or branch. IntervalBuilder
// numbers all of these from the last to the first.
int64_t CountOps(const std::vector<LinearOp>& ops) {
  int64_t count = 0;
  for (const LinearOp& op : ops) {
    ++count;  // For a loop, this is the test of its predicate. For a conditional, it is the selection of a branch.
    if (op.kind == LinearOp::Kind::kWhile) count += CountOps(op.condition) + 1;
    for (const std::vector<LinearOp>& body : op.bodies)
      count += CountOps(body) + (op.kind == LinearOp::Kind::kIf ? 1 : 0);
  }
  return count;
}

// --- Intervals, computed backward from the last number.

class IntervalBuilder {
 public:
  IntervalBuilder(const LinearProgram& program, int64_t count) : next_(count), open_(program.values.size(), -1) {
    result_.values.resize(program.values.size());
    result_.op_at.resize(count, nullptr);
    result_.points = 2 * count;
  }

  // Sets the live set at the current point. The current point only decreases.
  void SetLive(const ValueSet& live) {
    const int64_t point = 2 * next_ - 1;
    for (auto it = live_.begin(); it != live_.end();) {
      const int value = *it++;
      if (!live.contains(value)) Close(value, point + 1);
    }
    for (int value : live) Open(value, point);
  }

  void Walk(const std::vector<LinearOp>& ops) {
    for (auto op = ops.rbegin(); op != ops.rend(); ++op) {
      if (op->kind == LinearOp::Kind::kWhile) {
        WalkLoop(*op);
      } else if (op->kind == LinearOp::Kind::kIf) {
        WalkBranches(*op);
      } else {
        const int64_t number = Take(&*op);
        for (int value : op->outputs) Define(value, number);
        for (int value : op->inputs) Open(value, 2 * number + 1);
      }
    }
  }

  Liveness Finish() {
    SetLive({});
    for (Intervals& intervals : result_.values) {
      std::reverse(intervals.begin(), intervals.end());
      intervals = JoinIntervals(intervals);
    }
    return std::move(result_);
  }

 private:
  int64_t Take(const LinearOp* op) {
    --next_;
    result_.op_at[next_] = op;
    return next_;
  }

  void WalkLoop(const LinearOp& loop) {
    const ValueSet after = live_;
    const ValueSet head = LiveAtHead(loop, after);
    SetLive(head);
    Take(nullptr);  // The end of the body.
    Walk(loop.bodies[0]);
    ValueSet test = live_;
    test.insert(after.begin(), after.end());
    SetLive(test);
    const int64_t number = Take(&loop);
    Open(loop.predicate, 2 * number + 1);
    Walk(loop.condition);
  }

  void WalkBranches(const LinearOp& op) {
    const ValueSet after = live_;
    ValueSet before;
    for (auto branch = op.bodies.rbegin(); branch != op.bodies.rend(); ++branch) {
      SetLive(after);
      Take(nullptr);  // The end of the branch.
      Walk(*branch);
      before.insert(live_.begin(), live_.end());
    }
    SetLive(before);
    const int64_t number = Take(&op);
    for (int value : op.inputs) Open(value, 2 * number + 1);
  }

  void Open(int value, int64_t last) {
    if (!live_.insert(value).second) return;
    open_[value] = last;
  }
  void Close(int value, int64_t first) {
    live_.erase(value);
    const int64_t last = open_[value];
    if (first <= last) result_.values[value].push_back({first, last});
  }
  void Define(int value, int64_t number) {
    Open(value, 2 * number + 1);  // A value that is never read needs memory when it is written.
    Close(value, 2 * number + 1);
  }

  int64_t next_;
  ValueSet live_;
  std::vector<int64_t> open_;
  Liveness result_;
};

}  // namespace

Liveness ComputeLiveness(const LinearProgram& program) {
  IntervalBuilder builder(program, CountOps(program.ops));
  builder.SetLive(ValueSet(program.results.begin(), program.results.end()));
  builder.Walk(program.ops);
  return builder.Finish();
}

bool Overlap(const Intervals& a, const Intervals& b) {
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    if (a[i].last < b[j].first) {
      ++i;
    } else if (b[j].last < a[i].first) {
      ++j;
    } else {
      return true;
    }
  }
  return false;
}

Intervals Intersect(const Intervals& a, const Intervals& b) {
  Intervals result;
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const Interval common{std::max(a[i].first, b[j].first), std::min(a[i].last, b[j].last)};
    if (common.first <= common.last) result.push_back(common);
    if (a[i].last < b[j].last) {
      ++i;
    } else {
      ++j;
    }
  }
  return result;
}

Intervals Unite(const Intervals& a, const Intervals& b) {
  Intervals all = a;
  all.insert(all.end(), b.begin(), b.end());
  std::sort(all.begin(), all.end(), [](const Interval& x, const Interval& y) { return x.first < y.first; });
  return JoinIntervals(all);
}

bool HasPoint(const Intervals& intervals, int64_t point) { return Overlap(intervals, {{point, point}}); }

}  // namespace xlad::compiler
