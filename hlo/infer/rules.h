// The rules of shape inference: one function per opcode or group of similar opcodes, one file per family, and their
// common helpers. Internal to inference and the verifier.
//
// InferShape checks the operand count against Arity(opcode) before it calls a rule. The rule of a variadic opcode must
// check the count itself. Rules ignore layouts.
#pragma once

#include <string>

#include "base/containers.h"
#include "base/counted.h"
#include "base/status.h"
#include "hlo/infer/group_ids.h"
#include "hlo/module.h"

namespace xlad::hlo {

using Inferred = absl::StatusOr<Shape>;

// The maximum number of shapes in the tree of a tuple (Shape::part_count).
constexpr int64_t kMaxShapeParts = 1 << 16;

// Returns InvalidArgument "found F, expected E [label]".
absl::Status Violation(absl::string_view label, absl::string_view found, absl::string_view expected);

// Short texts for messages: shapes without layouts, at most 160 characters; numbers as "{2,3}", at most 16.
std::string Brief(const Shape& shape);
std::string Brief(absl::Span<const int64_t> numbers);
std::string Setting(absl::string_view name, absl::string_view value);  // "kind=kLoop", "no kind"

int KindOf(ElementType type);  // The bit of TypeSet for a type.
std::string TypeSetName(int set);  // "element type float or complex"

// Checks that operand i is an array of a type in `set`.
absl::Status ExpectArray(const Instruction& instruction, int64_t i, int set = kAnyType);
absl::Status ExpectArrays(const Instruction& instruction);  // Checks all operands.
absl::Status ExpectOperandCount(const Instruction& instruction, int64_t minimum);
// Checks that the operands of a reduction are N >= 1 arrays and then N initial values.
absl::Status ExpectInputsAndInits(const Instruction& instruction);
// Checks that the instruction's own shape is an array. Rules of opcodes whose ShapeSource is kGiven need this.
absl::Status ExpectArrayResult(const Instruction& instruction);
// Checks that `dimensions` are distinct and in [0, ndim).
absl::Status ExpectDimensions(absl::string_view label, absl::Span<const int64_t> dimensions, int64_t ndim);
absl::Status ExpectDimension(absl::string_view label, int64_t dimension, int64_t ndim);

// The shape without layouts.
inline Shape Plain(Shape shape) {
  shape.clear_layout();
  return shape;
}

// The shape of an instruction with results of these shapes: the only shape, or a tuple of several shapes.
Shape OneOrTuple(std::vector<Shape> shapes);

// The parameters and the result of a computation.
struct Signature {
  std::string name;
  std::vector<const Shape*> parameters;  // Shapes with layouts, owned by the module.
  Shape result;                          // The result shape without layouts.
};
// The signature of called computation number `i`. A missing root or parameter is an error.
absl::StatusOr<Signature> SignatureOf(const Instruction& instruction, size_t i);
absl::Status ExpectCalled(const Instruction& instruction, int64_t count);
// Checks that the parameters of the called computation have the shapes of `arguments`.
absl::Status ExpectTakes(absl::string_view label, const Signature& signature,
                         const std::vector<const Shape*>& arguments);
std::vector<const Shape*> Pointers(const std::vector<Shape>& shapes);
std::vector<const Shape*> OperandShapes(const Instruction& instruction);

// Checks the reducer of N inputs, which must have 2N scalar parameters and N scalar results. The first N parameters and
// the results must have the element types of the initial values, and the last N parameters those of the inputs. Any two
// floating-point types match each other.
absl::Status ExpectReducer(const Instruction& instruction, size_t called, const std::vector<ElementType>& inputs,
                           const std::vector<ElementType>& inits);

// Checks that a tuple of these elements has at most kMaxShapeParts parts. Inferred shapes could otherwise double in
// size with every instruction.
absl::Status ExpectFewParts(const std::vector<const Shape*>& elements);

// The number of positions that a window takes in each dimension of `dims`. `window` has one entry per dimension.
absl::StatusOr<Dims> WindowedDims(absl::Span<const int64_t> dims, const Window& window);

// The number of devices in each group of a collective, or 0 if neither the groups nor the module's header determine it.
int64_t GroupSize(const Instruction& instruction);

// infer/elementwise.cc
Inferred InferUnary(const Instruction& i);
Inferred InferConvert(const Instruction& i);
Inferred InferBitcastConvert(const Instruction& i);
Inferred InferBinary(const Instruction& i);
Inferred InferComplex(const Instruction& i);
Inferred InferCompare(const Instruction& i);
Inferred InferStochasticConvert(const Instruction& i);
Inferred InferClamp(const Instruction& i);
Inferred InferSelect(const Instruction& i);
// infer/shape.cc
Inferred InferBitcast(const Instruction& i);
Inferred InferBroadcast(const Instruction& i);
Inferred InferReshape(const Instruction& i);
Inferred InferTranspose(const Instruction& i);
Inferred InferSlice(const Instruction& i);
Inferred InferReverse(const Instruction& i);
Inferred InferDynamicSlice(const Instruction& i);
Inferred InferDynamicUpdateSlice(const Instruction& i);
Inferred InferConcatenate(const Instruction& i);
Inferred InferDynamicReshape(const Instruction& i);
Inferred InferPad(const Instruction& i);
Inferred InferIota(const Instruction& i);
Inferred InferConstant(const Instruction& i);
Inferred InferGetDimensionSize(const Instruction& i);
Inferred InferSetDimensionSize(const Instruction& i);
// infer/gather.cc
Inferred InferGather(const Instruction& i);
Inferred InferScatter(const Instruction& i);
// infer/dot.cc
Inferred InferDot(const Instruction& i);
Inferred InferRaggedDot(const Instruction& i);
Inferred InferScaledDot(const Instruction& i);
// infer/window.cc
Inferred InferConvolution(const Instruction& i);
Inferred InferReduceWindow(const Instruction& i);
Inferred InferSelectAndScatter(const Instruction& i);
// infer/reduce.cc
Inferred InferReduce(const Instruction& i);
Inferred InferScan(const Instruction& i);
Inferred InferSort(const Instruction& i);
Inferred InferMap(const Instruction& i);
Inferred InferTopk(const Instruction& i);
// infer/linalg.cc
Inferred InferFft(const Instruction& i);
Inferred InferCholesky(const Instruction& i);
Inferred InferTriangularSolve(const Instruction& i);
Inferred InferBatchNormTraining(const Instruction& i);
Inferred InferBatchNormInference(const Instruction& i);
Inferred InferBatchNormGrad(const Instruction& i);
Inferred InferRng(const Instruction& i);
Inferred InferRngBitGenerator(const Instruction& i);
Inferred InferRngGetAndUpdateState(const Instruction& i);
// infer/control.cc
Inferred InferParameter(const Instruction& i);
Inferred InferTuple(const Instruction& i);
Inferred InferGetTupleElement(const Instruction& i);
Inferred InferSameAsOperand(const Instruction& i);
Inferred InferCall(const Instruction& i);
Inferred InferConditional(const Instruction& i);
Inferred InferWhile(const Instruction& i);
Inferred InferCustomCall(const Instruction& i);
Inferred InferAfterAll(const Instruction& i);
Inferred InferAddDependency(const Instruction& i);
Inferred InferInfeed(const Instruction& i);
Inferred InferOutfeed(const Instruction& i);
Inferred InferSend(const Instruction& i);
Inferred InferSendDone(const Instruction& i);
Inferred InferRecv(const Instruction& i);
Inferred InferRecvDone(const Instruction& i);
Inferred InferCopyStart(const Instruction& i);
Inferred InferCopyDone(const Instruction& i);
Inferred InferAsyncStart(const Instruction& i);
Inferred InferAsyncUpdate(const Instruction& i);
Inferred InferAsyncDone(const Instruction& i);
// infer/collective.cc
Inferred InferDeviceId(const Instruction& i);
Inferred InferAllReduce(const Instruction& i);
Inferred InferReduceScatter(const Instruction& i);
Inferred InferAllGather(const Instruction& i);
Inferred InferAllGatherStart(const Instruction& i);
Inferred InferAllGatherDone(const Instruction& i);
Inferred InferAllToAll(const Instruction& i);
Inferred InferRaggedAllToAll(const Instruction& i);
Inferred InferCollectivePermute(const Instruction& i);
Inferred InferCollectivePermuteStart(const Instruction& i);
Inferred InferCollectivePermuteDone(const Instruction& i);
Inferred InferCollectiveBroadcast(const Instruction& i);

}  // namespace xlad::hlo
