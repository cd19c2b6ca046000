#include "sharding/import/library_calls.h"

#include <memory>
#include <utility>
#include <vector>

#include "hlo/analysis/lapack.h"

namespace xlad::sharding {
namespace {

using hlo::Instruction;
using hlo::Opcode;
using hlo::Shape;

// Adds the triangular-solve that is equivalent to a call of trsm, which solves A X = B or X A = B for X with a
// triangular A.
Instruction* Trsm(Instruction* call) {
  const auto flag = [&](absl::string_view name, char otherwise) {
    return tensor::LapackOption(call->attributes().backend_config, name, otherwise);
  };
  hlo::Attributes attributes;
  attributes.left_side = flag("side", 'L') == 'L';
  attributes.lower = flag("uplo", 'L') == 'L';
  attributes.unit_diagonal = flag("diag", 'N') == 'U';
  const char transpose = flag("trans_x", 'N');
  attributes.transpose_a = transpose == 'N' ? "NO_TRANSPOSE" : transpose == 'C' ? "ADJOINT" : "TRANSPOSE";
  auto made = std::make_unique<Instruction>(Opcode::kTriangularSolve,
                                            Shape(call->shape().type(), call->shape().dims()));
  made->mutable_attributes() = std::move(attributes);
  made->mutable_metadata() = call->metadata();
  made->set_place(call->line(), call->column());
  return call->parent()->Add(std::move(made), call->operands());
}

bool IsTrsm(const Instruction& instruction) {
  if (!hlo::IsLapackCall(instruction) || !instruction.shape().is_array()) return false;
  const absl::StatusOr<tensor::LapackCall> call = hlo::LapackCallOf(instruction);
  if (!call.ok() || call->routine != "trsm") return false;
  const bool left = tensor::LapackOption(instruction.attributes().backend_config, "side", 'L') == 'L';
  const int64_t ndim = instruction.shape().ndim();
  return instruction.operand(0)->shape().dims().back() == instruction.shape().dim(ndim - (left ? 2 : 1));
}

}  // namespace

void ReplaceLibraryCalls(hlo::Module* module) {
  std::vector<Instruction*> calls;
  for (const auto& computation : module->computations()) {
    for (const auto& instruction : computation->instructions()) {
      if (IsTrsm(*instruction)) calls.push_back(instruction.get());
      // The layouts and aliases describe the call on global arrays, and do not apply to the calls on shards.
      if (!hlo::IsLapackCall(*instruction)) continue;
      instruction->mutable_attributes().operand_layout_constraints.clear();
      instruction->mutable_attributes().output_operand_aliasing.clear();
    }
  }
  for (Instruction* call : calls) {
    Instruction* with = Trsm(call);
    call->ReplaceAllUsesWith(with);
    hlo::Computation* computation = with->parent();
    computation->SortTopologically();
    computation->RemoveDead();
  }
}

}  // namespace xlad::sharding
