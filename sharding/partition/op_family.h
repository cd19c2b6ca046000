// One op with its operands as its assignment asks for them; a family writes the local instructions.
#pragma once

#include <string>
#include <vector>

#include "sharding/partition/assignment.h"
#include "sharding/partition/emitter.h"

namespace xlad::sharding {

struct LocalOp {
  const hlo::Instruction* source = nullptr;
  const OpRule* rule = nullptr;
  const Assignment* assignment = nullptr;
  std::vector<LocalArray> operands;  // A leaf each, resharded.
  std::vector<LocalArray> results;   // A leaf each; shardings set (partial sums unreduced), `local` for the family.
};

// How the ops of an opcode are partitioned.
struct OpFamily {
  // Which factors of the rule may be split; those that need replication or a halo never are.
  std::vector<bool> (*splittable)(const hlo::Instruction&, const OpRule&);
  // Sets results[i].local. Operands may have garbage in their padding.
  absl::Status (*emit)(Emitter&, LocalOp&);
};

// The family of an opcode; opcodes whose local form is the same instruction on local shapes have a common one.
const OpFamily& FamilyOf(hlo::Opcode opcode);

// The local shape of an array: ceil(size / shards) in every dimension.
hlo::Shape LocalShape(const LocalArray& array);
// Enters a local instruction, array or tuple, as the results' locals.
void SetResults(Emitter& emitter, LocalOp& op, hlo::Instruction* local);
// The operands' local instructions.
std::vector<hlo::Instruction*> Locals(const std::vector<LocalArray>& arrays);
// The shape of all results together: an array, or a tuple like the source's.
hlo::Shape LocalResultShape(const LocalOp& op);

// The identity of a reduction, as a scalar constant; nullptr where the opcode or type has none.
hlo::Instruction* IdentityOf(Emitter& emitter, hlo::Opcode reduction, tensor::ElementType type);

bool HasIdentity(hlo::Opcode reduction, tensor::ElementType type);

// Pass-through factors that an operand and a result have; and reduction factors whose reduction is one binary opcode.
std::vector<bool> SplitThroughAndReduced(const hlo::Instruction& instruction, const OpRule& rule);
std::vector<bool> SplitThrough(const hlo::Instruction& instruction, const OpRule& rule);

// Dimensions of operand `leaf` that have a split reduction factor.
Dims ReducedDims(const LocalOp& op, size_t leaf);

// The families' emit functions.
absl::Status EmitSame(Emitter& emitter, LocalOp& op);              // local_op.cc
absl::Status EmitSlice(Emitter& emitter, LocalOp& op);             // slices.cc
absl::Status EmitDynamicSlice(Emitter& emitter, LocalOp& op);      // slices.cc
absl::Status EmitDynamicUpdateSlice(Emitter& emitter, LocalOp& op);  // slices.cc
absl::Status EmitDot(Emitter& emitter, LocalOp& op);               // dot.cc
absl::Status EmitReduce(Emitter& emitter, LocalOp& op);            // reduce.cc
absl::Status EmitIota(Emitter& emitter, LocalOp& op);              // sources.cc
absl::Status EmitConstant(Emitter& emitter, LocalOp& op);          // sources.cc
absl::Status EmitGather(Emitter& emitter, LocalOp& op);            // gather_scatter.cc
absl::Status EmitScatter(Emitter& emitter, LocalOp& op);           // gather_scatter.cc
absl::Status EmitCollective(Emitter& emitter, LocalOp& op);        // manual.cc
std::vector<bool> SplitGather(const hlo::Instruction& instruction, const OpRule& rule);
std::vector<bool> SplitScatter(const hlo::Instruction& instruction, const OpRule& rule);
absl::Status EmitConvolution(Emitter& emitter, LocalOp& op);       // dot.cc
std::vector<bool> SplitConvolution(const hlo::Instruction& instruction, const OpRule& rule);
std::vector<bool> SplitReduce(const hlo::Instruction& instruction, const OpRule& rule);

}  // namespace xlad::sharding
