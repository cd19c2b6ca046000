#include "compiler/analysis/kernel_cost.h"

#include <algorithm>
#include <limits>

#include "compiler/analysis/flops.h"
#include "compiler/analysis/library_op.h"
#include "compiler/analysis/op_cost.h"
#include "compiler/analysis/score_space.h"
#include "hlo/analysis/counts.h"
#include "hlo/analysis/leaves.h"
#include "hlo/analysis/window.h"
#include "tensor/small_float.h"

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
// Nanoseconds for one operation of a product in blocks whose sums have at most 4 bytes or 8 bytes, near the rates that
// docs/decisions/0055 lists: 80 and 40 operations in a nanosecond, half as many for convolutions.
constexpr double kNsOfBlockedFlop = 0.0125, kNsOfBlockedWideFlop = 0.025;
constexpr double kConvolutionFactor = 2;

// Whether the last dimension of a dot's depth has neighbors in memory in both operands.
bool HasContiguousDepth(const Instruction& dot) {
  const hlo::DotDimensions& n = *dot.attributes().dot;
  const auto is_contiguous = [&](int64_t operand, const tensor::Dims& depth) {
    return !depth.empty() && tensor::Strides(dot.operand(operand)->shape().dims())[depth.back()] == 1;
  };
  return is_contiguous(0, n.lhs_contracting) && is_contiguous(1, n.rhs_contracting);
}

// With fewer lines, packing takes longer than it saves, except for elements whose products or conversions are slow, and
// for thin products (few lines of one operand, many of the other): other code for them is scalar, unless their columns
// or their depth are neighbors in memory.
bool IsDotWorthBlocks(const Instruction& dot) {
  constexpr int64_t kMinLines = 8, kMinLinesOfSlow = 4, kManyLines = 16, kMinDepth = 8;
  if (hlo::ContractedElements(dot) < kMinDepth) return false;
  const FreeDimensions free = FreeDimensionsOf(dot);
  const tensor::Dims& sizes = dot.operand(1)->shape().dims();
  const int64_t rows = tensor::Product(tensor::Select(dot.operand(0)->shape().dims(), free.lhs));
  const int64_t columns = tensor::Product(tensor::Select(sizes, free.rhs));
  const tensor::ElementType type = dot.operand(0)->shape().type();
  const bool is_slow = tensor::IsComplex(type) || tensor::IsSmallFloat(type);
  if (std::min(rows, columns) >= (is_slow ? kMinLinesOfSlow : kMinLines)) return true;
  const bool has_columns = !free.rhs.empty() && free.rhs.back() == std::ssize(sizes) - 1;
  return std::max(rows, columns) >= kManyLines && (columns < rows || !has_columns) && !HasContiguousDepth(dot);
}

// The rows are the output's batch and spatial positions, the columns the features of one group.
bool IsConvolutionWorthBlocks(const Instruction& conv) {
  constexpr int64_t kMinLines = 4, kMinDepth = 4;
  const hlo::Attributes& attributes = conv.attributes();
  const tensor::Dims& kernel = conv.operand(1)->shape().dims();
  const int64_t features = conv.shape().dim(attributes.convolution->output_feature);
  const int64_t groups = attributes.feature_group_count * attributes.batch_group_count;
  return conv.shape().elements() / features >= kMinLines && features / groups >= kMinLines &&
         hlo::WindowElements(conv) * static_cast<double>(kernel[attributes.convolution->kernel_input_feature]) >=
             kMinDepth;
}

// Nanoseconds for one element of a window of a select-and-scatter that is computed for vectors of columns.
constexpr double kNsOfVectorSelection = 0.3;
// Nanoseconds for one product of a convolution that is computed for vectors of groups.
constexpr double kNsOfVectorProduct = 0.1;

double NsOfProduct(const Instruction& product) {
  const tensor::ElementType type = product.shape().type();
  const bool is_complex = tensor::IsComplex(type);
  const double flops = FlopsOf(product);
  if (HasVectorsOfGroups(product)) return kNsOfVectorProduct * flops / (is_complex ? 8 : 2);
  if (!IsWorthBlocks(product)) return kNsOfScalar * flops / (is_complex ? 8 : 2);
  const bool is_wide = tensor::BitWidth(is_complex ? tensor::RealPartOf(type) : type) > 32;
  const bool is_convolution = product.opcode() == Opcode::kConvolution;
  return flops * (is_wide ? kNsOfBlockedWideFlop : kNsOfBlockedFlop) * (is_convolution ? kConvolutionFactor : 1);
}

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
    case Opcode::kConvolution:
      return NsOfProduct(instruction);
    case Opcode::kSort:
    case Opcode::kTopk:
      return 20 * kNsOfScalar * static_cast<double>(instruction.operand(0)->shape().elements());
    case Opcode::kSelectAndScatter:  // Each element of the source selects one element of its window.
      return (HasVectorsOfColumns(instruction) ? kNsOfVectorSelection : kNsOfScalar) *
             static_cast<double>(instruction.operand(1)->shape().elements()) * hlo::WindowElements(instruction);
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

bool IsWorthBlocks(const Instruction& product) {
  if (product.shape().elements() == 0 || product.operand(0)->shape().elements() == 0) return false;
  return product.opcode() == Opcode::kConvolution ? IsConvolutionWorthBlocks(product) : IsDotWorthBlocks(product);
}

bool IsDepthwise(const Instruction& product) {
  constexpr int64_t kMinGroups = 4;
  if (product.opcode() != Opcode::kConvolution || product.shape().elements() == 0) return false;
  const hlo::Attributes& attributes = product.attributes();
  const hlo::ConvolutionDimensions& n = *attributes.convolution;
  const int64_t features = product.shape().dim(n.output_feature);
  if (features < kMinGroups) return false;
  if (attributes.batch_group_count == features) return product.operand(0)->shape().dim(n.input_batch) == features;
  return attributes.feature_group_count == features && product.operand(1)->shape().dim(n.kernel_input_feature) == 1;
}

int64_t InputDimensionOfGroups(const Instruction& depthwise) {
  const hlo::ConvolutionDimensions& n = *depthwise.attributes().convolution;
  return depthwise.attributes().batch_group_count != 1 ? n.input_batch : n.input_feature;
}

bool HasVectorsOfGroups(const Instruction& product) {
  if (!IsDepthwise(product)) return false;
  const hlo::ConvolutionDimensions& n = *product.attributes().convolution;
  const int64_t last = product.shape().ndim() - 1;
  return n.output_feature == last && n.kernel_output_feature == last && InputDimensionOfGroups(product) == last;
}

bool HasVectorsOfColumns(const Instruction& select_and_scatter) {
  constexpr int64_t kMinColumns = 8;
  const tensor::Dims& sizes = select_and_scatter.operand(1)->shape().dims();
  return sizes.size() >= 2 && sizes.back() >= kMinColumns &&
         hlo::HasNoWindow(select_and_scatter.attributes().window->back());
}

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
  return std::clamp<int64_t>(std::min(ns / kNsOfTile, 1e9), 1, kMaxTiles);
}

}  // namespace xlad::compiler
