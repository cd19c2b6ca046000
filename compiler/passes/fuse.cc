// Fusion: several instructions become one loop over memory.
//
// Needs: simplified step computations without opt-barriers. Leaves: `fusion` instructions with the properties that
// CanEmit requires (compiler/kernel/object_emitter.h). Every other instruction is a kernel, library op, collective or
// control flow by itself. Scalar constants are in the fusions that use them. fusion_groups.h decides what is fused.
#include "compiler/passes/passes.h"

#include <algorithm>

#include "compiler/analysis/clone.h"
#include "compiler/analysis/step_computations.h"
#include "compiler/passes/fusion_groups.h"
#include "hlo/build/builder.h"

namespace xlad::compiler {
namespace {

// Copies the members of a group into the fused computation.
class FusedComputation {
 public:
  FusedComputation(const FusionGroup& group, Computation* fused) : group_(group), fused_(fused) {}

  // Copies `start` and all members on which it depends, operands first. Values from outside of the group become
  // parameters. The function is iterative, because chains of members may be too long for recursion.
  Instruction* Copy(Instruction* start) {
    std::vector<Instruction*> pending = {start};
    while (!pending.empty()) {
      Instruction* at = pending.back();
      if (copies_.contains(at)) {
        pending.pop_back();
        continue;
      }
      const bool inside = group_.maps.contains(at);
      bool ready = true;
      for (Instruction* operand : at->operands()) {
        if (!inside || copies_.contains(operand)) continue;
        pending.push_back(operand);
        ready = false;
      }
      if (!ready) continue;
      pending.pop_back();
      copies_[at] = inside ? CopyMember(*at) : AddFusedParameter(at, fused_, &operands_);
    }
    return copies_.at(start);
  }
  // The operands of the fusion instruction, in the order of the parameters.
  const std::vector<Instruction*>& operands() const { return operands_; }

 private:
  Instruction* CopyMember(const Instruction& member) {
    std::vector<Instruction*> operands;
    for (const Instruction* operand : member.operands()) operands.push_back(copies_.at(operand));
    return CloneWithOperands(member, operands, fused_);
  }

  const FusionGroup& group_;
  Computation* fused_;
  absl::flat_hash_map<const Instruction*, Instruction*> copies_;
  std::vector<Instruction*> operands_;
};

// Adds the fusion instruction of a group. The fusion gets the metadata of the first root.
Instruction* AddFusion(const FusionGroup& group, Computation* computation) {
  Module* module = computation->parent();
  Computation* fused = module->Add(std::make_unique<Computation>("fused_computation"));
  fused->set_is_fusion(true);
  FusedComputation members(group, fused);
  std::vector<Instruction*> roots;
  bool reduces = false;
  for (Instruction* root : group.roots) {
    roots.push_back(members.Copy(root));
    reduces = reduces || root->opcode() == Opcode::kReduce;
  }
  return computation->Add(MakeFusion(fused, roots, "fusion", reduces ? "kInput" : "kLoop", *group.roots[0]),
                          members.operands());
}

void FuseIn(Computation* computation) {
  FusionPlanner planner(*computation);
  for (const FusionGroup& group : planner.groups()) {
    if (group.maps.size() < 2) continue;
    Instruction* fusion = AddFusion(group, computation);
    if (group.roots.size() == 1) {
      group.roots[0]->ReplaceAllUsesWith(fusion);
      continue;
    }
    hlo::Builder builder(computation);
    for (size_t i = 0; i < group.roots.size(); ++i) {
      group.roots[i]->ReplaceAllUsesWith(builder.GetTupleElement(fusion, i));
    }
  }
  FinishEdits(computation);
}

}  // namespace

absl::Status Fuse(hlo::Module& module, PassContext&) {
  for (Computation* computation : StepComputations(module)) FuseIn(computation);
  FinishEdits(&module);
  return absl::OkStatus();
}

}  // namespace xlad::compiler
