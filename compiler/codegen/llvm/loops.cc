// Loop kernels: each output element is computed by its element rule.
//
// Reductions are computed first, in one pass for each group of equal operand shapes, into their outputs or into
// scratch. Then one loop for each number of elements computes the other outputs, which may read the reductions. For
// each element, loads come before stores, so an output may share memory with an operand that it reads only at the same
// element. Outputs and reductions need other reductions only at their own position (CanEmit), so each tile computes
// everything for its positions.
#include <algorithm>
#include <set>
#include <utility>

#include "base/containers.h"
#include "base/status.h"
#include "compiler/codegen/llvm/kernel.h"
#include "compiler/codegen/llvm/reductions.h"
#include "compiler/codegen/llvm/scalar_ops.h"
#include "compiler/passes/fusion_limits.h"

namespace xlad::compiler {
namespace {

using hlo::Instruction;
using hlo::Opcode;
using tensor::Dims;

// Whether one loop over row-major positions can compute an instruction without dividing positions into indices. If so,
// element i depends only on elements i of all operands of two or more dimensions.
class LinearCheck {
 public:
  explicit LinearCheck(const Elements& elements) : elements_(elements) {}

  bool IsLinear(const Instruction* instruction) {
    if (elements_.IsBound(instruction) || !known_.insert(instruction).second) return true;
    switch (instruction->opcode()) {
      case Opcode::kBroadcast:
        return instruction->operand(0)->shape().is_scalar();
      case Opcode::kConstant:
      case Opcode::kPartitionId:
        return true;
      case Opcode::kReshape:
      case Opcode::kTuple:
      case Opcode::kGetTupleElement:
      case Opcode::kOptBarrier:
      case Opcode::kMap:
        return AreLinear(instruction);
      default:
        return instruction->shape().ndim() <= 1 || (HasScalarOp(*instruction) && AreLinear(instruction));
    }
  }

 private:
  bool AreLinear(const Instruction* instruction) {
    return std::all_of(instruction->operands().begin(), instruction->operands().end(),
                       [&](const Instruction* operand) { return operand->shape().is_scalar() || IsLinear(operand); });
  }

  const Elements& elements_;
  std::set<const Instruction*> known_;
};

// An array leaf of an instruction. Resolve looks through tuples for the instruction that computes the leaf.
struct Leaf {
  const Instruction* instruction;
  int64_t leaf;
};

Leaf Resolve(Leaf at) {
  while (true) {
    const Instruction* i = at.instruction;
    if (i->opcode() == Opcode::kTuple) {
      int64_t operand = 0;
      while (at.leaf >= CountArrayLeaves(i->operand(operand)->shape())) {
        at.leaf -= CountArrayLeaves(i->operand(operand++)->shape());
      }
      at.instruction = i->operand(operand);
    } else if (i->opcode() == Opcode::kGetTupleElement && i->operand(0)->opcode() != Opcode::kParameter) {
      at = {i->operand(0), at.leaf + FirstArrayLeaf(i->operand(0)->shape(), i->number())};
    } else {
      return at;
    }
  }
}

// All reductions that the outputs need, operands first.
void CollectReductions(const Elements& elements, const Instruction* instruction, std::set<const Instruction*>* seen,
                       std::vector<const Instruction*>* reductions) {
  if (elements.IsBound(instruction) || !seen->insert(instruction).second) return;
  for (const Instruction* operand : instruction->operands()) CollectReductions(elements, operand, seen, reductions);
  if (instruction->opcode() == Opcode::kReduce) reductions->push_back(instruction);
}

bool DependsOn(const Elements& elements, const Instruction* instruction, const Instruction* on) {
  std::set<const Instruction*> seen;
  std::vector<const Instruction*> found;
  CollectReductions(elements, instruction, &seen, &found);
  return instruction != on && Contains(found, on);
}

// Removes the first reduction from `rest`, and all others that the same pass can compute: they have equal operand sizes
// and dimensions and do not depend on each other. Returns the removed reductions.
std::vector<const Instruction*> TakeGroup(const Elements& elements, std::vector<const Instruction*>* rest) {
  std::vector<const Instruction*> group = {rest->front()};
  rest->erase(rest->begin());
  for (auto it = rest->begin(); it != rest->end();) {
    const Instruction* other = *it;
    const bool same = other->operand(0)->shape().dims() == group[0]->operand(0)->shape().dims() &&
                      other->dimensions() == group[0]->dimensions();
    const bool independent = std::none_of(
        group.begin(), group.end(), [&](const Instruction* member) { return DependsOn(elements, other, member); });
    if (same && independent) {
      group.push_back(other);
      it = rest->erase(it);
    } else {
      ++it;
    }
  }
  return group;
}

// The memory for the leaves of a reduction: an output if the output is this leaf, and otherwise scratch.
std::vector<ArrayView> PlaceReduction(KernelContext& kernel, const Instruction* reduce, std::vector<bool>* written) {
  std::vector<ArrayView> places;
  const std::vector<tensor::Shape> leaves = LeafShapes(reduce->shape());
  for (int leaf = 0; leaf < std::ssize(leaves); ++leaf) {
    ArrayView place;
    for (size_t o = 0; o < kernel.outputs().size() && place.base == nullptr; ++o) {
      const Output& output = kernel.outputs()[o];
      const Leaf resolved = Resolve({output.instruction, output.leaf});
      // Outputs that share memory with an operand are written last.
      if (resolved.instruction != reduce || resolved.leaf != leaf || output.in_place || (*written)[o]) continue;
      place = output.array;
      (*written)[o] = true;
    }
    places.push_back(place.base != nullptr ? place : kernel.Scratch(leaves[leaf]));
  }
  return places;
}

}  // namespace

ReductionGroups GroupReductions(KernelContext& kernel) {
  std::set<const Instruction*> seen;
  std::vector<const Instruction*> rest;
  for (const Output& output : kernel.outputs()) {
    CollectReductions(kernel.elements(), output.instruction, &seen, &rest);
  }
  ReductionGroups groups;
  while (!rest.empty()) groups.push_back(TakeGroup(kernel.elements(), &rest));
  return groups;
}

namespace {

void EmitReductionsFirst(KernelContext& kernel, const ReductionGroups& groups, std::vector<bool>* written) {
  for (const std::vector<const Instruction*>& group : groups) {
    std::vector<std::vector<ArrayView>> places;
    for (const Instruction* reduce : group) places.push_back(PlaceReduction(kernel, reduce, written));
    EmitReductions(kernel, group, [&](size_t which, const Index& index, const Values& values) {
      for (size_t leaf = 0; leaf < values.size(); ++leaf) {
        StoreTo(kernel.ir(), places[which][leaf], index, values[leaf]);
      }
    });
    for (size_t i = 0; i < group.size(); ++i) kernel.elements().BindArrays(group[i], places[i]);
  }
}

// Whether one loop over positions computes all of these outputs.
bool AreLinear(KernelContext& kernel, const std::vector<Output>& outputs) {
  LinearCheck check(kernel.elements());
  return std::all_of(outputs.begin(), outputs.end(), [&](const Output& output) {
    return check.IsLinear(Resolve({output.instruction, output.leaf}).instruction);
  });
}

int64_t ColumnsOf(const Dims& dims) {
  const auto last = std::find_if(dims.rbegin(), dims.rend(), [](int64_t size) { return size != 1; });
  return last == dims.rend() ? 1 : *last;
}

// Whether the element of `user` at a position depends on no other element of its operand than that at this position.
bool KeepsPosition(const Instruction& user, const Instruction& operand) {
  const Opcode opcode = user.opcode();
  const bool passes = HasScalarOp(user) || opcode == Opcode::kReshape || opcode == Opcode::kGetTupleElement ||
                      opcode == Opcode::kTuple || opcode == Opcode::kOptBarrier;
  const bool same_size = !operand.shape().is_array() || !user.shape().is_array() ||
                         operand.shape().elements() == user.shape().elements();
  return passes && same_size;
}

// Whether every reduction that `instruction` depends on is local, that is, needed only at the position of its own
// result. If so, the thread that computes a reduction is the thread that reads it. `is_own` is whether `instruction`
// itself is needed only at its own position.
bool HasLocalReductions(const Elements& elements, const Instruction* instruction, bool is_own,
                        std::set<std::pair<const Instruction*, bool>>* known) {
  if (elements.IsBound(instruction) || !known->insert({instruction, is_own}).second) return true;
  if (instruction->opcode() == Opcode::kReduce && !is_own) return false;
  return std::all_of(instruction->operands().begin(), instruction->operands().end(), [&](const Instruction* operand) {
    return HasLocalReductions(elements, operand, is_own && KeepsPosition(*instruction, *operand), known);
  });
}

}  // namespace

bool ReductionsAreLocal(KernelContext& kernel) {
  std::set<std::pair<const Instruction*, bool>> known;
  return std::all_of(kernel.outputs().begin(), kernel.outputs().end(), [&](const Output& output) {
    return HasLocalReductions(kernel.elements(), output.instruction, true, &known);
  });
}

namespace {

// There is one thread for each position of the largest loop. Smaller loops use only the first of these threads. That is
// correct because positions of different loops do not depend on each other.
void DivideAmongThreads(KernelContext& kernel, const ReductionGroups& groups) {
  int64_t positions = 0;
  for (const Output& output : kernel.outputs()) positions = std::max(positions, output.array.shape.elements());
  for (const std::vector<const Instruction*>& group : groups) {
    positions = std::max(positions, LeafShapes(group[0]->shape())[0].elements());
  }
  kernel.DivideThreads(positions);
}

// Divides the kernel if all outputs and reductions have the same number of elements, and reductions that are computed
// in strips have equal rows.
void DivideLoops(KernelContext& kernel, const ReductionGroups& groups) {
  const std::vector<Output>& outputs = kernel.outputs();
  const int64_t tiles = kernel.wanted_tiles();
  const int64_t positions = outputs.empty() ? 0 : outputs[0].array.shape.elements();
  if (tiles <= 1 || positions <= 1) return;
  for (const Output& output : outputs) {
    if (output.array.shape.elements() != positions) return;
  }
  const Dims* strips = nullptr;  // The results of reductions that are computed in strips.
  std::vector<Dims> results;
  for (const std::vector<const Instruction*>& group : groups) {
    results.push_back(LeafShapes(group[0]->shape())[0].dims);
    if (tensor::Product(results.back()) != positions) return;
  }
  for (size_t g = 0; g < groups.size(); ++g) {
    if (!IsColumnReduction(*groups[g][0])) continue;
    if (strips != nullptr && ColumnsOf(*strips) != ColumnsOf(results[g])) return;
    strips = &results[g];
  }
  if (strips != nullptr) {
    kernel.Divide(TileColumns(*strips, tiles, kMaxStrip));
  } else if (!groups.empty()) {
    kernel.Divide(TileRows(results[0], tiles));
  } else if (AreLinear(kernel, outputs)) {
    kernel.Divide(TileLinear(positions, tiles));
  } else {
    const Dims& dims = outputs[0].array.shape.dims;
    const int64_t rows = positions / ColumnsOf(dims);
    if (rows > 1 && 2 * rows >= tiles) {
      // A tile with parts of two rows needs the index in the row of each position, and has no vector instructions.
      kernel.Divide(TileRows(dims, std::min(rows, tiles)));
    } else {
      kernel.Divide(ColumnsOf(dims) >= 256 ? TileColumns(dims, tiles, positions) : TileRows(dims, tiles));
    }
  }
}

// The concatenations on which some values depend, in a fixed order, and whether any of their elements is needed at
// a position other than its own.
class Concatenations {
 public:
  explicit Concatenations(const Elements& elements) : elements_(elements) {}

  void Find(const Instruction* value, bool is_own) {
    if (elements_.IsBound(value) || !seen_.insert({value, is_own}).second) return;
    if (value->opcode() == Opcode::kConcatenate) {
      if (is_own) found_.push_back(value);
      if (!is_own) needed_elsewhere_.insert(value);
    }
    for (const Instruction* operand : value->operands()) Find(operand, is_own && KeepsPosition(*value, *operand));
  }
  std::vector<const Instruction*> OfOwnPositions() const {
    std::vector<const Instruction*> own = found_;
    std::erase_if(own, [&](const Instruction* value) { return needed_elsewhere_.contains(value); });
    return own;
  }

 private:
  const Elements& elements_;
  std::set<std::pair<const Instruction*, bool>> seen_;
  std::vector<const Instruction*> found_;
  std::set<const Instruction*> needed_elsewhere_;
};

// A loop over the positions of concatenations in which dimension `along` is divided at the boundaries of their
// operands. Each part computes one operand. A single loop would compute all operands for each vector of elements.
struct Parts {
  std::vector<const Instruction*> concatenations;
  size_t along = 0;             // A dimension of the loop.
  std::vector<int64_t> bounds;  // The boundaries, from 0 to the size of the dimension.
};

std::vector<int64_t> BoundsOf(const Instruction& concatenation) {
  std::vector<int64_t> bounds = {0};
  for (const Instruction* operand : concatenation.operands()) {
    bounds.push_back(bounds.back() + operand->shape().dim(concatenation.dimensions()[0]));
  }
  return bounds;
}

// The dimension of a loop over `sizes` that is the concatenated one, if the sizes differ only by sizes of 1.
std::optional<size_t> DimensionOfLoop(const Instruction& concatenation, const Dims& sizes) {
  const auto is_long = [](int64_t size) { return size != 1; };
  const Dims& own = concatenation.shape().dims();
  Dims long_own, long_sizes;
  std::copy_if(own.begin(), own.end(), std::back_inserter(long_own), is_long);
  std::copy_if(sizes.begin(), sizes.end(), std::back_inserter(long_sizes), is_long);
  const int64_t along = concatenation.dimensions()[0];
  if (long_own != long_sizes || own[along] == 1) return std::nullopt;
  int64_t before = std::count_if(own.begin(), own.begin() + along, is_long);
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] != 1 && before-- == 0) return d;
  }
  return std::nullopt;
}

// The number of instructions in the loops of all parts. The loop of a part has only one operand of the concatenations.
int64_t InstructionsOf(const Parts& parts, const Elements& elements, const std::vector<Output>& outputs) {
  int64_t count = 0;
  for (int64_t part = 0; part + 1 < std::ssize(parts.bounds); ++part) {
    std::set<const Instruction*> seen;
    std::vector<const Instruction*> pending;
    for (const Output& output : outputs) pending.push_back(output.instruction);
    while (!pending.empty()) {
      const Instruction* at = pending.back();
      pending.pop_back();
      if (elements.IsBound(at) || !seen.insert(at).second) continue;
      if (Contains(parts.concatenations, at)) {
        pending.push_back(at->operand(part));
      } else {
        pending.insert(pending.end(), at->operands().begin(), at->operands().end());
      }
    }
    count += std::ssize(seen);
  }
  return count;
}

// Nullopt if there is no concatenation whose parts are long enough for vectors, or if the loops would be too large.
std::optional<Parts> PartsOf(KernelContext& kernel, const std::vector<Output>& outputs, const Dims& sizes) {
  constexpr int64_t kMaxParts = 8, kMinElements = 16;
  Concatenations concatenations(kernel.elements());
  for (const Output& output : outputs) {
    concatenations.Find(Resolve({output.instruction, output.leaf}).instruction, /*is_own=*/true);
  }
  Parts parts;
  for (const Instruction* candidate : concatenations.OfOwnPositions()) {
    const std::optional<size_t> along = DimensionOfLoop(*candidate, sizes);
    const std::vector<int64_t> bounds = BoundsOf(*candidate);
    if (!along.has_value() || candidate->operand_count() > kMaxParts) continue;
    int64_t step = 1;
    for (size_t d = *along + 1; d < sizes.size(); ++d) step *= sizes[d];
    bool is_long = true;
    for (size_t i = 1; i < bounds.size(); ++i) is_long = is_long && (bounds[i] - bounds[i - 1]) * step >= kMinElements;
    if (!is_long) continue;
    if (!parts.concatenations.empty() && (parts.along != *along || parts.bounds != bounds)) continue;
    parts.concatenations.push_back(candidate);
    parts.along = *along;
    parts.bounds = bounds;
  }
  if (parts.concatenations.empty()) return std::nullopt;
  if (InstructionsOf(parts, kernel.elements(), outputs) > kMaxFusedInstructions) return std::nullopt;
  return parts;
}

// Makes the concatenations read operand `part` only.
void BindPart(Elements& elements, const Parts& parts, size_t part) {
  for (const Instruction* value : parts.concatenations) {
    elements.Bind(value, [&elements, value, part, begin = parts.bounds[part]](int, const Index& index) {
      Ir& ir = elements.ir();
      Values at = DimsOf(ir, index, value->shape().dims());
      llvm::Value*& along = at[value->dimensions()[0]];
      along = ir.AddSigned(along, -begin);
      return elements.Emit(value->operand(part), Index::Of(at));
    });
  }
}

// Emits `body` for the positions of the range, in a loop for each part. Returns false, without emitting code, if tiles
// do not consist of whole parts.
bool ForParts(KernelContext& kernel, const Parts& parts, const Dims& sizes,
              const std::function<void(const Index&)>& body) {
  Ir& ir = kernel.ir();
  const TileRange& range = kernel.range();
  size_t inner = 0;  // The first dimension that a tile has completely.
  if (!range.is_whole()) {
    int64_t row = tensor::Product(sizes);
    while (inner < sizes.size() && row > range.tiling.row) row /= sizes[inner++];
    if (range.thread != nullptr || range.tiling.span != range.tiling.positions || row != range.tiling.row) return false;
  }
  if (inner > parts.along) return false;
  const Dims between(sizes.begin() + inner, sizes.begin() + parts.along);
  const auto row = [&](const Values& outer) {
    for (size_t part = 0; part + 1 < parts.bounds.size(); ++part) {
      BindPart(kernel.elements(), parts, part);
      Dims rest(sizes.begin() + parts.along, sizes.end());
      rest[0] = parts.bounds[part + 1] - parts.bounds[part];
      ir.LoopNest(rest, [&](const Values& in_part) {
        Values at = outer;
        at.insert(at.end(), in_part.begin(), in_part.end());
        at[parts.along] = ir.Add(ir.I64(parts.bounds[part]), at[parts.along]);
        body(Index::Of(at));
      });
    }
  };
  const auto rows = [&](const Values& leading) {
    ir.LoopNest(between, [&](const Values& middle) {
      Values outer = leading;
      outer.insert(outer.end(), middle.begin(), middle.end());
      row(outer);
    });
  };
  if (range.is_whole()) {
    rows({});
  } else {
    const Dims leading(sizes.begin(), sizes.begin() + inner);
    ir.RangeLoop(ir.Div(range.begin, range.tiling.row), ir.Div(range.end, range.tiling.row),
                 [&](llvm::Value* at) { rows(DimsOf(ir, Index::OfLinear(at), leading)); });
  }
  for (const Instruction* value : parts.concatenations) kernel.elements().Unbind(value);
  return true;
}

}  // namespace

void EmitLoops(KernelContext& kernel) {
  Ir& ir = kernel.ir();
  std::vector<bool> written(kernel.outputs().size(), false);
  const ReductionGroups groups = GroupReductions(kernel);
  if (kernel.has_threads() && !ReductionsAreLocal(kernel)) kernel.UseOneThread();
  if (kernel.has_threads()) {
    DivideAmongThreads(kernel, groups);
  } else {
    DivideLoops(kernel, groups);
  }
  EmitReductionsFirst(kernel, groups, &written);
  std::vector<Output> outputs;
  for (size_t o = 0; o < written.size(); ++o) {
    if (!written[o] && kernel.outputs()[o].array.shape.elements() > 0) outputs.push_back(kernel.outputs()[o]);
  }
  // There is one loop for each element count.
  while (!outputs.empty()) {
    const int64_t count = outputs[0].array.shape.elements();
    std::vector<Output> now, later;
    for (Output& output : outputs) (output.array.shape.elements() == count ? now : later).push_back(output);
    outputs = std::move(later);
    const Dims& sizes = now[0].array.shape.dims;
    const auto element = [&](const Index& index) {
      Values values;
      std::vector<Index> places;
      for (const Output& output : now) {
        places.push_back(ReshapeIndex(ir, index, sizes, output.array.shape.dims));
        values.push_back(kernel.elements().Emit(output.instruction, places.back(), output.leaf));
      }
      for (size_t i = 0; i < now.size(); ++i) StoreTo(ir, now[i].array, places[i], values[i]);
    };
    if (AreLinear(kernel, now)) {
      ForLinear(ir, kernel.range(), count, element);
      continue;
    }
    const std::optional<Parts> parts = kernel.has_threads() ? std::nullopt : PartsOf(kernel, now, sizes);
    if (!parts.has_value() || !ForParts(kernel, *parts, sizes, element)) {
      ForPositions(ir, kernel.range(), sizes, element);
    }
  }
}

void EmitArray(KernelContext& kernel, const Instruction* instruction, int leaf, const ArrayView& array) {
  LinearCheck check(kernel.elements());
  const auto element = [&](const Index& index) {
    StoreTo(kernel.ir(), array, index, kernel.elements().Emit(instruction, index, leaf));
  };
  if (check.IsLinear(instruction)) {
    kernel.ir().Loop(array.shape.elements(), [&](llvm::Value* i) { element(Index::OfLinear(i)); });
  } else {
    kernel.ir().LoopNest(array.shape.dims, [&](const Values& dims) { element(Index::Of(dims)); });
  }
}

}  // namespace xlad::compiler
