#include "compiler/buffers/recompute_facts.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "base/kernel_abi.h"
#include "base/rounding.h"
#include "base/sort_distinct.h"
#include "base/work.h"
#include "compiler/analysis/flops.h"
#include "compiler/analysis/overlap_cost.h"
#include "hlo/side_effect.h"

namespace xlad::compiler {
namespace {

template <typename Visit>
void ForEachOp(const std::vector<LinearOp>& ops, const Visit& visit) {
  for (const LinearOp& op : ops) {
    visit(op);
    ForEachOp(op.condition, visit);
    for (const std::vector<LinearOp>& body : op.bodies) ForEachOp(body, visit);
  }
}

template <typename Visit>
void ForEachInside(const LinearOp& op, const Visit& visit) {
  visit(op);
  ForEachOp(op.condition, visit);
  for (const std::vector<LinearOp>& body : op.bodies) ForEachOp(body, visit);
}

// Only kernels and library ops are repeated. Exceptions are operations with side effects, random numbers, updates in
// place, custom calls, and library ops whose flops are not known.
bool IsRepeatable(const LinearOp& op) {
  if (op.kind != LinearOp::Kind::kKernel && op.kind != LinearOp::Kind::kLibrary) return false;
  const Instruction& instruction = *op.instruction;
  if (hlo::HasSideEffect(instruction)) return false;
  switch (instruction.opcode()) {
    case Opcode::kRng:
    case Opcode::kRngGetAndUpdateState:
    case Opcode::kRngBitGenerator:
    case Opcode::kDynamicUpdateSlice:
    case Opcode::kScatter:
    case Opcode::kCustomCall:
      return false;
    default:
      return op.kind == LinearOp::Kind::kKernel || FlopsOf(instruction) > 0;
  }
}

using OpNumbers = absl::flat_hash_map<const LinearOp*, int64_t>;

OpNumbers NumbersOf(const Liveness& liveness) {
  OpNumbers numbers;
  for (int64_t number = 0; number < std::ssize(liveness.op_at); ++number) {
    if (liveness.op_at[number] != nullptr) numbers[liveness.op_at[number]] = number;
  }
  return numbers;
}

// The number of the first operation inside. The condition of a loop is numbered before the loop.
int64_t FirstNumber(const LinearOp& op, const OpNumbers& numbers) {
  return op.condition.empty() ? numbers.at(&op) : FirstNumber(op.condition.front(), numbers);
}

// The position of the last operation that begins at or before `number`, or -1.
int PositionAt(const std::vector<LinearOp>& ops, const OpNumbers& numbers, int64_t number) {
  const auto after = std::partition_point(ops.begin(), ops.end(),
                                          [&](const LinearOp& op) { return FirstNumber(op, numbers) <= number; });
  return after - ops.begin() - 1;
}

}  // namespace

std::vector<LinearOp>& ListAt(LinearProgram* program, const ListPath& path) {
  std::vector<LinearOp>* ops = &program->ops;
  for (const ListPath::Entry& entry : path.entries) ops = &(*ops)[entry.position].bodies[entry.body];
  return *ops;
}

MemoryProfile::MemoryProfile(const LinearProgram& program)
    : liveness(ComputeLiveness(program)),
      classes(Coalesce(program, liveness)),
      live_bytes(LiveTemporaryBytes(program, classes, liveness.points)) {
  CountWork(std::ssize(program.values));
  const auto peak = std::max_element(live_bytes.begin(), live_bytes.end());
  if (peak == live_bytes.end()) return;
  peak_point = peak - live_bytes.begin();
  peak_bytes = *peak;
}

std::vector<ListPath> ListsAt(const LinearProgram& program, const Liveness& liveness, int64_t point) {
  const OpNumbers numbers = NumbersOf(liveness);
  const int64_t number = point / 2;
  std::vector<ListPath> paths(1);
  const std::vector<LinearOp>* ops = &program.ops;
  for (;;) {
    const int position = PositionAt(*ops, numbers, number);
    if (position < 0) return paths;
    const LinearOp& op = (*ops)[position];
    if (number <= numbers.at(&op)) return paths;  // The operation itself, or the condition of a loop.
    int found = -1;
    for (int body = 0; body < std::ssize(op.bodies); ++body) {
      if (!op.bodies[body].empty() && FirstNumber(op.bodies[body].front(), numbers) <= number) found = body;
    }
    if (found < 0) return paths;
    ListPath inner = paths.back();
    inner.entries.push_back({position, found});
    paths.push_back(std::move(inner));
    ops = &op.bodies[found];
  }
}

RecomputeFacts::RecomputeFacts(const LinearProgram& program, const ListPath& path_of_list, const MemoryProfile& profile)
    : path(path_of_list) {
  const std::vector<LinearOp>* ops = &program.ops;
  for (const ListPath::Entry& entry : path.entries) ops = &(*ops)[entry.position].bodies[entry.body];
  size = std::ssize(*ops);
  class_of_ = profile.classes.class_of;
  class_writes_.resize(program.values.size());
  closed_.assign(program.values.size(), size);
  for (const BufferValue& value : program.values) bytes.push_back(RoundUp(value.bytes, XLAD_BUFFER_ALIGNMENT));
  std::vector<int> writers(program.values.size(), 0);
  ForEachOp(program.ops, [&](const LinearOp& op) {
    CountWork();
    for (const int value : op.outputs) ++writers[value];
  });
  AddOperations(*ops, writers, program);
  AddLiveBytes(*ops, profile);
}

void RecomputeFacts::AddOperations(const std::vector<LinearOp>& ops, const std::vector<int>& writers,
                                   const LinearProgram& program) {
  const auto is_single = [&](int value) {
    return writers[value] == 1 && program.values[value].kind == BufferValue::Kind::kTemporary;
  };
  def.assign(program.values.size(), -1);
  uses.resize(program.values.size());
  for (int i = 0; i < size; ++i) {
    const LinearOp& op = ops[i];
    reads.emplace_back();
    writes.push_back(op.outputs);
    ForEachInside(op, [&](const LinearOp& inner) {
      reads[i].insert(reads[i].end(), inner.inputs.begin(), inner.inputs.end());
      if (inner.predicate >= 0) reads[i].push_back(inner.predicate);
      for (const int value : inner.outputs) {
        std::vector<int>& positions = class_writes_[class_of_[value]];
        if (positions.empty() || positions.back() != i) positions.push_back(i);
      }
      const bool copies = inner.kind == LinearOp::Kind::kCopy || inner.kind == LinearOp::Kind::kCollective ||
                          inner.instruction->opcode() == Opcode::kDynamicUpdateSlice ||
                          inner.instruction->opcode() == Opcode::kScatter;
      if (!copies) return;
      // If an operand is read later, the operation is no longer in place, and copies it.
      for (const auto& [output, input] : inner.may_share) {
        const int from = inner.inputs[input];
        if (class_of_[from] == class_of_[inner.outputs[output]]) closed_[from] = std::min(closed_[from], i);
      }
    });
    SortDistinct(&reads[i]);
    for (const int value : reads[i]) uses[value].push_back(i);
    for (const int value : op.outputs) def[value] = is_single(value) ? i : -1;
    const bool repeats = IsRepeatable(op) && std::all_of(op.outputs.begin(), op.outputs.end(), is_single);
    can_repeat.push_back(repeats);
    ns.push_back(repeats ? ComputeNs(*op.instruction) : 0);
  }
}

void RecomputeFacts::AddLiveBytes(const std::vector<LinearOp>& ops, const MemoryProfile& profile) {
  const OpNumbers numbers = NumbersOf(profile.liveness);
  live_bytes.assign(size, 0);
  for (int i = 0; i < size; ++i) {
    const int64_t first = 2 * FirstNumber(ops[i], numbers);
    int64_t end = first + 2;
    if (i + 1 < size) {
      end = 2 * FirstNumber(ops[i + 1], numbers);
    } else {
      ForEachInside(ops[i], [&](const LinearOp& inner) { end = std::max(end, 2 * numbers.at(&inner) + 2); });
    }
    const auto begin = profile.live_bytes.begin();
    live_bytes[i] = *std::max_element(begin + first, begin + end);
  }
}

int RecomputeFacts::LastRead(int value, int reader) const {
  if (def[value] >= 0) return closed_[value];
  const std::vector<int>& positions = class_writes_[class_of_[value]];
  const auto next = std::lower_bound(positions.begin(), positions.end(), reader);
  return next == positions.end() ? size : *next;
}

}  // namespace xlad::compiler
