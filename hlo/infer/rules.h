// Inside shape inference: one function an opcode (or group of alike ones), a file a family, and what they share.
//
// A rule may index operands below Arity(opcode) (InferShape has counted them); a rule of a variadic opcode counts
// itself. Rules compare without layouts.
#pragma once

#include <string>

#include "base/status.h"
#include "hlo/module.h"

namespace xlad::hlo {

using Inferred = absl::StatusOr<Shape>;

// Parts (tuples and what is in them) of the largest shape that passes.
constexpr int64_t kMaxShapeParts = int64_t{1} << 16;

// "found F, expected E [label]".
absl::Status Violation(absl::string_view label, absl::string_view found, absl::string_view expected);

// Short texts for messages: shapes without layouts and cut where they are very long; numbers as "{2,3}".
std::string Brief(const Shape& shape);
std::string Brief(absl::Span<const int64_t> numbers);
std::string Setting(absl::string_view name, absl::string_view value);  // "kind=kLoop", "no kind"
std::string Counted(int64_t count, absl::string_view what);            // "1 operand", "2 operands"

// Element types by kind, as a set.
enum TypeSet : int {
  kPreds = 1,
  kSigneds = 2,
  kUnsigneds = 4,
  kFloats = 8,
  kComplexes = 16,
  kIntegers = kSigneds | kUnsigneds,
  kNumbers = kIntegers | kFloats | kComplexes,
  kAnyType = kNumbers | kPreds,
};
int KindOf(ElementType type);
std::string TypeSetName(int set);          // "element type float or complex"
ElementType RealPartOf(ElementType type);  // c64 -> f32; real types as they are.

// Operand i is an array (of a type in `set`).
absl::Status ExpectArray(const Instruction& instruction, int64_t i, int set = kAnyType);
absl::Status ExpectArrays(const Instruction& instruction);  // All operands.
absl::Status ExpectOperandCount(const Instruction& instruction, int64_t minimum);
// The instruction's own shape is an array; for rules of ShapeSource::kGiven.
absl::Status ExpectArrayResult(const Instruction& instruction);
// Distinct and in [0, ndim).
absl::Status ExpectDimensions(absl::string_view label, absl::Span<const int64_t> dimensions, int64_t ndim);
absl::Status ExpectDimension(absl::string_view label, int64_t dimension, int64_t ndim);

// `shapes` as the result of an opcode with as many results: the shape itself where it is one, else a tuple.
Shape OneOrTuple(std::vector<Shape> shapes);
bool Contains(absl::Span<const int64_t> list, int64_t value);

// Called computation `i` as a function. A missing root or parameter is an error here.
struct Signature {
  std::string name;
  std::vector<const Shape*> parameters;  // With layouts; live as long as the module.
  Shape result;                          // Without.
};
absl::StatusOr<Signature> SignatureOf(const Instruction& instruction, size_t i);
absl::Status ExpectCalled(const Instruction& instruction, int64_t count);
// The called computation `i` takes `arguments`.
absl::Status ExpectTakes(absl::string_view label, const Signature& signature,
                         const std::vector<const Shape*>& arguments);
std::vector<const Shape*> Pointers(const std::vector<Shape>& shapes);
std::vector<const Shape*> OperandShapes(const Instruction& instruction, int64_t first = 0);

// (x, ...) combined by a reducer: `parameters` 2N scalars, N results; element types from `inits`, inputs of the types
// in `inputs` (float widths may differ from the accumulator's).
absl::Status ExpectReducer(const Instruction& instruction, size_t called, const std::vector<ElementType>& inputs,
                           const std::vector<ElementType>& inits);

// The parts of a tuple, itself included, are few enough to be copied along; shapes that nobody wrote may double.
absl::Status ExpectFewParts(const std::vector<const Shape*>& elements);

// Sizes after a window has moved over `dims`; one entry of `window` a dimension.
absl::StatusOr<Dims> WindowedDims(absl::Span<const int64_t> dims, const Window& window);

// What the numbers in a collective's replica groups (or source-target pairs) are, which its channel id and
// use_global_device_ids say.
enum class GroupIds { kReplica, kPartition, kReplicaAllPartitions, kGlobal };
GroupIds IdsOf(const Instruction& instruction);

// How many devices take part in each group of a collective; 0 where neither groups nor header say so.
int64_t GroupSize(const Instruction& instruction);

// infer_elementwise.cc
Inferred InferUnary(const Instruction& i);
Inferred InferConvert(const Instruction& i);
Inferred InferBitcastConvert(const Instruction& i);
Inferred InferBinary(const Instruction& i);
Inferred InferComplex(const Instruction& i);
Inferred InferCompare(const Instruction& i);
Inferred InferStochasticConvert(const Instruction& i);
Inferred InferClamp(const Instruction& i);
Inferred InferSelect(const Instruction& i);
// infer_shape.cc
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
// infer_gather.cc
Inferred InferGather(const Instruction& i);
Inferred InferScatter(const Instruction& i);
// infer_dot.cc
Inferred InferDot(const Instruction& i);
Inferred InferRaggedDot(const Instruction& i);
Inferred InferScaledDot(const Instruction& i);
// infer_window.cc
Inferred InferConvolution(const Instruction& i);
Inferred InferReduceWindow(const Instruction& i);
Inferred InferSelectAndScatter(const Instruction& i);
// infer_reduce.cc
Inferred InferReduce(const Instruction& i);
Inferred InferScan(const Instruction& i);
Inferred InferSort(const Instruction& i);
Inferred InferMap(const Instruction& i);
Inferred InferTopk(const Instruction& i);
// infer_linalg.cc
Inferred InferFft(const Instruction& i);
Inferred InferCholesky(const Instruction& i);
Inferred InferTriangularSolve(const Instruction& i);
Inferred InferBatchNormTraining(const Instruction& i);
Inferred InferBatchNormInference(const Instruction& i);
Inferred InferBatchNormGrad(const Instruction& i);
Inferred InferRng(const Instruction& i);
Inferred InferRngBitGenerator(const Instruction& i);
Inferred InferRngGetAndUpdateState(const Instruction& i);
// infer_control.cc
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
// infer_collective.cc
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
