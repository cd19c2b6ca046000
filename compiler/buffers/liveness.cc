#include "compiler/buffers/liveness.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"

namespace xlad::compiler {
namespace {

using Set = absl::flat_hash_set<int>;

// --- Live sets alone, backwards.

void LiveBefore(const std::vector<Op>& ops, Set* live);

// What is live where a loop's condition begins, given what is live after the loop.
Set LiveAtHead(const Op& loop, const Set& after) {
  Set head;
  for (;;) {
    Set at = head;
    LiveBefore(loop.bodies[0], &at);
    at.insert(after.begin(), after.end());
    at.insert(loop.predicate);
    LiveBefore(loop.condition, &at);
    if (at == head) return head;
    head = std::move(at);
  }
}

void LiveBefore(const std::vector<Op>& ops, Set* live) {
  for (auto op = ops.rbegin(); op != ops.rend(); ++op) {
    switch (op->kind) {
      case Op::Kind::kWhile:
        *live = LiveAtHead(*op, *live);
        break;
      case Op::Kind::kIf: {
        Set all;
        for (const std::vector<Op>& branch : op->bodies) {
          Set at = *live;
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

// --- Numbering: the same walk forwards that Marker makes backwards.

int64_t CountOps(const std::vector<Op>& ops) {
  int64_t count = 0;
  for (const Op& op : ops) {
    ++count;  // The op; of a loop its test, of a branching its selection.
    if (op.kind == Op::Kind::kWhile) count += CountOps(op.condition) + 1;
    for (const std::vector<Op>& body : op.bodies) count += CountOps(body) + (op.kind == Op::Kind::kIf ? 1 : 0);
  }
  return count;
}

// --- Intervals, backwards from the last number.

class Marker {
 public:
  Marker(const Program& program, int64_t count) : next_(count), open_(program.values.size(), -1) {
    result_.values.resize(program.values.size());
    result_.op_at.resize(count, nullptr);
    result_.points = 2 * count;
  }

  // From here backwards, exactly `live` is live.
  void SetLive(const Set& live) {
    const int64_t point = 2 * next_ - 1;
    for (auto it = live_.begin(); it != live_.end();) {
      const int value = *it++;
      if (!live.contains(value)) Close(value, point + 1);
    }
    for (int value : live) Open(value, point);
  }

  void Walk(const std::vector<Op>& ops) {
    for (auto op = ops.rbegin(); op != ops.rend(); ++op) {
      if (op->kind == Op::Kind::kWhile) {
        WalkLoop(*op);
      } else if (op->kind == Op::Kind::kIf) {
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
      Intervals joined;
      for (const Interval& interval : intervals) {
        if (!joined.empty() && joined.back().last + 1 >= interval.first) {
          joined.back().last = std::max(joined.back().last, interval.last);
        } else {
          joined.push_back(interval);
        }
      }
      intervals = std::move(joined);
    }
    return std::move(result_);
  }

 private:
  int64_t Take(const Op* op) {
    --next_;
    result_.op_at[next_] = op;
    return next_;
  }

  void WalkLoop(const Op& loop) {
    const Set after = live_;
    const Set head = LiveAtHead(loop, after);
    SetLive(head);
    Take(nullptr);  // The end of the body, from where it goes back to the condition.
    Walk(loop.bodies[0]);
    Set test = live_;
    test.insert(after.begin(), after.end());
    SetLive(test);
    const int64_t number = Take(&loop);
    Open(loop.predicate, 2 * number + 1);
    Walk(loop.condition);
  }

  void WalkBranches(const Op& op) {
    const Set after = live_;
    Set before;
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
    Open(value, 2 * number + 1);  // Written even where nobody reads it.
    Close(value, 2 * number + 1);
  }

  int64_t next_;
  Set live_;
  std::vector<int64_t> open_;
  Liveness result_;
};

}  // namespace

Liveness ComputeLiveness(const Program& program) {
  Marker marker(program, CountOps(program.ops));
  marker.SetLive(Set(program.results.begin(), program.results.end()));
  marker.Walk(program.ops);
  return marker.Finish();
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
  Intervals result;
  for (const Interval& interval : all) {
    if (!result.empty() && result.back().last + 1 >= interval.first) {
      result.back().last = std::max(result.back().last, interval.last);
    } else {
      result.push_back(interval);
    }
  }
  return result;
}

bool Contains(const Intervals& intervals, int64_t point) { return Overlap(intervals, {{point, point}}); }

}  // namespace xlad::compiler
