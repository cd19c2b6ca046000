#include "compiler/analysis/kernel_cost.h"

#include <algorithm>
#include <limits>

#include "compiler/analysis/flops.h"
#include "compiler/analysis/library_op.h"
#include "compiler/analysis/op_cost.h"
#include "hlo/analysis/counts.h"
#include "hlo/analysis/leaves.h"

namespace xlad::compiler {
namespace {

using hlo::Instruction;
using hlo::Opcode;

// Shorter kernels have one tile, because starting and joining threads costs about two microseconds.
constexpr double kMinNsOfTiled = 12000;
constexpr double kNsOfTile = 3000;
constexpr int64_t kMaxTiles = 1024;

// Nanoseconds on one core: for one element in vectorized code, and for one byte of memory.
constexpr double kNsOfCheap = 0.03, kNsOfExpensive = 0.3, kNsOfByte = 0.04;
// Nanoseconds for one element in code that is not vectorized.
constexpr double kNsOfScalar = 2;

double NsOf(const Instruction& instruction) {
  const double elements = static_cast<double>(hlo::ElementsOfLargestLeaf(instruction.shape()));
  switch (instruction.opcode()) {
    case Opcode::kParameter:
    case Opcode::kTuple:
    case Opcode::kGetTupleElement:
      return 0;
    case Opcode::kReduce:
      return kNsOfCheap * static_cast<double>(instruction.operand(0)->shape().elements());
    case Opcode::kReduceWindow:
      return kNsOfScalar * elements * hlo::WindowElements(instruction);
    case Opcode::kDot:
    case Opcode::kRaggedDot:
      return kNsOfScalar * elements * hlo::ContractedElements(instruction);
    case Opcode::kConvolution:
      return kNsOfScalar / 2 * FlopsOf(instruction);  // A multiplication and an addition for each element.
    case Opcode::kSort:
    case Opcode::kTopk:
      return 20 * kNsOfScalar * static_cast<double>(instruction.operand(0)->shape().elements());
    case Opcode::kSelectAndScatter:  // Each element of the source selects one element of its window.
      return kNsOfScalar * static_cast<double>(instruction.operand(1)->shape().elements()) *
             hlo::WindowElements(instruction);
    case Opcode::kScatter:
      return kNsOfScalar *
             static_cast<double>(instruction.operand(instruction.operand_count() - 1)->shape().elements());
    case Opcode::kRngBitGenerator:
      return kNsOfScalar * elements;
    default:
      break;
  }
  const OpCost cost = CostOf(instruction);
  if (cost == OpCost::kFree) return 0;
  return elements * (cost == OpCost::kCheap ? kNsOfCheap : kNsOfExpensive);
}

// An estimate of the largest number of elements that a kernel reads of one operand. The operand may have more elements:
// a gather or dynamic-slice reads only a small part of a large operand.
double ElementsRead(const Instruction& root) {
  double elements = static_cast<double>(hlo::ElementsOfLargestLeaf(root.shape()));
  // A strided reduce-window may read more elements than it produces.
  const auto count_reduced = [&](const Instruction& reduce) {
    if (reduce.opcode() != Opcode::kReduce && reduce.opcode() != Opcode::kReduceWindow) return;
    for (const Instruction* operand : reduce.operands()) {
      elements = std::max(elements, static_cast<double>(hlo::ElementsOfLargestLeaf(operand->shape())));
    }
  };
  count_reduced(root);
  if (root.opcode() == Opcode::kFusion) {
    for (const auto& instruction : root.called()[0]->instructions()) count_reduced(*instruction);
  }
  return elements;
}

// The bytes of the results and of at most `elements` elements of each operand.
double BytesOf(const Instruction& root, double elements) {
  double bytes = 0;
  for (const tensor::Shape& leaf : hlo::LeafShapes(root.shape())) bytes += static_cast<double>(leaf.bytes());
  for (const Instruction* operand : root.operands()) {
    for (const tensor::Shape& leaf : hlo::LeafShapes(operand->shape())) {
      const double read = std::min(static_cast<double>(leaf.elements()), elements);
      bytes += read * static_cast<double>(tensor::ByteWidth(leaf.type));
    }
  }
  return bytes;
}

// Whether an instruction reads its operands completely, even if they are larger than its results.
bool ReadsAll(const Instruction& root) {
  switch (root.opcode()) {
    case Opcode::kDot:
    case Opcode::kRaggedDot:
    case Opcode::kConvolution:
    case Opcode::kFft:
    case Opcode::kTriangularSolve:
    case Opcode::kTopk:
    case Opcode::kCustomCall:
      return true;
    default:
      return IsLibraryOp(root);
  }
}

}  // namespace

double EstimateNs(const Instruction& root) {
  double ns = 0;
  if (root.opcode() == Opcode::kFusion) {
    for (const auto& instruction : root.called()[0]->instructions()) ns += NsOf(*instruction);
  } else {
    ns += NsOf(root);
  }
  return ns + kNsOfByte * BytesOf(root, ElementsRead(root));
}

double BytesMoved(const Instruction& root) {
  const Instruction* inner = root.opcode() == Opcode::kFusion ? root.called()[0]->root() : &root;
  if (inner->opcode() == Opcode::kDynamicUpdateSlice) {
    return 2 * static_cast<double>(inner->operand(1)->shape().array().bytes());
  }
  return BytesOf(root, ReadsAll(root) ? std::numeric_limits<double>::infinity() : ElementsRead(root));
}

int64_t WantedTiles(const Instruction& root) {
  const double ns = EstimateNs(root);
  if (ns < kMinNsOfTiled) return 1;
  return std::clamp<int64_t>(static_cast<int64_t>(std::min(ns / kNsOfTile, 1e9)), 1, kMaxTiles);
}

}  // namespace xlad::compiler
