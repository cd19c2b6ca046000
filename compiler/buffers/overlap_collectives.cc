#include "compiler/buffers/overlap_collectives.h"

#include <algorithm>
#include <numeric>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "compiler/analysis/overlap_cost.h"
#include "compiler/buffers/liveness.h"

namespace xlad::compiler {
namespace {

using ValueSet = absl::flat_hash_set<int>;

// Whether an operation, including its nested operations, reads or writes one of a set of values.
struct Accesses {
  bool reads = false, writes = false;
};

bool HasAny(const std::vector<int>& list, const ValueSet& values) {
  return std::any_of(list.begin(), list.end(), [&](int value) { return values.contains(value); });
}

Accesses AccessesOf(const LinearOp& op, const ValueSet& values) {
  Accesses found{HasAny(op.inputs, values) || values.contains(op.predicate), HasAny(op.outputs, values)};
  const auto add = [&](const std::vector<LinearOp>& ops) {
    for (const LinearOp& inner : ops) {
      const Accesses of_inner = AccessesOf(inner, values);
      found.reads = found.reads || of_inner.reads;
      found.writes = found.writes || of_inner.writes;
    }
  };
  add(op.condition);
  for (const std::vector<LinearOp>& body : op.bodies) add(body);
  return found;
}

double NsOf(const LinearOp& op) {
  const bool computes = op.kind != LinearOp::Kind::kCopy && op.kind != LinearOp::Kind::kReserve &&
                        op.kind != LinearOp::Kind::kCollectiveDone;
  return computes ? ComputeNs(*op.instruction) : 0;
}

// Merges each result of a collective with an operand, if the collective can run in place on it.
class InPlaceMerger {
 public:
  explicit InPlaceMerger(LinearProgram* program)
      : program_(*program), liveness_(ComputeLiveness(*program)), merged_with_(program->values.size()) {
    std::iota(merged_with_.begin(), merged_with_.end(), 0);
    for (int64_t number = 0; number < std::ssize(liveness_.op_at); ++number) {
      if (liveness_.op_at[number] != nullptr) number_of_[liveness_.op_at[number]] = number;
    }
  }

  void Merge(const LinearOp& op) {
    const int64_t written = 2 * number_of_.at(&op) + 1;
    for (const auto& [output, input] : op.may_share) {
      const int from = merged_with_[op.inputs[input]], to = op.outputs[output];
      const BufferValue& value = program_.values[from];
      if (value.kind != BufferValue::Kind::kTemporary || value.bytes != program_.values[to].bytes) continue;
      const auto uses = std::count_if(op.inputs.begin(), op.inputs.end(),
                                      [&](int other) { return merged_with_[other] == from; });
      if (uses != 1) continue;
      const Intervals common = Intersect(liveness_.values[from], liveness_.values[to]);
      if (common != Intervals{{written, written}}) continue;
      merged_with_[to] = from;
      liveness_.values[from] = Unite(liveness_.values[from], liveness_.values[to]);
    }
  }

  // Replaces merged results with their operands.
  void Rename(std::vector<LinearOp>* ops) const {
    for (LinearOp& op : *ops) {
      for (std::vector<int>* list : {&op.inputs, &op.outputs}) {
        for (int& value : *list) value = merged_with_[value];
      }
      if (op.predicate >= 0) op.predicate = merged_with_[op.predicate];
      Rename(&op.condition);
      for (std::vector<LinearOp>& body : op.bodies) Rename(&body);
    }
  }

 private:
  const LinearProgram& program_;
  Liveness liveness_;
  std::vector<int> merged_with_;  // For each value, the operand with which it is merged, or the value itself.
  absl::flat_hash_map<const LinearOp*, int64_t> number_of_;
};

class Overlapper {
 public:
  Overlapper(LinearProgram* program, double min_ns) : program_(*program), min_ns_(min_ns) {}

  int Run() {
    Mark(&program_.ops);
    if (requests_ == 0) return 0;
    InPlaceMerger merger(&program_);
    for (const LinearOp* op : started_) merger.Merge(*op);
    merger.Rename(&program_.ops);
    AddEnds(&program_.ops);
    return requests_;
  }

 private:
  // The position of the operation before which the collective at position `start` must end.
  static size_t EndOf(const std::vector<LinearOp>& ops, size_t start) {
    const ValueSet operands(ops[start].inputs.begin(), ops[start].inputs.end());
    const ValueSet results(ops[start].outputs.begin(), ops[start].outputs.end());
    size_t end = start + 1;
    for (; end < ops.size(); ++end) {
      const Accesses of_results = AccessesOf(ops[end], results);
      if (of_results.reads || of_results.writes || AccessesOf(ops[end], operands).writes) break;
    }
    return end;
  }

  // Numbers the collectives that are overlapped with at least min_ns_ of computation.
  void Mark(std::vector<LinearOp>* ops) {
    for (size_t start = 0; start < ops->size(); ++start) {
      LinearOp& op = (*ops)[start];
      Mark(&op.condition);
      for (std::vector<LinearOp>& body : op.bodies) Mark(&body);
      if (op.kind != LinearOp::Kind::kCollective) continue;
      const size_t end = EndOf(*ops, start);
      double ns = 0;
      for (size_t at = start + 1; at < end; ++at) ns += NsOf((*ops)[at]);
      if (end == start + 1 || ns < min_ns_) continue;
      op.request = ++requests_;
      started_.push_back(&op);
    }
  }

  void AddEnds(std::vector<LinearOp>* ops) {
    // For each position, the ends that are inserted before it.
    std::vector<std::vector<LinearOp>> ends(ops->size() + 1);
    for (size_t start = 0; start < ops->size(); ++start) {
      LinearOp& op = (*ops)[start];
      AddEnds(&op.condition);
      for (std::vector<LinearOp>& body : op.bodies) AddEnds(&body);
      if (op.kind != LinearOp::Kind::kCollective || op.request == 0) continue;
      LinearOp done;
      done.kind = LinearOp::Kind::kCollectiveDone;
      done.instruction = op.instruction;
      done.request = op.request;
      const ValueSet all = [&] {
        ValueSet values(op.inputs.begin(), op.inputs.end());
        values.insert(op.outputs.begin(), op.outputs.end());
        return values;
      }();
      done.inputs.assign(all.begin(), all.end());
      std::sort(done.inputs.begin(), done.inputs.end());
      ends[EndOf(*ops, start)].push_back(std::move(done));
    }
    std::vector<LinearOp> all;
    for (size_t at = 0; at <= ops->size(); ++at) {
      for (LinearOp& end : ends[at]) all.push_back(std::move(end));
      if (at < ops->size()) all.push_back(std::move((*ops)[at]));
    }
    *ops = std::move(all);
  }

  LinearProgram& program_;
  const double min_ns_;
  int requests_ = 0;
  std::vector<const LinearOp*> started_;  // In program order.
};

}  // namespace

int OverlapCollectives(LinearProgram* program, double min_ns) { return Overlapper(program, min_ns).Run(); }

}  // namespace xlad::compiler
