// Linearize: converts step computations to a LinearProgram.
#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "compiler/analysis/in_place.h"
#include "compiler/analysis/instruction_facts.h"
#include "compiler/analysis/leaf_values.h"
#include "compiler/analysis/library_op.h"
#include "compiler/buffers/linear_program.h"
#include "compiler/kernel/cpu_lowering.h"
#include "compiler/kernel/object_emitter.h"
#include "hlo/analysis/lapack.h"
#include "hlo/analysis/leaves.h"
#include "hlo/attribute_keys.h"
#include "hlo/side_effect.h"

namespace xlad::compiler {
namespace {

using ValueIds = std::vector<int>;  // The values of an instruction's leaves.

class Linearizer {
 public:
  Linearizer(LinearProgram* program, bool for_gpu) : program_(program), for_gpu_(for_gpu) {}

  int NewValue(BufferValue value) {
    program_->values.push_back(std::move(value));
    return std::ssize(program_->values) - 1;
  }
  int Temporary(const Instruction& instruction, int64_t bytes) {
    BufferValue value;
    value.bytes = bytes;
    value.name = instruction.name();
    return NewValue(std::move(value));
  }

  // Appends the operations of a computation whose parameters have the values `arguments`. Returns the root's values.
  absl::StatusOr<ValueIds> LinearizeComputation(const Computation& computation, const std::vector<ValueIds>& arguments,
                                                std::vector<LinearOp>* ops);
  // Appends copies that have the effect of making all moves (from, to) at once: a value is overwritten only after all
  // moves that read it. A cycle of moves needs one temporary. This is parallel move resolution.
  void AddMoves(std::vector<std::pair<int, int>> moves, const Instruction& why, std::vector<LinearOp>* ops);

 private:
  using Environment = absl::flat_hash_map<const Instruction*, ValueIds>;
  absl::StatusOr<ValueIds> LinearizeInstruction(const Instruction& instruction, const Environment& known,
                                                std::vector<LinearOp>* ops);
  absl::StatusOr<ValueIds> LinearizeWhile(const Instruction& loop, const ValueIds& init, std::vector<LinearOp>* ops);
  absl::StatusOr<ValueIds> LinearizeConditional(const Instruction& conditional, const Environment& known,
                                                std::vector<LinearOp>* ops);
  absl::StatusOr<ValueIds> AddOp(const Instruction& instruction, const Environment& known, std::vector<LinearOp>* ops);
  int Constant(const Instruction& instruction);

  LinearProgram* program_;
  const bool for_gpu_;
  absl::flat_hash_map<const hlo::Literal*, int> constants_;
};

int64_t LeafBytes(const Shape& leaf) { return leaf.is_array() ? leaf.array().bytes() : 0; }

absl::StatusOr<ValueIds> Linearizer::LinearizeComputation(const Computation& computation,
                                                          const std::vector<ValueIds>& arguments,
                                                          std::vector<LinearOp>* ops) {
  Environment known;
  for (const auto& instruction : computation.instructions()) {
    if (instruction->opcode() == Opcode::kParameter) {
      known[instruction.get()] = arguments[instruction->number()];
      continue;
    }
    XLAD_ASSIGN_OR_RETURN(ValueIds values, LinearizeInstruction(*instruction, known, ops));
    known[instruction.get()] = std::move(values);
  }
  return known.at(computation.root());
}

// Limits the size of an array, so that sums of sizes do not overflow. The limit is far above the memory of any machine.
absl::Status CheckSize(const Instruction& instruction) {
  constexpr int64_t kMaxBytes = int64_t{1} << 46;
  for (const Shape* leaf : Leaves(instruction.shape())) {
    if (LeafBytes(*leaf) <= kMaxBytes) continue;
    return absl::ResourceExhaustedError(absl::StrCat(Describe(instruction), ": found ", leaf->ToString(false),
                                                     ", expected at most ", kMaxBytes, " bytes in an array"));
  }
  return absl::OkStatus();
}

absl::StatusOr<ValueIds> Linearizer::LinearizeInstruction(const Instruction& instruction, const Environment& known,
                                                          std::vector<LinearOp>* ops) {
  XLAD_RETURN_IF_ERROR(CheckSize(instruction));
  switch (instruction.opcode()) {
    case Opcode::kConstant:
      if (!instruction.shape().is_array()) break;
      return ValueIds{Constant(instruction)};
    case Opcode::kTuple:
      return LeavesOfTuple(instruction, known);
    case Opcode::kGetTupleElement:
      return LeavesOfElement(instruction, known);
    case Opcode::kReshape:
    case Opcode::kOptBarrier:
      return known.at(instruction.operand(0));
    case Opcode::kAfterAll:
      return ValueIds{Temporary(instruction, 0)};
    case Opcode::kWhile:
      return LinearizeWhile(instruction, known.at(instruction.operand(0)), ops);
    case Opcode::kConditional:
      return LinearizeConditional(instruction, known, ops);
    default:
      break;
  }
  return AddOp(instruction, known, ops);
}

int Linearizer::Constant(const Instruction& instruction) {
  auto [entry, fresh] = constants_.emplace(instruction.literal().get(), 0);
  if (fresh) {
    BufferValue value;
    value.kind = BufferValue::Kind::kConstant;
    value.bytes = LeafBytes(instruction.shape());
    value.index = std::ssize(program_->constants);
    value.is_writable = false;
    value.name = instruction.name();
    program_->constants.push_back(instruction.literal().get());
    entry->second = NewValue(std::move(value));
  }
  return entry->second;
}

absl::StatusOr<ValueIds> Linearizer::AddOp(const Instruction& instruction, const Environment& known,
                                           std::vector<LinearOp>* ops) {
  LinearOp op;
  op.instruction = &instruction;
  if (hlo::IsCollective(instruction.opcode())) {
    op.kind = LinearOp::Kind::kCollective;
  } else if (IsLibraryOp(instruction) || (for_gpu_ && IsGpuLibraryOp(instruction))) {
    op.kind = LinearOp::Kind::kLibrary;
  } else {
    if (hlo::IsLapackCall(instruction)) return Annotate(hlo::LapackCallOf(instruction).status(), Describe(instruction));
    std::string why;
    if (!CanEmit(instruction, &why)) {
      const absl::string_view reason = WhyNoCpuLowering(instruction.opcode());
      if (!reason.empty()) why = std::string(reason);
      return absl::UnimplementedError(absl::StrCat(Describe(instruction), ": ", why));
    }
  }
  for (const Instruction* operand : instruction.operands()) {
    const ValueIds& leaves = known.at(operand);
    op.inputs.insert(op.inputs.end(), leaves.begin(), leaves.end());
  }
  for (const Shape* leaf : Leaves(instruction.shape())) op.outputs.push_back(Temporary(instruction, LeafBytes(*leaf)));
  op.may_share = MayShareMemory(instruction);
  ValueIds outputs = op.outputs;
  ops->push_back(std::move(op));
  return outputs;
}

void Linearizer::AddMoves(std::vector<std::pair<int, int>> moves, const Instruction& why, std::vector<LinearOp>* ops) {
  std::erase_if(moves, [](const auto& move) { return move.first == move.second; });
  auto copy = [&](int from, int to) {
    LinearOp op;
    op.kind = LinearOp::Kind::kCopy;
    op.instruction = &why;
    op.inputs = {from};
    op.outputs = {to};
    op.may_share = {{0, 0}};
    ops->push_back(std::move(op));
  };
  absl::flat_hash_map<int, int> readers;  // The number of pending moves that read a value.
  for (const auto& [from, to] : moves) ++readers[from];
  while (!moves.empty()) {
    bool moved = false;
    for (size_t i = 0; i < moves.size();) {
      auto [from, to] = moves[i];
      if (readers[to] > 0) {
        ++i;
        continue;
      }
      copy(from, to);
      --readers[from];
      moves.erase(moves.begin() + i);
      moved = true;
    }
    if (moved || moves.empty()) continue;
    // Only cycles remain. Copying one value of a cycle to a temporary breaks the cycle.
    const int from = moves[0].first;
    const int saved = Temporary(why, program_->values[from].bytes);
    copy(from, saved);
    for (auto& move : moves) {
      if (move.first == from) move.first = saved;
    }
    readers[saved] = readers[from];
    readers[from] = 0;
  }
}

// Looks through tuples for the source of leaf `leaf` of `instruction`. Returns the parameter leaf that is its source,
// or -1 if the leaf is computed.
int64_t ParameterLeaf(const Instruction* instruction, int64_t leaf) {
  for (;;) {
    switch (instruction->opcode()) {
      case Opcode::kParameter:
        return leaf;
      case Opcode::kGetTupleElement:
        leaf += FirstLeaf(instruction->operand(0)->shape(), instruction->number());
        instruction = instruction->operand(0);
        break;
      case Opcode::kTuple: {
        int64_t element = 0;
        while (leaf >= CountLeaves(instruction->operand(element)->shape())) {
          leaf -= CountLeaves(instruction->operand(element++)->shape());
        }
        instruction = instruction->operand(element);
        break;
      }
      default:
        return -1;
    }
  }
}

absl::StatusOr<ValueIds> Linearizer::LinearizeWhile(const Instruction& loop, const ValueIds& init,
                                                    std::vector<LinearOp>* ops) {
  const Computation& condition = *loop.called()[0];
  const Computation& body = *loop.called()[1];
  ValueIds carried;
  std::vector<std::pair<int, int>> moves;
  std::vector<bool> is_unread(init.size(), false);
  for (const int64_t element : hlo::NotedUnreadInits(loop)) is_unread[FirstLeaf(loop.shape(), element)] = true;
  LinearOp reserve;
  reserve.kind = LinearOp::Kind::kReserve;
  reserve.instruction = &loop;
  for (int64_t i = 0; i < std::ssize(init); ++i) {
    const int from = init[i];
    if (ParameterLeaf(body.root(), i) == i) {  // The leaf is loop-invariant, and needs no memory of its own.
      carried.push_back(from);
      continue;
    }
    carried.push_back(Temporary(loop, program_->values[from].bytes));
    if (is_unread[i]) {
      reserve.outputs.push_back(carried.back());
    } else {
      moves.emplace_back(from, carried.back());
    }
  }
  AddMoves(moves, loop, ops);
  if (!reserve.outputs.empty()) ops->push_back(std::move(reserve));
  LinearOp op;
  op.kind = LinearOp::Kind::kWhile;
  op.instruction = &loop;
  XLAD_ASSIGN_OR_RETURN(ValueIds predicate, LinearizeComputation(condition, {carried}, &op.condition));
  op.predicate = predicate[0];
  op.bodies.emplace_back();
  XLAD_ASSIGN_OR_RETURN(ValueIds next, LinearizeComputation(body, {carried}, &op.bodies[0]));
  moves.clear();
  for (size_t i = 0; i < next.size(); ++i) moves.emplace_back(next[i], carried[i]);
  AddMoves(moves, loop, &op.bodies[0]);
  ops->push_back(std::move(op));
  return carried;
}

absl::StatusOr<ValueIds> Linearizer::LinearizeConditional(const Instruction& conditional, const Environment& known,
                                                          std::vector<LinearOp>* ops) {
  LinearOp op;
  op.kind = LinearOp::Kind::kIf;
  op.instruction = &conditional;
  op.inputs = known.at(conditional.operand(0));
  ValueIds results;
  for (const Shape* leaf : Leaves(conditional.shape())) results.push_back(Temporary(conditional, LeafBytes(*leaf)));
  for (size_t b = 0; b < conditional.called().size(); ++b) {
    const ValueIds& argument = known.at(conditional.operand(b + 1));
    op.bodies.emplace_back();
    XLAD_ASSIGN_OR_RETURN(ValueIds branch,
                          LinearizeComputation(*conditional.called()[b], {argument}, &op.bodies.back()));
    std::vector<std::pair<int, int>> moves;
    for (size_t i = 0; i < results.size(); ++i) moves.emplace_back(branch[i], results[i]);
    AddMoves(moves, conditional, &op.bodies.back());
  }
  ops->push_back(std::move(op));
  return results;
}

// Returns the operand of the instruction, and the leaf of this operand, to which an input of the operation corresponds.
std::pair<const Instruction*, int64_t> OperandLeaf(const LinearOp& op, int input) {
  int64_t leaf = input;
  for (const Instruction* operand : op.instruction->operands()) {
    const int64_t count = CountLeaves(operand->shape());
    if (leaf < count) return {operand, leaf};
    leaf -= count;
  }
  return {nullptr, input};
}

// Counts the reads of each value.
void CountReads(const std::vector<LinearOp>& ops, std::vector<int>* reads) {
  for (const LinearOp& op : ops) {
    for (const int value : op.inputs) ++(*reads)[value];
    if (op.predicate >= 0) ++(*reads)[op.predicate];
    CountReads(op.condition, reads);
    for (const std::vector<LinearOp>& body : op.bodies) CountReads(body, reads);
  }
}

// Removes kernels without side effects whose results are not read, such as those that compute unread initial values of
// loops. Conditions of loops are not searched. `reads` is the number of reads of each value.
void RemoveUnread(std::vector<LinearOp>* ops, std::vector<int>* reads) {
  std::vector<LinearOp> kept;
  for (auto op = ops->rbegin(); op != ops->rend(); ++op) {
    const bool is_read =
        std::any_of(op->outputs.begin(), op->outputs.end(), [&](int value) { return (*reads)[value] > 0; });
    if (op->kind == LinearOp::Kind::kKernel && !is_read && !hlo::HasSideEffect(*op->instruction)) {
      for (const int value : op->inputs) --(*reads)[value];
      continue;
    }
    for (std::vector<LinearOp>& body : op->bodies) RemoveUnread(&body, reads);
    kept.push_back(std::move(*op));
  }
  ops->assign(std::make_move_iterator(kept.rbegin()), std::make_move_iterator(kept.rend()));
}

}  // namespace

bool IsSameOperand(const LinearOp& op, int input, int other_input) {
  return OperandLeaf(op, input) == OperandLeaf(op, other_input);
}

absl::StatusOr<LinearProgram> Linearize(const Module& module, const Donation& donation, bool for_gpu) {
  LinearProgram program;
  Linearizer lowering(&program, for_gpu);
  std::vector<ValueIds> arguments;
  int64_t leaf_number = 0;
  for (const Instruction* parameter : module.entry()->parameters()) {
    arguments.emplace_back();
    XLAD_RETURN_IF_ERROR(CheckSize(*parameter));
    for (const Shape* leaf : Leaves(parameter->shape())) {
      BufferValue value;
      value.kind = BufferValue::Kind::kParameter;
      value.bytes = LeafBytes(*leaf);
      value.index = leaf_number;
      value.is_writable = donation.parameter_is_donated[leaf_number++];
      value.name = parameter->name();
      arguments.back().push_back(lowering.NewValue(std::move(value)));
      program.parameters.push_back(arguments.back().back());
    }
  }
  XLAD_ASSIGN_OR_RETURN(ValueIds roots, lowering.LinearizeComputation(*module.entry(), arguments, &program.ops));
  const Instruction& root = *module.entry()->root();
  std::vector<std::pair<int, int>> moves;
  for (size_t r = 0; r < roots.size(); ++r) {
    const int64_t parameter = donation.result_to_parameter[r];
    int target = -1;
    if (parameter >= 0) {
      target = program.parameters[parameter];
    } else {
      BufferValue value;
      value.kind = BufferValue::Kind::kResult;
      value.bytes = program.values[roots[r]].bytes;
      value.index = r;
      value.name = absl::StrCat("result ", r);
      target = lowering.NewValue(std::move(value));
    }
    program.results.push_back(target);
    moves.emplace_back(roots[r], target);
  }
  lowering.AddMoves(moves, root, &program.ops);
  std::vector<int> reads(program.values.size(), 0);
  CountReads(program.ops, &reads);
  for (const int result : program.results) ++reads[result];
  RemoveUnread(&program.ops, &reads);
  double total = 0;  // Offsets in the arena are sums of sizes, which must not overflow.
  for (const BufferValue& value : program.values) total += value.bytes;
  if (total > 0x1p60) {
    return absl::ResourceExhaustedError(
        absl::StrCat("found values of ", total, " bytes in the program, expected at most 2^60 bytes"));
  }
  return program;
}

}  // namespace xlad::compiler
