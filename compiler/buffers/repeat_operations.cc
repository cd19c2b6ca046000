#include "compiler/buffers/repeat_operations.h"

#include <numeric>

#include "absl/container/flat_hash_map.h"
#include "base/work.h"

namespace xlad::compiler {
namespace {

class Repeater {
 public:
  Repeater(const RecomputeFacts& facts, const Cuts& cuts, const std::vector<bool>& saved, int64_t max_added)
      : facts_(facts),
        cuts_(cuts),
        saved_(saved),
        max_added_(max_added),
        version_(facts.def.size()),
        accessed_(facts.def.size(), 0) {
    std::iota(version_.begin(), version_.end(), 0);
  }

  // Rewrites the list, and adds the values of repeated operations to `values`. The result is incomplete if
  // has_too_many().
  std::vector<LinearOp> Run(std::vector<LinearOp> ops, std::vector<BufferValue>* values) {
    values_ = values;
    originals_ = &ops;
    for (int i = 0; i < facts_.size && !has_too_many(); ++i) {
      const bool ends = ops[i].kind == LinearOp::Kind::kCollectiveDone;
      if (!ends) MakeAvailable(facts_.reads[i], i);
      for (const int value : facts_.reads[i]) Access(value, i);
      for (const int value : facts_.writes[i]) Access(value, i);
      LinearOp op = facts_.can_repeat[i] ? ops[i] : std::move(ops[i]);
      const std::vector<int> operands = op.inputs;
      ends ? RenameEnd(&op) : Rename(&op);
      if (op.kind == LinearOp::Kind::kCollective && op.request != 0) {
        for (size_t k = 0; k < operands.size(); ++k) renamed_[op.request][operands[k]] = op.inputs[k];
      }
      result_.push_back(std::move(op));
    }
    return std::move(result_);
  }
  double ns() const { return ns_; }
  bool has_too_many() const { return added_ > max_added_; }

 private:
  void Access(int value, int position) {
    if (facts_.def[value] >= 0) accessed_[value] = position;
  }
  // Whether the value must be computed again before it is read at `position`.
  bool IsGone(int value, int position) const {
    return facts_.def[value] >= 0 && !saved_[value] && cuts_.Between(accessed_[value], position);
  }

  void MakeAvailable(const std::vector<int>& values, int position) {
    std::vector<int> pending;
    const auto add_gone = [&](const std::vector<int>& operands) {
      bool found = false;
      for (const int value : operands) {
        if (!IsGone(value, position)) continue;
        pending.push_back(facts_.def[value]);
        found = true;
      }
      return found;
    };
    add_gone(values);
    while (!pending.empty() && !has_too_many()) {
      CountWork();
      const int at = pending.back();
      bool is_needed = false;
      for (const int value : facts_.writes[at]) is_needed = is_needed || IsGone(value, position);
      if (is_needed && add_gone(facts_.reads[at])) continue;
      pending.pop_back();
      if (is_needed) Repeat(at, position);
    }
  }

  void Repeat(int original, int position) {
    for (const int value : facts_.reads[original]) Access(value, position);
    LinearOp op = (*originals_)[original];
    Rename(&op);
    op.is_repeated = true;
    for (int& output : op.outputs) {
      const int value = output;
      BufferValue again = (*values_)[value];
      output = std::ssize(*values_);
      values_->push_back(std::move(again));
      if (!IsGone(value, position)) continue;
      version_[value] = output;
      Access(value, position);
    }
    ns_ += facts_.ns[original];
    ++added_;
    result_.push_back(std::move(op));
  }

  int VersionOf(int value) const { return facts_.def[value] >= 0 ? version_[value] : value; }
  void Rename(LinearOp* op) const {
    for (int& value : op->inputs) value = VersionOf(value);
    if (op->predicate >= 0) op->predicate = VersionOf(op->predicate);
    for (LinearOp& inner : op->condition) Rename(&inner);
    for (std::vector<LinearOp>& body : op->bodies) {
      for (LinearOp& inner : body) Rename(&inner);
    }
  }
  // The end of a collective reads the operands that its start has read, and its results.
  void RenameEnd(LinearOp* end) const {
    const auto renamed = renamed_.find(end->request);
    if (renamed == renamed_.end()) return;
    for (int& value : end->inputs) {
      const auto found = renamed->second.find(value);
      if (found != renamed->second.end()) value = found->second;
    }
  }

  const RecomputeFacts& facts_;
  const Cuts& cuts_;
  const std::vector<bool>& saved_;
  const int64_t max_added_;
  std::vector<BufferValue>* values_ = nullptr;
  const std::vector<LinearOp>* originals_ = nullptr;
  std::vector<int> version_;   // For each original value, the value that now has its content.
  std::vector<int> accessed_;  // For each original value, the position at which it was last read or written.
  // For each collective that was started: the values that it reads instead of its original operands.
  absl::flat_hash_map<int, absl::flat_hash_map<int, int>> renamed_;
  std::vector<LinearOp> result_;
  int64_t added_ = 0;
  double ns_ = 0;
};

}  // namespace

std::optional<Repeated> RepeatOperations(const LinearProgram& program, const RecomputeFacts& facts, const Cuts& cuts,
                                         const std::vector<bool>& saved, int64_t max_added) {
  Repeated result{program};
  std::vector<LinearOp>& ops = ListAt(&result.program, facts.path);
  Repeater repeater(facts, cuts, saved, max_added);
  ops = repeater.Run(std::move(ops), &result.program.values);
  if (repeater.has_too_many()) return std::nullopt;
  result.ns = repeater.ns();
  return result;
}

}  // namespace xlad::compiler
