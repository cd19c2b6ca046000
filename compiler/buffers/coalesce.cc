#include "compiler/buffers/coalesce.h"

#include <algorithm>

namespace xlad::compiler {
namespace {

// A pair that could share memory, and how much that would save.
struct Wish {
  int a, b;
  double weight;
};

class Merger {
 public:
  Merger(const Program& program, const Liveness& liveness) : program_(program), liveness_(liveness) {
    const size_t count = program.values.size();
    classes_.class_of.resize(count);
    classes_.members.resize(count);
    classes_.live = liveness.values;
    for (size_t v = 0; v < count; ++v) {
      classes_.class_of[v] = static_cast<int>(v);
      classes_.members[v] = {static_cast<int>(v)};
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

  Classes Finish() { return std::move(classes_); }

 private:
  std::vector<int>& members(int c) { return classes_.members[c]; }
  Intervals& live(int c) { return classes_.live[c]; }
  const Value& value(int v) const { return program_.values[v]; }

  // A class has at most one member whose place is given, and none that may not be written.
  bool MayJoin(int a, int b) {
    int pinned = 0;
    const int64_t bytes = value(members(a)[0]).bytes;
    for (int c : {a, b}) {
      for (int v : members(c)) {
        if (!value(v).is_writable || value(v).bytes != bytes) return false;
        if (value(v).kind != Value::Kind::kTemporary) ++pinned;
      }
    }
    if (pinned > 1) return false;
    for (const Interval& common : Intersect(live(a), live(b))) {
      if (common.first != common.last || common.first % 2 == 0) return false;
      if (!IsInPlace(common.first, a, b) && !IsInPlace(common.first, b, a)) return false;
    }
    return true;
  }

  // Whether at this writing point an op reads its operand in class `from` for the last time and writes over it a
  // result in class `to`, as it may.
  bool IsInPlace(int64_t point, int from, int to) {
    const Op* op = liveness_.op_at[point / 2];
    if (op == nullptr || op->kind == Op::Kind::kWhile || op->kind == Op::Kind::kIf) return false;
    if (Contains(live(from), point + 1)) return false;
    int output = -1;
    for (int o = 0; o < std::ssize(op->outputs); ++o) {
      const int written = classes_.class_of[op->outputs[o]];
      if (written == from) return false;
      if (written != to) continue;
      if (output >= 0) return false;
      output = o;
    }
    if (output < 0) return false;
    for (int i = 0; i < std::ssize(op->inputs); ++i) {
      const int read = classes_.class_of[op->inputs[i]];
      if (read == to) return false;
      if (read != from) continue;
      const auto pair = std::make_pair(output, i);
      if (std::find(op->may_share.begin(), op->may_share.end(), pair) == op->may_share.end()) return false;
    }
    return true;
  }

  const Program& program_;
  const Liveness& liveness_;
  Classes classes_;
};

void CollectWishes(const std::vector<Op>& ops, double executions, const Program& program, std::vector<Wish>* wishes) {
  for (const Op& op : ops) {
    for (const auto& [output, input] : op.may_share) {
      const int from = op.inputs[input];
      const int to = op.outputs[output];
      const double bytes = static_cast<double>(program.values[from].bytes);
      // Avoiding a copy saves time; avoiding a buffer only saves memory, except where the op copies what it keeps.
      const bool copies = op.kind == Op::Kind::kCopy || op.instruction->opcode() == Opcode::kDynamicUpdateSlice ||
                          op.instruction->opcode() == Opcode::kScatter;
      wishes->push_back({from, to, (copies ? 1000 : 1) * (bytes + 1) * executions});
    }
    CollectWishes(op.condition, executions * 10, program, wishes);
    for (const std::vector<Op>& body : op.bodies) {
      CollectWishes(body, op.kind == Op::Kind::kWhile ? executions * 10 : executions, program, wishes);
    }
  }
}

}  // namespace

Classes Coalesce(const Program& program, const Liveness& liveness) {
  std::vector<Wish> wishes;
  CollectWishes(program.ops, 1, program, &wishes);
  std::stable_sort(wishes.begin(), wishes.end(), [](const Wish& a, const Wish& b) { return a.weight > b.weight; });
  Merger merger(program, liveness);
  for (const Wish& wish : wishes) merger.TryMerge(wish.a, wish.b);
  return merger.Finish();
}

}  // namespace xlad::compiler
