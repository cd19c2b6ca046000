// Whole reductions.
//
// Rows (the innermost dimension goes): one accumulator in a register for each result element, an inner loop that
// LLVM vectorises. Columns (the innermost dimension stays): a strip of accumulators along the innermost dimension,
// and for each reduced position one vectorised pass over the strip.
#include "compiler/llvm/reductions.h"

#include <algorithm>

#include "compiler/llvm/reducer.h"

namespace xlad::compiler {
namespace {

using hlo::Instruction;
using tensor::Dims;

// Elements of a strip: 4 KiB of f32, which stays in the first-level cache.
constexpr int64_t kStrip = 1024;

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

// The operand's dimensions, told apart.
struct Split {
  Dims sizes;                // Of the operand.
  std::vector<size_t> kept;  // Ascending.
  std::vector<size_t> reduced;
  bool columns = false;  // The innermost dimension (sizes of 1 aside) is kept, and there is something to reduce.

  explicit Split(const Instruction* reduce) : sizes(reduce->operand(0)->shape().dims()) {
    for (size_t d = 0; d < sizes.size(); ++d) {
      const Dims& dims = reduce->dimensions();
      const bool goes = std::find(dims.begin(), dims.end(), static_cast<int64_t>(d)) != dims.end();
      (goes ? reduced : kept).push_back(d);
      if (sizes[d] != 1) columns = !goes;
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

void EmitRows(Elements& elements, const Split& split, const std::vector<Reduction>& reductions,
              const ReductionSink& sink) {
  Ir& ir = elements.ir();
  ir.LoopNest(split.Sizes(split.kept), [&](const Values& kept) {
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
  Values kept;    // Index of the kept dimensions; at `column` it is to be filled in.
  size_t column;  // Position among the kept dimensions.
  llvm::Value* begin;
  int64_t width;
};

void EmitStrip(Elements& elements, const Split& split, const std::vector<Reduction>& reductions,
               const ReductionSink& sink, const Strip& strip) {
  Ir& ir = elements.ir();
  const int64_t width = strip.width;
  const auto kept_at = [&](llvm::Value* column) {
    Values kept = strip.kept;
    kept[strip.column] = ir.Add(strip.begin, column);
    return kept;
  };
  std::vector<Accumulators> accumulators;
  std::vector<Values> initial;
  for (const Reduction& reduction : reductions) {
    accumulators.emplace_back(&ir, reduction.shapes, width);
    initial.push_back(reduction.Initial(elements));
  }
  ir.Loop(width, [&](llvm::Value* column) {
    for (size_t i = 0; i < reductions.size(); ++i) accumulators[i].Store(initial[i], column);
  });
  ir.LoopNest(split.Sizes(split.reduced), [&](const Values& reduced) {
    ir.Loop(width, [&](llvm::Value* column) {
      const Index index = split.Join(kept_at(column), reduced);
      for (size_t i = 0; i < reductions.size(); ++i) {
        const Values values = reductions[i].Operands(elements, index);
        accumulators[i].Store(reductions[i].reducer.Combine(elements, accumulators[i].Load(column), values), column);
      }
    });
  });
  ir.Loop(width, [&](llvm::Value* column) {
    for (size_t i = 0; i < reductions.size(); ++i) {
      sink(i, Index::Of(kept_at(column)), reductions[i].reducer.Round(ir, accumulators[i].Load(column)));
    }
  });
}

void EmitColumns(Elements& elements, const Split& split, const std::vector<Reduction>& reductions,
                 const ReductionSink& sink) {
  Ir& ir = elements.ir();
  Dims outer = split.Sizes(split.kept);
  size_t column = outer.size() - 1;
  while (outer[column] == 1) --column;
  const int64_t columns = outer[column];
  outer[column] = 1;
  ir.LoopNest(outer, [&](const Values& at) {
    const int64_t strips = columns / kStrip;
    ir.Loop(strips, [&](llvm::Value* strip) {
      EmitStrip(elements, split, reductions, sink, {at, column, ir.Mul(strip, kStrip), kStrip});
    });
    if (columns % kStrip != 0) {
      EmitStrip(elements, split, reductions, sink, {at, column, ir.I64(strips * kStrip), columns % kStrip});
    }
  });
}

}  // namespace

void EmitReductions(Elements& elements, const std::vector<const Instruction*>& instructions,
                    const ReductionSink& sink) {
  const Split split(instructions[0]);
  std::vector<Reduction> reductions;
  for (const Instruction* instruction : instructions) reductions.emplace_back(instruction);
  if (split.columns) {
    EmitColumns(elements, split, reductions, sink);
  } else {
    EmitRows(elements, split, reductions, sink);
  }
}

}  // namespace xlad::compiler
