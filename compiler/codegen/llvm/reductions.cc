// There are two loop orders. If the innermost dimension is reduced (rows), each result element has an accumulator in a
// register, and LLVM vectorizes the inner loop. If the innermost dimension is kept (columns), there is a strip of
// accumulators along it, and a vectorized pass over the strip for each reduced position.
#include "compiler/codegen/llvm/reductions.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "compiler/codegen/llvm/reducer.h"

namespace xlad::compiler {
namespace {

using hlo::Instruction;
using tensor::Dims;

// The maximum number of accumulators of all copies of a narrow strip.
constexpr int64_t kNarrow = 256;

struct Reduction {
  const Instruction* instruction;
  int64_t leaves;
  std::vector<tensor::Shape> shapes;
  Reducer reducer;

  explicit Reduction(const Instruction* reduce)
      : instruction(reduce),
        leaves(reduce->operand_count() / 2),
        shapes(LeafShapes(reduce->shape())),
        reducer(reduce->called()[0], shapes[0].type) {}

  Values Initial(Elements& elements) const {
    Values values;
    for (int64_t i = 0; i < leaves; ++i) values.push_back(elements.EmitScalar(instruction->operand(leaves + i)));
    return values;
  }
  Values Operands(Elements& elements, const Index& index) const {
    Values values;
    for (int64_t i = 0; i < leaves; ++i) values.push_back(elements.Emit(instruction->operand(i), index));
    return values;
  }
};

// The operand's dimensions, divided into kept and reduced ones.
struct DimensionSplit {
  Dims sizes;                // The operand's sizes.
  std::vector<size_t> kept;  // Ascending.
  std::vector<size_t> reduced;
  // Whether the innermost dimension (ignoring sizes of 1) is kept. False if the operand has no elements.
  bool columns = false;

  explicit DimensionSplit(const Instruction* reduce) : sizes(reduce->operand(0)->shape().dims()) {
    for (int64_t d = 0; d < std::ssize(sizes); ++d) {
      const Dims& dims = reduce->dimensions();
      const bool is_reduced = std::find(dims.begin(), dims.end(), d) != dims.end();
      (is_reduced ? reduced : kept).push_back(d);
      if (sizes[d] != 1) columns = !is_reduced;
    }
    columns = columns && tensor::Product(sizes) > 0;
  }
  Dims Sizes(const std::vector<size_t>& which) const {
    Dims result;
    for (const size_t d : which) result.push_back(sizes[d]);
    return result;
  }
  Index Join(const Values& of_kept, const Values& of_reduced) const {
    Values dims(sizes.size());
    for (size_t i = 0; i < kept.size(); ++i) dims[kept[i]] = of_kept[i];
    for (size_t i = 0; i < reduced.size(); ++i) dims[reduced[i]] = of_reduced[i];
    return Index::Of(dims);
  }
};

void EmitRows(Elements& elements, const DimensionSplit& split, const std::vector<Reduction>& reductions,
              const TileRange& range, const ReductionSink& sink) {
  Ir& ir = elements.ir();
  const Dims sizes = split.Sizes(split.kept);
  ForPositions(ir, range, sizes, [&](const Index& position) {
    const Values kept = DimsOf(ir, position, sizes);
    std::vector<Accumulators> accumulators;
    for (const Reduction& reduction : reductions) {
      accumulators.emplace_back(&ir, reduction.shapes).Store(reduction.Initial(elements));
    }
    ir.LoopNest(split.Sizes(split.reduced), [&](const Values& reduced) {
      const Index index = split.Join(kept, reduced);
      for (size_t i = 0; i < reductions.size(); ++i) {
        const Values values = reductions[i].Operands(elements, index);
        accumulators[i].Store(reductions[i].reducer.Combine(elements, accumulators[i].Load(), values));
      }
    });
    for (size_t i = 0; i < reductions.size(); ++i) {
      sink(i, Index::Of(kept), reductions[i].reducer.Round(ir, accumulators[i].Load()));
    }
  });
}

struct Strip {
  Values kept;    // The index of the kept dimensions. Its entry `column` is set later.
  size_t column;  // A position among the kept dimensions.
  llvm::Value* begin;
  int64_t width;
};

// Calls `body` for each reduced position, in order, with its index and the copy in which it is accumulated. Positions
// of the innermost reduced dimension use the copies in rotation.
void ForReduced(Ir& ir, const Dims& sizes, int64_t copies,
                const std::function<void(const Values& reduced, llvm::Value* copy)>& body) {
  if (copies == 1) {
    ir.LoopNest(sizes, [&](const Values& reduced) { body(reduced, ir.I64(0)); });
    return;
  }
  const Dims outer(sizes.begin(), sizes.end() - 1);
  const int64_t turns = sizes.back() / copies;
  ir.LoopNest(outer, [&](const Values& at) {
    const auto turn = [&](llvm::Value* begin, int64_t count) {
      ir.Loop(count, [&](llvm::Value* copy) {
        Values reduced = at;
        reduced.push_back(ir.Add(begin, copy));
        body(reduced, copy);
      });
    };
    ir.Loop(turns, [&](llvm::Value* number) { turn(ir.Mul(number, copies), copies); });
    turn(ir.I64(turns * copies), sizes.back() % copies);
  });
}

// The accumulators of a strip: `copies` times its width.
class StripSums {
 public:
  StripSums(Elements* elements, const std::vector<Reduction>& reductions, int64_t width, int64_t copies)
      : elements_(*elements), ir_(elements->ir()), reductions_(reductions), width_(width), copies_(copies) {
    for (const Reduction& reduction : reductions) {
      accumulators_.emplace_back(&ir_, reduction.shapes, width * copies);
      initial_.push_back(reduction.Initial(*elements));
    }
    ir_.Loop(width * copies, [&](llvm::Value* slot) {
      for (size_t i = 0; i < reductions_.size(); ++i) {
        const Values neutral = {reductions_[i].reducer.Neutral(ir_)};
        accumulators_[i].Store(copies > 1 ? neutral : initial_[i], slot);
      }
    });
  }

  void Add(size_t i, llvm::Value* column, llvm::Value* copy, const Values& values) {
    llvm::Value* slot = ir_.Add(ir_.Mul(copy, width_), column);
    accumulators_[i].Store(reductions_[i].reducer.Combine(elements_, accumulators_[i].Load(slot), values), slot);
  }

  // Combines all copies into the first copy.
  void Join() {
    ir_.Loop(copies_ - 1, [&](llvm::Value* other) {
      ir_.Loop(width_, [&](llvm::Value* column) {
        llvm::Value* slot = ir_.Add(ir_.Mul(ir_.Add(other, ir_.I64(1)), width_), column);
        for (size_t i = 0; i < reductions_.size(); ++i) Add(i, column, ir_.I64(0), accumulators_[i].Load(slot));
      });
    });
  }

  Values Result(size_t i, llvm::Value* column) {
    const Reducer& reducer = reductions_[i].reducer;
    const Values sums = accumulators_[i].Load(column);
    return reducer.Round(ir_, copies_ > 1 ? reducer.Combine(elements_, initial_[i], sums) : sums);
  }

 private:
  Elements& elements_;
  Ir& ir_;
  const std::vector<Reduction>& reductions_;
  const int64_t width_, copies_;
  std::vector<Accumulators> accumulators_;
  std::vector<Values> initial_;
};

// A narrow strip has so few vectors that each addition would depend on the addition just before it. Therefore it has
// several copies.
int64_t CopiesOf(Ir& ir, const DimensionSplit& split, const std::vector<Reduction>& reductions, int64_t width) {
  for (const Reduction& reduction : reductions) {
    if (reduction.leaves != 1 || reduction.reducer.Neutral(ir) == nullptr) return 1;
  }
  if (split.reduced.empty()) return 1;
  return std::max<int64_t>(1, std::min(split.sizes[split.reduced.back()], kNarrow / width));
}

void EmitStrip(Elements& elements, const DimensionSplit& split, const std::vector<Reduction>& reductions,
               const ReductionSink& sink, const Strip& strip) {
  Ir& ir = elements.ir();
  const int64_t copies = CopiesOf(ir, split, reductions, strip.width);
  const auto kept_at = [&](llvm::Value* column) {
    Values kept = strip.kept;
    kept[strip.column] = ir.Add(strip.begin, column);
    return kept;
  };
  StripSums sums(&elements, reductions, strip.width, copies);
  ForReduced(ir, split.Sizes(split.reduced), copies, [&](const Values& reduced, llvm::Value* copy) {
    ir.Loop(strip.width, [&](llvm::Value* column) {
      const Index index = split.Join(kept_at(column), reduced);
      for (size_t i = 0; i < reductions.size(); ++i) sums.Add(i, column, copy, reductions[i].Operands(elements, index));
    });
  });
  sums.Join();
  ir.Loop(strip.width, [&](llvm::Value* column) {
    for (size_t i = 0; i < reductions.size(); ++i) sink(i, Index::Of(kept_at(column)), sums.Result(i, column));
  });
}

// Emits all results along the column dimension: strips of at most kMaxStrip results that together cover `all`.
void EmitStrips(Elements& elements, const DimensionSplit& split, const std::vector<Reduction>& reductions,
                const ReductionSink& sink, const Strip& all) {
  Ir& ir = elements.ir();
  const int64_t strips = all.width / kMaxStrip;
  ir.Loop(strips, [&](llvm::Value* strip) {
    EmitStrip(elements, split, reductions, sink, {all.kept, all.column, ir.Mul(strip, kMaxStrip), kMaxStrip});
  });
  if (all.width % kMaxStrip == 0) return;
  EmitStrip(elements, split, reductions, sink,
            {all.kept, all.column, ir.I64(strips * kMaxStrip), all.width % kMaxStrip});
}

void EmitColumns(Elements& elements, const DimensionSplit& split, const std::vector<Reduction>& reductions,
                 const TileRange& range, const ReductionSink& sink) {
  Ir& ir = elements.ir();
  Dims outer = split.Sizes(split.kept);
  size_t column = outer.size() - 1;
  while (outer[column] == 1) --column;
  const int64_t columns = outer[column];
  outer[column] = 1;
  const auto all_strips = [&](const Values& at) {
    EmitStrips(elements, split, reductions, sink, {at, column, nullptr, columns});
  };
  if (range.is_whole()) return ir.LoopNest(outer, all_strips);
  const Tiling& tiling = range.tiling;
  llvm::Value* first = ir.Div(range.begin, columns);
  const auto at = [&](llvm::Value* position) { return DimsOf(ir, Index::OfLinear(position), outer); };
  if (tiling.row == columns) {
    ir.RangeLoop(first, ir.Div(range.end, columns), [&](llvm::Value* position) { all_strips(at(position)); });
    return;
  }
  const Values kept = at(first);
  llvm::Value* begin = ir.b.CreateSub(range.begin, ir.Mul(first, columns));
  const auto strip = [&](int64_t width) {
    if (width > 0) EmitStrip(elements, split, reductions, sink, {kept, column, begin, width});
  };
  if (columns % tiling.width == 0) return strip(tiling.width);
  llvm::Value* is_full = ir.b.CreateICmpEQ(ir.b.CreateSub(range.end, range.begin), ir.I64(tiling.width));
  ir.If(is_full, [&] { strip(tiling.width); }, [&] { strip(columns % tiling.width); });
}

}  // namespace

bool IsColumnReduction(const Instruction& reduce) { return DimensionSplit(&reduce).columns; }

void EmitReductions(Elements& elements, const std::vector<const Instruction*>& instructions, const TileRange& range,
                    const ReductionSink& sink) {
  const DimensionSplit split(instructions[0]);
  std::vector<Reduction> reductions;
  for (const Instruction* instruction : instructions) reductions.emplace_back(instruction);
  // On a GPU, a thread computes one result, so that adjacent threads read adjacent elements of columns.
  if (split.columns && range.thread == nullptr) {
    EmitColumns(elements, split, reductions, range, sink);
  } else {
    EmitRows(elements, split, reductions, range, sink);
  }
}

int BlockReduction::parts() const { return 1 + static_cast<int>(std::bit_width(static_cast<uint64_t>(threads))) - 1; }

std::optional<BlockReduction> BlockReductionOf(KernelContext& kernel) {
  constexpr int64_t kMinExtent = 64, kMaxThreads = 256;
  const ReductionGroups groups = GroupReductions(kernel);
  if (groups.size() != 1 || !ReductionsAreLocal(kernel)) return std::nullopt;
  BlockReduction result;
  result.group = groups[0];
  const DimensionSplit split(result.group[0]);
  result.positions = tensor::Product(split.Sizes(split.kept));
  result.extent = tensor::Product(split.Sizes(split.reduced));
  if (split.columns || result.positions == 0 || result.extent < kMinExtent) return std::nullopt;
  for (const Instruction* instruction : result.group) {
    const Reduction reduction(instruction);
    if (reduction.leaves != 1 || reduction.reducer.Neutral(kernel.ir()) == nullptr) return std::nullopt;
  }
  for (const Output& output : kernel.outputs()) {
    if (output.array.shape.elements() != result.positions) return std::nullopt;
  }
  result.threads = std::min(kMaxThreads, static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(result.extent))));
  // Partial results take up to 8 bytes.
  if (std::ssize(result.group) * result.threads * 8 > SharedMemory::kMaxBytes) return std::nullopt;
  return result;
}

namespace {

class BlockReducer {
 public:
  BlockReducer(KernelContext* kernel, const BlockReduction& block, SharedMemory* shared)
      : kernel_(*kernel), ir_(kernel->ir()), block_(block), split_(block.group[0]) {
    kernel_.DivideBlocks(block.positions, block.threads);
    for (const Instruction* instruction : block.group) {
      reductions_.emplace_back(instruction);
      types_.push_back(RegisterType(ir_.context(), reductions_.back().shapes[0].type));
      partial_.push_back(shared->Place(ir_, types_.back(), block.threads));
    }
  }

  // Every thread reduces its elements.
  void Reduce() {
    std::vector<Accumulators> sums;
    for (const Reduction& reduction : reductions_) {
      sums.emplace_back(&ir_, reduction.shapes).Store({reduction.reducer.Neutral(ir_)});
    }
    const Values kept = Position();
    const Dims sizes = split_.Sizes(split_.reduced);
    ForBlock(kernel_, block_.extent, [&](llvm::Value* element) {
      const Index index = split_.Join(kept, DimsOf(ir_, Index::OfLinear(element), sizes));
      for (size_t i = 0; i < reductions_.size(); ++i) {
        const Values values = reductions_[i].Operands(kernel_.elements(), index);
        sums[i].Store(reductions_[i].reducer.Combine(kernel_.elements(), sums[i].Load(), values));
      }
    });
    for (size_t i = 0; i < reductions_.size(); ++i) ir_.b.CreateStore(sums[i].Load()[0], At(i, kernel_.thread()));
  }

  void Halve(int64_t half) {
    ir_.If(ir_.b.CreateICmpULT(kernel_.thread(), ir_.I64(half)), [&] {
      for (size_t i = 0; i < reductions_.size(); ++i) {
        ir_.b.CreateStore(Sum(i, kernel_.thread(), ir_.Add(kernel_.thread(), ir_.I64(half))), At(i, kernel_.thread()));
      }
    });
  }

  // The first thread computes and writes the outputs.
  void Finish() {
    ir_.If(ir_.b.CreateICmpEQ(kernel_.thread(), ir_.I64(0)), [&] {
      Elements& elements = kernel_.elements();
      for (size_t i = 0; i < reductions_.size(); ++i) {
        const Reducer& reducer = reductions_[i].reducer;
        const Values total = {Sum(i, ir_.I64(0), ir_.I64(1))};
        llvm::Value* result = reducer.Round(ir_, reducer.Combine(elements, reductions_[i].Initial(elements), total))[0];
        elements.Bind(reductions_[i].instruction, [result](int, const Index&) { return result; });
      }
      Values values;
      const Index index = Index::OfLinear(kernel_.tile());
      for (const Output& output : kernel_.outputs()) {
        values.push_back(elements.Emit(output.instruction, index, output.leaf));
      }
      for (size_t i = 0; i < values.size(); ++i) StoreTo(ir_, kernel_.outputs()[i].array, index, values[i]);
    });
  }

 private:
  Values Position() { return DimsOf(ir_, Index::OfLinear(kernel_.tile()), split_.Sizes(split_.kept)); }
  llvm::Value* At(size_t i, llvm::Value* thread) { return ir_.Address(types_[i], partial_[i], thread); }
  llvm::Value* Sum(size_t i, llvm::Value* a, llvm::Value* b) {
    llvm::Value* x = ir_.b.CreateLoad(types_[i], At(i, a));
    llvm::Value* y = ir_.b.CreateLoad(types_[i], At(i, b));
    return reductions_[i].reducer.Combine(kernel_.elements(), {x}, {y})[0];
  }

  KernelContext& kernel_;
  Ir& ir_;
  const BlockReduction& block_;
  const DimensionSplit split_;
  std::vector<Reduction> reductions_;
  std::vector<llvm::Type*> types_;
  Values partial_;
};

}  // namespace

void EmitBlockReduction(KernelContext& kernel, const BlockReduction& reduction, int part, SharedMemory* shared) {
  BlockReducer block(&kernel, reduction, shared);
  if (part == 0) return block.Reduce();
  if (part + 1 == reduction.parts()) return block.Finish();
  block.Halve(reduction.threads >> part);
}

}  // namespace xlad::compiler
