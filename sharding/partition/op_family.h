// One op with its operands as its assignment asks for them; a family writes the local instructions.
#pragma once

#include <string>
#include <vector>

#include "sharding/partition/assignment.h"
#include "sharding/partition/emitter.h"
#include "sharding/partition/halo_plan.h"

namespace xlad::sharding {

// A dimension that a reshape joins with minor ones or parts from them, split where sizes do not divide.
struct RaggedDim {
  size_t operand = 0, result = 0;
};

struct LocalOp {
  const hlo::Instruction* source = nullptr;
  const OpRule* rule = nullptr;
  const Assignment* assignment = nullptr;
  std::vector<LocalArray> operands;  // A leaf each, resharded.
  std::vector<LocalArray> sliced;    // Of a concatenation, by operand: what a slice is of; `local` null at others.
  std::vector<RaggedDim> ragged;     // Of a reshape.
  std::vector<LocalArray> results;   // A leaf each; shardings set (partial sums unreduced), `local` for the family.
};

// A dimension of an operand (resharded, split over the axes that its assignment gives) of which every shard wants
// indices that others hold.
struct OperandHalo {
  size_t operand = 0;
  int64_t dim = 0;
  HaloNeed need;
};

// How the ops of an opcode are partitioned.
struct OpFamily {
  // Which factors of the rule may be split.
  std::vector<bool> (*splittable)(const hlo::Instruction&, const OpRule&);
  // Sets results[i].local. Operands may have garbage in their padding.
  absl::Status (*emit)(Emitter&, LocalOp&);
  // What emit will fetch under an assignment; nullptr: nothing. For the price.
  std::vector<OperandHalo> (*halos)(const hlo::Instruction&, const OpRule&, const Assignment&) = nullptr;
};

// The bytes that a device sends for the halos of an assignment.
double HaloBytes(const hlo::Instruction& instruction, const OpRule& rule, const Assignment& assignment);
// The axes over which an assignment splits a dimension.
AxisList AxesOf(const Assignment& assignment, const DimensionFactors& factors);

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
std::vector<hlo::Instruction*> MaskedOperands(Emitter& emitter, const LocalOp& op);  // dot.cc

absl::Status EmitReshape(Emitter& emitter, LocalOp& op);  // reshape.cc
// Dimensions of a reshape that the assignment leaves whole because they do not divide, split over the same axes in the
// operand as it lies and the result as it is wanted.
std::vector<RaggedDim> RaggedDims(const hlo::Instruction& reshape, const OpRule& rule, const Assignment& assignment,
                                  const TensorSharding& from, const TensorSharding& wanted);

// Families with halos, by the file of their emit function.
using Halos = std::vector<OperandHalo>;
std::vector<bool> SplitConvolution(const hlo::Instruction& instruction, const OpRule& rule);  // convolution.cc
absl::Status EmitConvolution(Emitter& emitter, LocalOp& op);
Halos ConvolutionHalos(const hlo::Instruction& instruction, const OpRule& rule, const Assignment& assignment);
std::vector<bool> SplitReduceWindow(const hlo::Instruction& instruction, const OpRule& rule);  // reduce_window.cc
absl::Status EmitReduceWindow(Emitter& emitter, LocalOp& op);
Halos ReduceWindowHalos(const hlo::Instruction& instruction, const OpRule& rule, const Assignment& assignment);
std::vector<bool> SplitSelectAndScatter(const hlo::Instruction& instruction, const OpRule& rule);
absl::Status EmitSelectAndScatter(Emitter& emitter, LocalOp& op);  // select_and_scatter.cc
Halos SelectAndScatterHalos(const hlo::Instruction& instruction, const OpRule& rule, const Assignment& assignment);
std::vector<bool> SplitMoving(const hlo::Instruction& instruction, const OpRule& rule);  // moves.cc
absl::Status EmitPad(Emitter& emitter, LocalOp& op);
Halos PadHalos(const hlo::Instruction& instruction, const OpRule& rule, const Assignment& assignment);
absl::Status EmitSlice(Emitter& emitter, LocalOp& op);
Halos SliceHalos(const hlo::Instruction& instruction, const OpRule& rule, const Assignment& assignment);
absl::Status EmitReverse(Emitter& emitter, LocalOp& op);
Halos ReverseHalos(const hlo::Instruction& instruction, const OpRule& rule, const Assignment& assignment);
// Whether it is a slice along `dim` alone, with stride 1.
bool IsSliceAlong(const hlo::Instruction& op, int64_t dim);
absl::Status EmitConcatenate(Emitter& emitter, LocalOp& op);
Halos ConcatenateHalos(const hlo::Instruction& instruction, const OpRule& rule, const Assignment& assignment);
std::vector<bool> SplitReduce(const hlo::Instruction& instruction, const OpRule& rule);

}  // namespace xlad::sharding
