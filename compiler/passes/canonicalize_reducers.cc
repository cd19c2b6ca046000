// Replaces equal reducers with a single computation, so that later passes can compare reducers by pointer. Also inserts
// explicit conversions into reducers that compute in floats of a different width than the arrays.
//
// Needs: no layouts. Leaves: the parameters and results of reducers of reduce, reduce-window, scatter and
// select-and-scatter have the element types of the arrays. Every reduce, reduce-window, scatter, all-reduce and
// reduce-scatter whose reducer is a single scalar operation calls the module's one computation for this operation and
// element type.
#include "compiler/analysis/clone.h"
#include "compiler/passes/passes.h"
#include "hlo/build/builder.h"

namespace xlad::compiler {
namespace {

// The operands of an instruction that are the initial values of its results, and those that the reducer adds to them.
struct ReducedOperands {
  int64_t count = 0, results = 0, inputs = 0;  // The number of each, and the positions of the first of each.
};

ReducedOperands OperandsOf(const Instruction& instruction) {
  const int64_t count = instruction.operand_count() / 2;
  switch (instruction.opcode()) {
    case Opcode::kReduce:
    case Opcode::kReduceWindow:
      return {count, /*results=*/count, /*inputs=*/0};
    case Opcode::kScatter:
      return {count, /*results=*/0, /*inputs=*/count + 1};
    case Opcode::kSelectAndScatter:
      return {1, /*results=*/2, /*inputs=*/1};
    default:
      return {};
  }
}

// The reducer with parameters and results of the element types `results`. The types of its inputs remain.
Computation* WithResultTypes(const Computation& reducer, const std::vector<ElementType>& results) {
  auto* made = reducer.parent()->Add(std::make_unique<Computation>(reducer.name()));
  hlo::Builder builder(made);
  std::vector<Instruction*> arguments;
  for (const Instruction* parameter : reducer.parameters()) {
    const ElementType own = parameter->shape().type();
    const bool is_result = arguments.size() < results.size();
    Instruction* argument =
        builder.Parameter(parameter->number(), Shape(is_result ? results[arguments.size()] : own, {}));
    arguments.push_back(builder.ConvertTo(own, argument));
  }
  Instruction* root = InlineInto(reducer, arguments, made);
  if (!root->shape().is_tuple()) {
    made->set_root(builder.ConvertTo(results[0], root));
    return made;
  }
  std::vector<Instruction*> parts;
  for (int64_t i = 0; i < std::ssize(results); ++i) {
    parts.push_back(builder.ConvertTo(results[i], builder.GetTupleElement(root, i)));
  }
  made->set_root(builder.Tuple(parts));
  return made;
}

// Returns whether the instruction changed.
bool MatchTypes(Instruction* instruction) {
  const ReducedOperands operands = OperandsOf(*instruction);
  if (operands.count == 0) return false;
  Computation*& reducer = instruction->mutable_called().back();
  hlo::Builder builder(instruction->parent());
  builder.set_template(instruction);
  bool changed = false;
  std::vector<ElementType> results;
  bool same = true;
  const Shape& root = reducer->root()->shape();
  for (int64_t i = 0; i < operands.count; ++i) {
    // Conversions of the inputs can become a part of the kernels that compute them.
    Instruction* input = instruction->operand(operands.inputs + i);
    const ElementType type = reducer->parameter(operands.count + i)->shape().type();
    if (input->shape().type() != type) {
      instruction->ReplaceOperand(operands.inputs + i, builder.Convert(type, input));
      changed = true;
    }
    results.push_back(instruction->operand(operands.results + i)->shape().type());
    const Shape& result = root.is_tuple() ? root.tuple()[i] : root;
    same = same && reducer->parameter(i)->shape().type() == results.back() && result.type() == results.back();
  }
  if (!same) reducer = WithResultTypes(*reducer, results);
  return changed || !same;
}

void CanonicalizeReducer(Instruction* instruction) {
  switch (instruction->opcode()) {
    case Opcode::kReduce:
    case Opcode::kReduceWindow:
    case Opcode::kAllReduce:
    case Opcode::kReduceScatter:
    case Opcode::kScatter:
      break;
    default:
      return;
  }
  Computation*& callee = instruction->mutable_called()[0];
  std::optional<Opcode> opcode = hlo::ReducerOpcode(*callee);
  if (!opcode.has_value()) return;
  callee = hlo::ScalarReducer(instruction->parent()->parent(), *opcode, callee->root()->shape().type());
}

}  // namespace

absl::Status CanonicalizeReducers(hlo::Module& module, PassContext&) {
  std::vector<Computation*> all;  // The list is copied, because adding a reducer changes the module's computations.
  for (const auto& computation : module.computations()) all.push_back(computation.get());
  for (Computation* computation : all) {
    bool changed = false;
    for (Instruction* instruction : Snapshot(*computation)) {
      changed = MatchTypes(instruction) || changed;
      CanonicalizeReducer(instruction);
    }
    if (changed) FinishEdits(computation);
  }
  FinishEdits(&module);
  return absl::OkStatus();
}

}  // namespace xlad::compiler
