// From step computations to a Program.
#include <algorithm>

#include "compiler/analysis/in_place.h"
#include "compiler/analysis/library.h"
#include "compiler/buffers/program.h"
#include "compiler/kernel/emit.h"
#include "compiler/kernel/lowering.h"

namespace xlad::compiler {
namespace {

using Values = std::vector<int>;

class Lowering {
 public:
  explicit Lowering(Program* program) : program_(program) {}

  int NewValue(Value value) {
    program_->values.push_back(std::move(value));
    return static_cast<int>(program_->values.size()) - 1;
  }
  int Temporary(const Instruction& instruction, int64_t bytes) {
    Value value;
    value.bytes = bytes;
    value.name = instruction.name();
    return NewValue(std::move(value));
  }

  // Appends the computation's ops; the values of its root's leaves.
  absl::StatusOr<Values> LowerComputation(const Computation& computation, const std::vector<Values>& arguments,
                                          std::vector<Op>* ops);
  // All at once: no destination is written while another move still has to read it.
  void Moves(std::vector<std::pair<int, int>> moves, const Instruction& why, std::vector<Op>* ops);

 private:
  using Environment = absl::flat_hash_map<const Instruction*, Values>;
  absl::StatusOr<Values> LowerInstruction(const Instruction& instruction, const Environment& known,
                                          std::vector<Op>* ops);
  absl::StatusOr<Values> LowerWhile(const Instruction& loop, const Values& init, std::vector<Op>* ops);
  absl::StatusOr<Values> LowerConditional(const Instruction& conditional, const Environment& known,
                                          std::vector<Op>* ops);
  absl::StatusOr<Values> LowerOp(const Instruction& instruction, const Environment& known, std::vector<Op>* ops);
  int Constant(const Instruction& instruction);

  Program* program_;
  absl::flat_hash_map<const hlo::Literal*, int> constants_;
};

int64_t LeafBytes(const Shape& leaf) { return leaf.is_array() ? leaf.array().bytes() : 0; }

absl::StatusOr<Values> Lowering::LowerComputation(const Computation& computation, const std::vector<Values>& arguments,
                                                  std::vector<Op>* ops) {
  Environment known;
  for (const auto& instruction : computation.instructions()) {
    if (instruction->opcode() == Opcode::kParameter) {
      known[instruction.get()] = arguments[instruction->number()];
      continue;
    }
    XLAD_ASSIGN_OR_RETURN(Values values, LowerInstruction(*instruction, known, ops));
    known[instruction.get()] = std::move(values);
  }
  return known.at(computation.root());
}

// Sums of sizes must not overflow; nothing that fits a machine comes near.
absl::Status CheckSize(const Instruction& instruction) {
  constexpr int64_t kMostBytes = int64_t{1} << 46;
  for (const Shape* leaf : Leaves(instruction.shape())) {
    if (LeafBytes(*leaf) <= kMostBytes) continue;
    return absl::ResourceExhaustedError(absl::StrCat(Describe(instruction), ": found ", leaf->ToString(false),
                                                     ", expected at most ", kMostBytes, " bytes in an array"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Values> Lowering::LowerInstruction(const Instruction& instruction, const Environment& known,
                                                  std::vector<Op>* ops) {
  XLAD_RETURN_IF_ERROR(CheckSize(instruction));
  switch (instruction.opcode()) {
    case Opcode::kConstant:
      if (!instruction.shape().is_array()) break;
      return Values{Constant(instruction)};
    case Opcode::kTuple: {
      Values all;
      for (const Instruction* operand : instruction.operands()) {
        const Values& leaves = known.at(operand);
        all.insert(all.end(), leaves.begin(), leaves.end());
      }
      return all;
    }
    case Opcode::kGetTupleElement: {
      const Instruction* tuple = instruction.operand(0);
      const Values& all = known.at(tuple);
      auto first = all.begin() + FirstLeaf(tuple->shape(), instruction.number());
      return Values(first, first + CountLeaves(instruction.shape()));
    }
    case Opcode::kReshape:
    case Opcode::kOptBarrier:
      return known.at(instruction.operand(0));
    case Opcode::kAfterAll:
      return Values{Temporary(instruction, 0)};
    case Opcode::kWhile:
      return LowerWhile(instruction, known.at(instruction.operand(0)), ops);
    case Opcode::kConditional:
      return LowerConditional(instruction, known, ops);
    default:
      break;
  }
  return LowerOp(instruction, known, ops);
}

int Lowering::Constant(const Instruction& instruction) {
  auto [entry, fresh] = constants_.emplace(instruction.literal().get(), 0);
  if (fresh) {
    Value value;
    value.kind = Value::Kind::kConstant;
    value.bytes = LeafBytes(instruction.shape());
    value.index = std::ssize(program_->constants);
    value.is_writable = false;
    value.name = instruction.name();
    program_->constants.push_back(instruction.literal().get());
    entry->second = NewValue(std::move(value));
  }
  return entry->second;
}

absl::StatusOr<Values> Lowering::LowerOp(const Instruction& instruction, const Environment& known,
                                         std::vector<Op>* ops) {
  Op op;
  op.instruction = &instruction;
  if (hlo::IsCollective(instruction.opcode())) {
    op.kind = Op::Kind::kCollective;
  } else if (IsLibraryOp(instruction)) {
    op.kind = Op::Kind::kLibrary;
  } else {
    std::string why;
    if (!CanEmit(instruction, &why)) {
      const absl::string_view reason = WhyNoCpuLowering(instruction.opcode());
      if (!reason.empty()) why = std::string(reason);
      return absl::UnimplementedError(absl::StrCat(Describe(instruction), ": no code for this on a CPU: ", why));
    }
  }
  for (const Instruction* operand : instruction.operands()) {
    const Values& leaves = known.at(operand);
    op.inputs.insert(op.inputs.end(), leaves.begin(), leaves.end());
  }
  for (const Shape* leaf : Leaves(instruction.shape())) op.outputs.push_back(Temporary(instruction, LeafBytes(*leaf)));
  op.may_share = MayShareMemory(instruction);
  Values outputs = op.outputs;
  ops->push_back(std::move(op));
  return outputs;
}

void Lowering::Moves(std::vector<std::pair<int, int>> moves, const Instruction& why, std::vector<Op>* ops) {
  std::erase_if(moves, [](const auto& move) { return move.first == move.second; });
  auto copy = [&](int from, int to) {
    Op op;
    op.kind = Op::Kind::kCopy;
    op.instruction = &why;
    op.inputs = {from};
    op.outputs = {to};
    op.may_share = {{0, 0}};
    ops->push_back(std::move(op));
  };
  absl::flat_hash_map<int, int> readers;  // How many pending moves still read a value.
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
    // What is left are cycles: one value of one steps aside.
    const int from = moves[0].first;
    const int aside = Temporary(why, program_->values[from].bytes);
    copy(from, aside);
    for (auto& move : moves) {
      if (move.first == from) move.first = aside;
    }
    readers[aside] = readers[from];
    readers[from] = 0;
  }
}

// The parameter leaf that a leaf of `instruction` is, looking through tuples; -1 where it is none.
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

absl::StatusOr<Values> Lowering::LowerWhile(const Instruction& loop, const Values& init, std::vector<Op>* ops) {
  const Computation& condition = *loop.called()[0];
  const Computation& body = *loop.called()[1];
  Values carried;
  std::vector<std::pair<int, int>> moves;
  for (int64_t i = 0; i < std::ssize(init); ++i) {
    const int from = init[i];
    if (ParameterLeaf(body.root(), i) == i) {  // The loop does not change it: no memory of its own.
      carried.push_back(from);
      continue;
    }
    carried.push_back(Temporary(loop, program_->values[from].bytes));
    moves.emplace_back(from, carried.back());
  }
  Moves(moves, loop, ops);
  Op op;
  op.kind = Op::Kind::kWhile;
  op.instruction = &loop;
  XLAD_ASSIGN_OR_RETURN(Values predicate, LowerComputation(condition, {carried}, &op.condition));
  op.predicate = predicate[0];
  op.bodies.emplace_back();
  XLAD_ASSIGN_OR_RETURN(Values next, LowerComputation(body, {carried}, &op.bodies[0]));
  moves.clear();
  for (size_t i = 0; i < next.size(); ++i) moves.emplace_back(next[i], carried[i]);
  Moves(moves, loop, &op.bodies[0]);
  ops->push_back(std::move(op));
  return carried;
}

absl::StatusOr<Values> Lowering::LowerConditional(const Instruction& conditional, const Environment& known,
                                                  std::vector<Op>* ops) {
  Op op;
  op.kind = Op::Kind::kIf;
  op.instruction = &conditional;
  op.inputs = known.at(conditional.operand(0));
  Values results;
  for (const Shape* leaf : Leaves(conditional.shape())) results.push_back(Temporary(conditional, LeafBytes(*leaf)));
  for (size_t b = 0; b < conditional.called().size(); ++b) {
    const Values& argument = known.at(conditional.operand(b + 1));
    op.bodies.emplace_back();
    XLAD_ASSIGN_OR_RETURN(Values branch, LowerComputation(*conditional.called()[b], {argument}, &op.bodies.back()));
    std::vector<std::pair<int, int>> moves;
    for (size_t i = 0; i < results.size(); ++i) moves.emplace_back(branch[i], results[i]);
    Moves(moves, conditional, &op.bodies.back());
  }
  ops->push_back(std::move(op));
  return results;
}

}  // namespace

absl::StatusOr<Program> Lower(const Module& module, const Donation& donation) {
  Program program;
  Lowering lowering(&program);
  std::vector<Values> arguments;
  int64_t leaf_number = 0;
  for (const Instruction* parameter : module.entry()->parameters()) {
    arguments.emplace_back();
    XLAD_RETURN_IF_ERROR(CheckSize(*parameter));
    for (const Shape* leaf : Leaves(parameter->shape())) {
      Value value;
      value.kind = Value::Kind::kParameter;
      value.bytes = LeafBytes(*leaf);
      value.index = leaf_number;
      value.is_writable = donation.parameter_is_donated[leaf_number++];
      value.name = parameter->name();
      arguments.back().push_back(lowering.NewValue(std::move(value)));
      program.parameters.push_back(arguments.back().back());
    }
  }
  XLAD_ASSIGN_OR_RETURN(Values roots, lowering.LowerComputation(*module.entry(), arguments, &program.ops));
  const Instruction& root = *module.entry()->root();
  std::vector<std::pair<int, int>> moves;
  for (size_t r = 0; r < roots.size(); ++r) {
    const int64_t parameter = donation.result_to_parameter[r];
    int target = -1;
    if (parameter >= 0) {
      target = program.parameters[parameter];
    } else {
      Value value;
      value.kind = Value::Kind::kResult;
      value.bytes = program.values[roots[r]].bytes;
      value.index = r;
      value.name = absl::StrCat("result ", r);
      target = lowering.NewValue(std::move(value));
    }
    program.results.push_back(target);
    moves.emplace_back(roots[r], target);
  }
  lowering.Moves(moves, root, &program.ops);
  double total = 0;  // Offsets are sums of some of these.
  for (const Value& value : program.values) total += static_cast<double>(value.bytes);
  if (total > 0x1p60) return absl::ResourceExhaustedError(absl::StrCat("the program's values take ", total, " bytes"));
  return program;
}

}  // namespace xlad::compiler
