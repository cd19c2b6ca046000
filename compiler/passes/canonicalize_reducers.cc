// Replaces equal reducers with a single computation, so that later passes can compare reducers by pointer.
//
// Needs: no layouts. Leaves: every reduce, reduce-window, scatter, all-reduce and reduce-scatter whose reducer is a
// single scalar operation calls the module's one computation for this operation and element type.
#include "compiler/analysis/clone.h"
#include "compiler/passes/passes.h"
#include "hlo/build/builder.h"

namespace xlad::compiler {
namespace {

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
    for (Instruction* instruction : Snapshot(*computation)) CanonicalizeReducer(instruction);
  }
  FinishEdits(&module);
  return absl::OkStatus();
}

}  // namespace xlad::compiler
