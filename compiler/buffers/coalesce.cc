#include "compiler/buffers/coalesce.h"

#include <algorithm>
#include <numeric>

#include "base/containers.h"
#include "base/kernel_abi.h"
#include "base/rounding.h"

namespace xlad::compiler {
namespace {

// A pair of values that may share memory. Candidates with larger weights are tried first.
struct Candidate {
  int a, b;
  double weight;
};

class ClassMerger {
 public:
  ClassMerger(const LinearProgram& program, const Liveness& liveness) : program_(program), liveness_(liveness) {
    const size_t count = program.values.size();
    classes_.class_of.resize(count);
    classes_.members.resize(count);
    classes_.live = liveness.values;
    for (size_t v = 0; v < count; ++v) {
      classes_.class_of[v] = v;
      classes_.members[v].push_back(v);
    }
  }

  void TryMerge(int x, int y) {
    const int a = classes_.class_of[x];
    const int b = classes_.class_of[y];
    if (a == b || !MayJoin(a, b)) return;
    for (int value : members(b)) classes_.class_of[value] = a;
    members(a).insert(members(a).end(), members(b).begin(), members(b).end());
    members(b).clear();
    live(a) = Unite(live(a), live(b));
    live(b).clear();
  }

  BufferClasses Finish() { return std::move(classes_); }

 private:
  std::vector<int>& members(int c) { return classes_.members[c]; }
  Intervals& live(int c) { return classes_.live[c]; }
  const BufferValue& value(int v) const { return program_.values[v]; }

  // Whether two classes may be merged. All members must have the same size and be writable, and at most one of them may
  // be a parameter or a result. The classes may be live at the same time only during an operation that runs in place.
  bool MayJoin(int a, int b) {
    int pinned = 0;
    const int64_t bytes = value(members(a)[0]).bytes;
    for (int c : {a, b}) {
      for (int v : members(c)) {
        if (!value(v).is_writable || value(v).bytes != bytes) return false;
        if (value(v).kind != BufferValue::Kind::kTemporary) ++pinned;
      }
    }
    if (pinned > 1) return false;
    for (const Interval& common : Intersect(live(a), live(b))) {
      if (common.first != common.last || common.first % 2 == 0) return false;
      if (!IsInPlace(common.first, a, b) && !IsInPlace(common.first, b, a)) return false;
    }
    return true;
  }

  // Whether the operation that writes at `point` reads class `from` for the last time and may write class `to` over it.
  bool IsInPlace(int64_t point, int from, int to) {
    const LinearOp* op = liveness_.op_at[point / 2];
    if (op == nullptr || op->kind == LinearOp::Kind::kWhile || op->kind == LinearOp::Kind::kIf) return false;
    if (HasPoint(live(from), point + 1)) return false;
    int output = -1;
    for (int o = 0; o < std::ssize(op->outputs); ++o) {
      const int written = classes_.class_of[op->outputs[o]];
      if (written == from) return false;
      if (written != to) continue;
      if (output >= 0) return false;
      output = o;
    }
    if (output < 0) return false;
    int first_input = -1;
    for (int i = 0; i < std::ssize(op->inputs); ++i) {
      const int read = classes_.class_of[op->inputs[i]];
      if (read == to) return false;
      if (read != from) continue;
      // Generated code assumes that the operand that it overwrites does not share memory with another operand.
      if (first_input < 0) first_input = i;
      if (!IsSameOperand(*op, first_input, i)) return false;
      const auto pair = std::make_pair(output, i);
      if (!Contains(op->may_share, pair)) return false;
    }
    return true;
  }

  const LinearProgram& program_;
  const Liveness& liveness_;
  BufferClasses classes_;
};

void CollectCandidates(const std::vector<LinearOp>& ops, double executions, const LinearProgram& program,
                       std::vector<Candidate>* candidates) {
  for (const LinearOp& op : ops) {
    for (const auto& [output, input] : op.may_share) {
      const int from = op.inputs[input];
      const int to = op.outputs[output];
      const double bytes = program.values[from].bytes;
      // Avoiding a copy saves time. Avoiding a buffer saves only memory. An update that is not in place copies the
      // elements that it does not change.
      const bool copies = op.kind == LinearOp::Kind::kCopy || op.instruction->opcode() == Opcode::kDynamicUpdateSlice ||
                          op.instruction->opcode() == Opcode::kScatter;
      candidates->push_back({from, to, (copies ? 1000 : 1) * (bytes + 1) * executions});
    }
    CollectCandidates(op.condition, executions * 10, program, candidates);
    for (const std::vector<LinearOp>& body : op.bodies) {
      CollectCandidates(body, op.kind == LinearOp::Kind::kWhile ? executions * 10 : executions, program, candidates);
    }
  }
}

}  // namespace

BufferClasses Coalesce(const LinearProgram& program, const Liveness& liveness) {
  std::vector<Candidate> candidates;
  CollectCandidates(program.ops, 1, program, &candidates);
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.weight > b.weight; });
  ClassMerger merger(program, liveness);
  for (const Candidate& candidate : candidates) merger.TryMerge(candidate.a, candidate.b);
  return merger.Finish();
}

bool IsTemporary(const LinearProgram& program, const BufferClasses& classes, int number) {
  const std::vector<int>& members = classes.members[number];
  return !members.empty() && std::all_of(members.begin(), members.end(), [&](int v) {
    return program.values[v].kind == BufferValue::Kind::kTemporary;
  });
}

std::vector<int64_t> LiveTemporaryBytes(const LinearProgram& program, const BufferClasses& classes, int64_t points) {
  std::vector<int64_t> live(points + 1, 0);  // At first, the change at each point.
  for (int c = 0; c < std::ssize(classes.members); ++c) {
    if (!IsTemporary(program, classes, c)) continue;
    const int64_t bytes = RoundUp(program.values[classes.members[c][0]].bytes, XLAD_BUFFER_ALIGNMENT);
    for (const Interval& interval : classes.live[c]) {
      live[std::max<int64_t>(interval.first, 0)] += bytes;
      live[interval.last + 1] -= bytes;
    }
  }
  std::partial_sum(live.begin(), live.end(), live.begin());
  live.pop_back();
  return live;
}

}  // namespace xlad::compiler
