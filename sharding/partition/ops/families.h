// The op families: which factors of an op may be split, and how its local form is emitted. One file per family; the
// table is in families.cc.
#pragma once

#include <vector>

#include "sharding/partition/local_builder.h"

namespace xlad::sharding {

// The family of an opcode. Opcodes without a family of their own run unchanged on local shapes.
const OpFamily& FamilyOf(hlo::Opcode opcode);

// Helpers that several families share.

// Marks the pass-through factors that both an operand and a result have.
std::vector<bool> SplitThrough(const hlo::Instruction& instruction, const OpRule& rule);
// Marks the factors of SplitThrough, and the reduction factors whose partial results a collective can reduce.
std::vector<bool> SplitThroughAndReduced(const hlo::Instruction& instruction, const OpRule& rule);
// The dimensions of operand `leaf` that have a split reduction factor.
Dims ReducedDims(const LocalOp& op, size_t leaf);
// The axes that split a dimension under an assignment.
AxisList AxesOf(const Assignment& assignment, const DimensionFactors& factors);
// Whether a scalar or array of one repeated scalar is a neutral start of `reduction`; see IsNeutralStart.
bool RepeatsNeutralStart(const hlo::Instruction& x, hlo::Opcode reduction);
// The local shape of the complete result: an array, or a tuple of the array leaves.
hlo::Shape LocalResultShape(const LocalOp& op);
// Sets the local instructions of the results to `result`, or to its elements if it is a tuple.
void SetResults(LocalBuilder& local, LocalOp& op, hlo::Instruction* result);

// The families, by file. `Halos` are the halos that an emit function fetches.
using Halos = std::vector<OperandHalo>;

// families.cc
absl::Status EmitSame(LocalBuilder& local, LocalOp& op);

// collectives.cc
absl::Status EmitCollective(LocalBuilder& local, LocalOp& op);

// convolution.cc
std::vector<bool> SplitConvolution(const hlo::Instruction& instruction, const OpRule& rule);
absl::Status EmitConvolution(LocalBuilder& local, LocalOp& op);
Halos ConvolutionHalos(const hlo::Instruction& instruction, const OpRule& rule, const Assignment& assignment);

// dot.cc
absl::Status EmitDot(LocalBuilder& local, LocalOp& op);
// The operands with zeros in the padding of dimensions that the op sums over.
std::vector<hlo::Instruction*> MaskedOperands(LocalBuilder& local, const LocalOp& op);

// dynamic_slice.cc
std::vector<bool> SplitDynamicSlice(const hlo::Instruction& instruction, const OpRule& rule);
absl::Status EmitDynamicSlice(LocalBuilder& local, LocalOp& op);
absl::Status EmitDynamicUpdateSlice(LocalBuilder& local, LocalOp& op);

// gather_scatter.cc
std::vector<bool> SplitGather(const hlo::Instruction& instruction, const OpRule& rule);
absl::Status EmitGather(LocalBuilder& local, LocalOp& op);
std::vector<bool> SplitScatter(const hlo::Instruction& instruction, const OpRule& rule);
absl::Status EmitScatter(LocalBuilder& local, LocalOp& op);

// moves.cc: slice, pad, reverse, concatenate
std::vector<bool> SplitMoving(const hlo::Instruction& instruction, const OpRule& rule);
absl::Status EmitPad(LocalBuilder& local, LocalOp& op);
Halos PadHalos(const hlo::Instruction& instruction, const OpRule& rule, const Assignment& assignment);
absl::Status EmitSlice(LocalBuilder& local, LocalOp& op);
Halos SliceHalos(const hlo::Instruction& instruction, const OpRule& rule, const Assignment& assignment);
absl::Status EmitReverse(LocalBuilder& local, LocalOp& op);
Halos ReverseHalos(const hlo::Instruction& instruction, const OpRule& rule, const Assignment& assignment);
absl::Status EmitConcatenate(LocalBuilder& local, LocalOp& op);
Halos ConcatenateHalos(const hlo::Instruction& instruction, const OpRule& rule, const Assignment& assignment);

// random_bits.cc
std::vector<bool> SplitRandomBits(const hlo::Instruction& instruction, const OpRule& rule);
absl::Status EmitRandomBits(LocalBuilder& local, LocalOp& op);

// reduce.cc
std::vector<bool> SplitReduce(const hlo::Instruction& instruction, const OpRule& rule);
absl::Status EmitReduce(LocalBuilder& local, LocalOp& op);

// reduce_window.cc
std::vector<bool> SplitReduceWindow(const hlo::Instruction& instruction, const OpRule& rule);
absl::Status EmitReduceWindow(LocalBuilder& local, LocalOp& op);
Halos ReduceWindowHalos(const hlo::Instruction& instruction, const OpRule& rule, const Assignment& assignment);

// reshape.cc
absl::Status EmitReshape(LocalBuilder& local, LocalOp& op);
std::vector<RaggedDim> RaggedDims(const hlo::Instruction& reshape, const OpRule& rule, const Assignment& assignment,
                                  const TensorSharding& from, const TensorSharding& wanted);

// select_and_scatter.cc
std::vector<bool> SplitSelectAndScatter(const hlo::Instruction& instruction, const OpRule& rule);
absl::Status EmitSelectAndScatter(LocalBuilder& local, LocalOp& op);
Halos SelectAndScatterHalos(const hlo::Instruction& instruction, const OpRule& rule, const Assignment& assignment);

// sources.cc: iota, constant
absl::Status EmitIota(LocalBuilder& local, LocalOp& op);
absl::Status EmitConstant(LocalBuilder& local, LocalOp& op);

}  // namespace xlad::sharding
