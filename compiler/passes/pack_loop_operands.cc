// Packs the right operands of dots in loops once, before the loop, if the loop does not change them. The weights of a
// recurrent network are such operands:
//
//   before:   packed = [n / 32, k, 32] copy of weights[k, n]
//   body:     dot(x[m, k], packed) = [m, n / 32, 32], reshaped to [m, n]
//
// A product of few rows takes little longer than the copy of its right operand. oneDNN makes this copy in every call.
// The loops of runtime/devices/cpu/small_dot.h read small row-major operands in place, but the rows of a larger matrix
// are so far apart that they do not stay in the first-level cache together. The rows of the packed operand are
// adjacent, and these loops read it in place whether or not the original operand is transposed.
//
// Needs: simplified loops; canonical dots. Leaves, unless the context keeps loops small: no dot for which MayPack is
// true in a loop of kMinTrips or more counted iterations whose result is read only by get-tuple-elements and is not the
// root of its computation. MayPack is false for dots with batch dimensions, and for right operands that are constants
// or are computed in the body. Every carried element of a changed loop is used.
#include <algorithm>
#include <map>
#include <tuple>

#include "compiler/analysis/clone.h"
#include "compiler/analysis/loop_indices.h"
#include "compiler/analysis/score_space.h"
#include "compiler/passes/change_loops.h"
#include "compiler/passes/drop_dead_elements.h"
#include "compiler/passes/passes.h"
#include "hlo/analysis/trip_count.h"
#include "hlo/build/builder.h"

namespace xlad::compiler {
namespace {

constexpr int64_t kPanelColumns = 32;  // As in small_dot.h (kPanels).
constexpr int64_t kMinTrips = 8;
// With fewer rows, the loops cannot hide the latency of the products. With more rows, the time of a copy is small.
constexpr int64_t kMinPackedRows = 8, kMaxPackedRows = 128;
constexpr int64_t kMinDepth = 8;
// Operands of at least this many elements do not stay in the first-level cache during a product. The copies of larger
// operands than the upper limit would need too much memory.
constexpr int64_t kMinPacked = 1 << 13, kMaxPacked = 1 << 22;
// Row-major operands of at most this many elements are read in place, as in small_dot.cc. If they are worth packing,
// their sums have at most the number of terms that small_dot.cc allows.
constexpr int64_t kMaxInPlace = 1 << 16;

// An operand to be packed: the loop's tuple element, and the contracting dimensions of the dots that read it.
struct PackedOperand {
  int64_t element;
  Dims contracting;
  bool operator<(const PackedOperand& other) const {
    return std::tie(element, contracting) < std::tie(other.element, other.contracting);
  }
};

// Whether packing saves time, and does not need too much memory.
bool IsWorthPacking(const Instruction& dot, const FreeDimensions& free) {
  const Shape& rhs = dot.operand(1)->shape();
  const int64_t columns = tensor::Product(tensor::Select(rhs.dims(), free.rhs));
  const int64_t rows = tensor::Product(tensor::Select(dot.operand(0)->shape().dims(), free.lhs));
  return rows >= kMinPackedRows && rows <= kMaxPackedRows && columns > kPanelColumns && rhs.elements() >= kMinPacked &&
         rhs.elements() <= kMaxPacked && rhs.elements() >= kMinDepth * columns;
}

// Whether a loop over all contracting dimensions of an operand reads it at one stride.
bool IsAdjacent(const Dims& contracting) {
  for (size_t i = 1; i < contracting.size(); ++i) {
    if (contracting[i] != contracting[i - 1] + 1) return false;
  }
  return true;
}

// Whether the loops of small_dot.h read the right operand in place as it is: a small row-major matrix, or panels.
bool IsReadInPlace(const Instruction& dot, const FreeDimensions& free) {
  const Shape& rhs = dot.operand(1)->shape();
  const Dims& depth = dot.attributes().dot->rhs_contracting;
  const int64_t last = rhs.ndim() - 1;
  if (free.rhs.back() != last || !IsAdjacent(depth)) return false;
  if (depth.front() == 0) return rhs.elements() <= kMaxInPlace;
  return depth.back() == last - 1 && rhs.dim(last) == kPanelColumns;
}

bool IsF32(const Instruction& instruction) { return instruction.shape().type() == ElementType::kF32; }

// Whether the right operand of a dot in the body of the loop can be packed before the loop.
bool MayPack(const Instruction& loop, const Instruction& dot) {
  if (dot.opcode() != Opcode::kDot || dot.operand_count() != 2 || !dot.attributes().dot->lhs_batch.empty()) {
    return false;
  }
  const Instruction* rhs = dot.operand(1);
  if (!IsF32(dot) || !IsF32(*dot.operand(0)) || !IsF32(*rhs)) return false;
  if (!IsAdjacent(dot.attributes().dot->lhs_contracting)) return false;
  if (!IsInvariantElement(loop, *rhs)) return false;
  const FreeDimensions free = FreeDimensionsOf(dot);
  return !free.rhs.empty() && rhs->shape().dim(free.rhs.back()) % kPanelColumns == 0 && IsWorthPacking(dot, free) &&
         !IsReadInPlace(dot, free);
}

// Appends the packed copy of `operand`: dimensions [columns / 32, the contracting ones, 32].
Instruction* Pack(Instruction* operand, const Dims& contracting, const Dims& free, hlo::Builder* builder) {
  const int64_t last = free.back();
  Instruction* split = builder->SplitDimension(operand, last, operand->shape().dim(last) / kPanelColumns);
  const auto after_split = [last](int64_t d) { return d > last ? d + 1 : d; };
  Dims order = free;  // No free dimension is after the last one.
  for (const int64_t d : contracting) order.push_back(after_split(d));
  order.push_back(last + 1);
  Instruction* transposed = builder->Transpose(split, order);
  Dims sizes = {1};
  for (int64_t d = 0; d < std::ssize(order); ++d) {
    const int64_t size = transposed->shape().dim(d);
    if (d < free.size()) sizes[0] *= size;
    if (d >= free.size()) sizes.push_back(size);
  }
  return sizes == transposed->shape().dims() ? transposed : builder->Reshape(transposed, sizes);
}

// Appends the dot with a packed operand. Returns its result in the shape of the dot.
Instruction* MultiplyPacked(const Instruction& dot, Instruction* packed, hlo::Builder* builder) {
  Instruction* product = CloneWithOperands(dot, {dot.operand(0), packed}, builder->computation());
  hlo::DotDimensions dims = *dot.attributes().dot;
  for (int64_t d = 0; d < std::ssize(dims.rhs_contracting); ++d) dims.rhs_contracting[d] = d + 1;
  product->mutable_attributes().dot = dims;
  Dims sizes = tensor::Select(dot.operand(0)->shape().dims(), FreeDimensionsOf(dot).lhs);
  sizes.push_back(packed->shape().dim(0));
  sizes.push_back(kPanelColumns);
  product->mutable_shape() = Shape(ElementType::kF32, sizes);
  return sizes == dot.shape().dims() ? product : builder->Reshape(product, dot.shape().dims());
}

bool PackOperands(Instruction* loop) {
  if (!MayChangeElements(*loop) || hlo::TripCount(*loop).value_or(0) < kMinTrips) return false;
  Computation* body = loop->called()[1];
  std::map<PackedOperand, size_t> numbers;
  std::vector<std::pair<Instruction*, size_t>> dots;  // With the index of their operand in `packed`.
  std::vector<Instruction*> packed;
  hlo::Builder before(loop->parent());
  for (Instruction* dot : Snapshot(*body)) {
    if (!MayPack(*loop, *dot)) continue;
    const PackedOperand operand = {dot->operand(1)->number(), dot->attributes().dot->rhs_contracting};
    const auto [number, is_new] = numbers.emplace(operand, packed.size());
    dots.emplace_back(dot, number->second);
    if (!is_new) continue;
    Instruction* value = loop->operand(0)->operand(operand.element);
    before.set_template(value);
    packed.push_back(Pack(value, operand.contracting, FreeDimensionsOf(*dot).rhs, &before));
  }
  if (dots.empty()) return false;
  const std::vector<Instruction*> in_body = CarryUnchanged(loop, packed);
  hlo::Builder builder(body);
  for (const auto& [dot, number] : dots) {
    builder.set_template(dot);
    dot->ReplaceAllUsesWith(MultiplyPacked(*dot, in_body[number], &builder));
  }
  FinishEdits(body);
  DropDeadElements(loop);
  return true;
}

}  // namespace

absl::Status PackLoopOperands(hlo::Module& module, PassContext& context) {
  if (!context.keeps_loops_small) context.has_larger_loops |= ChangeLoops(module, PackOperands);
  return absl::OkStatus();
}

}  // namespace xlad::compiler
