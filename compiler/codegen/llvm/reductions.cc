// There are two loop orders. If the innermost dimension is reduced (rows), a result element may have lanes, that is,
// several accumulators, which are combined at the end (HasLanes). Otherwise, reducers of tuples reduce eight rows
// together if there are enough rows (AreReducedTogether), and others reduce one row after another. If the innermost
// dimension is kept (columns), there is a strip of accumulators along it, and a vectorized pass over the strip for each
// reduced position.
#include "compiler/codegen/llvm/reductions.h"

#include <algorithm>
#include <functional>
#include <set>

#include "base/containers.h"
#include "base/powers_of_two.h"
#include "compiler/analysis/plain_reducer.h"
#include "compiler/codegen/llvm/lanes.h"
#include "compiler/codegen/llvm/reduction_form.h"
#include "compiler/codegen/llvm/scalar_ops.h"

namespace xlad::compiler {
namespace {

using hlo::Instruction;
using tensor::Dims;

// The maximum number of accumulators of all copies of a narrow strip.
constexpr int64_t kNarrow = 256;
// Rows with fewer elements have one accumulator.
constexpr int64_t kMinLaneElements = 8;
// The number of rows that are reduced together. A first-level cache keeps at least this many lines at the same offset
// in different pages, so that rows of 4 KiB do not replace each other.
constexpr int64_t kRowsTogether = 8;

// Reduces one row, one element after another.
void EmitRowInOrder(Elements& elements, const DimensionSplit& split, const std::vector<Reduction>& reductions,
                    const Values& kept, const ReductionSink& sink) {
  Ir& ir = elements.ir();
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
}

void EmitRowsInOrder(Elements& elements, const DimensionSplit& split, const std::vector<Reduction>& reductions,
                     const TileRange& range, const ReductionSink& sink) {
  Ir& ir = elements.ir();
  const Dims sizes = split.Sizes(split.kept);
  ForPositions(ir, range, sizes, [&](const Index& position) {
    EmitRowInOrder(elements, split, reductions, DimsOf(ir, position, sizes), sink);
  });
}

// The indices of the kept dimensions of kRowsTogether successive rows. They are computed once, because the loops over
// the rows are the innermost loops, and divisions in them would cost more than the reductions.
class RowIndices {
 public:
  RowIndices(Ir* ir, Dims sizes) : ir_(*ir), sizes_(std::move(sizes)) {
    for (size_t d = 0; d < sizes_.size(); ++d) slots_.push_back(ir_.Slot(ir_.b.getInt64Ty(), kRowsTogether));
  }
  void Start(llvm::Value* first) {
    first_ = first;
    if (sizes_.size() == 1) return;
    ir_.Loop(kRowsTogether, [&](llvm::Value* row) {
      const Values dims = DimsOf(ir_, Index::OfLinear(Position(row)), sizes_);
      for (size_t d = 0; d < dims.size(); ++d) ir_.b.CreateStore(dims[d], Address(d, row));
    });
  }
  llvm::Value* Position(llvm::Value* row) { return ir_.Add(first_, row); }
  Values At(llvm::Value* row) {
    if (sizes_.size() == 1) return {Position(row)};
    Values dims;
    for (size_t d = 0; d < sizes_.size(); ++d) {
      dims.push_back(sizes_[d] == 1 ? ir_.I64(0) : ir_.b.CreateLoad(ir_.b.getInt64Ty(), Address(d, row)));
    }
    return dims;
  }

 private:
  llvm::Value* Address(size_t d, llvm::Value* row) { return ir_.Address(ir_.b.getInt64Ty(), slots_[d], row); }

  Ir& ir_;
  const Dims sizes_;
  Values slots_;
  llvm::Value* first_ = nullptr;
};

// Reduces kRowsTogether rows, each in order. At least one dimension is kept, because AreReducedTogether requires
// several rows. At least one is reduced, because otherwise the innermost dimension would be kept (columns).
void EmitGroupOfRows(Elements& elements, const DimensionSplit& split, const std::vector<Reduction>& reductions,
                     RowIndices& rows, const ReductionSink& sink) {
  Ir& ir = elements.ir();
  std::vector<Accumulators> accumulators;
  std::vector<Values> initial;
  for (const Reduction& reduction : reductions) {
    accumulators.emplace_back(&ir, reduction.shapes, kRowsTogether);
    initial.push_back(reduction.Initial(elements));
  }
  ir.Loop(kRowsTogether, [&](llvm::Value* row) {
    for (size_t i = 0; i < reductions.size(); ++i) accumulators[i].Store(initial[i], row);
  });
  const Dims sizes = split.Sizes(split.reduced);
  const bool are_adjacent = split.kept.back() < split.reduced.front();
  ir.LoopNest(sizes, [&](const Values& reduced) {
    llvm::Value* in_row = LinearOf(ir, Index::Of(reduced), sizes);
    ir.Loop(kRowsTogether, [&](llvm::Value* row) {
      Index index = split.Join(rows.At(row), reduced);
      if (are_adjacent) index.linear = ir.Add(ir.Mul(rows.Position(row), tensor::Product(sizes)), in_row);
      for (size_t i = 0; i < reductions.size(); ++i) {
        const Values values = reductions[i].Operands(elements, index);
        accumulators[i].Store(reductions[i].reducer.Combine(elements, accumulators[i].Load(row), values), row);
      }
    });
  });
  ir.Loop(kRowsTogether, [&](llvm::Value* row) {
    const Values kept = rows.At(row);
    for (size_t i = 0; i < reductions.size(); ++i) {
      sink(i, Index::Of(kept), reductions[i].reducer.Round(ir, accumulators[i].Load(row)));
    }
  });
}

// A reducer of tuples, such as that of argmax, combines the elements of a row in order, and each step waits for the
// result of the one before it. Therefore LLVM vectorizes loops over several rows.
void EmitRowsTogether(KernelContext& kernel, const DimensionSplit& split, const std::vector<Reduction>& reductions,
                      const ReductionSink& sink) {
  Ir& ir = kernel.ir();
  const TileRange& range = kernel.range();
  const Dims sizes = split.Sizes(split.kept);
  llvm::Value* begin = range.is_whole() ? ir.I64(0) : range.begin;
  llvm::Value* end = range.is_whole() ? ir.I64(tensor::Product(sizes)) : range.end;
  llvm::Value* count = ir.b.CreateSub(end, begin);
  llvm::Value* groups = ir.Div(count, kRowsTogether);
  RowIndices rows(&ir, sizes);
  ir.DynamicLoop(groups, [&](llvm::Value* group) {
    rows.Start(ir.Add(begin, ir.Mul(group, kRowsTogether)));
    EmitGroupOfRows(kernel.elements(), split, reductions, rows, sink);
  });
  llvm::Value* done = ir.Add(begin, ir.Mul(groups, kRowsTogether));
  ir.DynamicLoop(ir.b.CreateSub(end, done), [&](llvm::Value* rest) {
    const Values kept = DimsOf(ir, Index::OfLinear(ir.Add(done, rest)), sizes);
    EmitRowInOrder(kernel.elements(), split, reductions, kept, sink);
  });
}

// Calls `body` for each reduced position with its index and the copy in which it is accumulated. Positions of dimension
// `rotating` use the copies in rotation. If there are several copies, this dimension is the innermost loop.
void ForReduced(Ir& ir, const Dims& sizes, size_t rotating, int64_t copies,
                const std::function<void(const Values& reduced, llvm::Value* copy)>& body) {
  if (copies == 1) {
    ir.LoopNest(sizes, [&](const Values& reduced) { body(reduced, ir.I64(0)); });
    return;
  }
  Dims others = sizes;
  others[rotating] = 1;
  const int64_t turns = sizes[rotating] / copies;
  ir.LoopNest(others, [&](const Values& at) {
    const auto turn = [&](llvm::Value* begin, int64_t count) {
      ir.Loop(count, [&](llvm::Value* copy) {
        Values reduced = at;
        reduced[rotating] = ir.Add(begin, copy);
        body(reduced, copy);
      });
    };
    ir.Loop(turns, [&](llvm::Value* number) { turn(ir.Mul(number, copies), copies); });
    turn(ir.I64(turns * copies), sizes[rotating] % copies);
  });
}

// Whether the elements of values are computed without the separate indices of dimension `first` and the dimensions
// after it: the row-major position and the indices of the dimensions before it are enough.
class IndexCheck {
 public:
  IndexCheck(const Elements& elements, int64_t first) : elements_(elements), first_(first) {}

  bool Passes(const Instruction* value) {
    if (elements_.IsBound(value) || value->shape().is_scalar() || !known_.insert(value).second) return true;
    const Dims& dims = value->dimensions();
    switch (value->opcode()) {
      case hlo::Opcode::kConstant:
        return true;
      case hlo::Opcode::kBroadcast:
      case hlo::Opcode::kIota:
        return std::all_of(dims.begin(), dims.end(), [&](int64_t d) { return d < first_; });
      case hlo::Opcode::kReshape:
        return elements_.IsBound(value->operand(0));
      default:
        return HasScalarOp(*value) && std::all_of(value->operands().begin(), value->operands().end(),
                                                  [&](const Instruction* operand) { return Passes(operand); });
    }
  }

 private:
  const Elements& elements_;
  const int64_t first_;
  std::set<const Instruction*> known_;
};

// How a row is divided into lanes. A run is the last reduced dimensions, which are adjacent in memory. Element i of a
// run uses lane i modulo `lanes`. If runs are short, there are copies of the lanes, which the runs use in rotation. The
// last elements of a run that fill only a part of the lanes have lanes of their own: a processor waits if it loads a
// vector that it has just stored in smaller pieces.
struct RowLanes {
  size_t first = 0;               // The first dimension of a run.
  Dims outer;                     // The sizes of the reduced dimensions before it.
  size_t rotating = 0;            // The largest outer dimension.
  int64_t run = 1;                // The number of elements of a run.
  int64_t lanes = 1, copies = 1;  // Powers of two.
  int64_t first_of_rest = 0;      // The first lane of the last run % lanes elements, in the first copy.

  RowLanes(const Elements& elements, const DimensionSplit& split, const std::vector<Reduction>& reductions)
      : first(split.sizes.size()) {
    const auto is_reduced = [&](size_t d) { return Contains(split.reduced, d); };
    while (first > 0 && (is_reduced(first - 1) || split.sizes[first - 1] == 1)) run *= split.sizes[--first];
    IndexCheck check(elements, static_cast<int64_t>(first));
    const bool is_linear = std::all_of(reductions.begin(), reductions.end(), [&](const Reduction& reduction) {
      return check.Passes(reduction.instruction->operand(0));
    });
    // Otherwise, a run of several dimensions would divide positions into indices, which is slow.
    if (!is_linear) {
      run = 1;
      for (first = split.sizes.size(); run == 1;) run *= split.sizes[--first];
    }
    for (const size_t d : split.reduced) {
      if (d < first) outer.push_back(split.sizes[d]);
    }
    lanes = PowerOfTwoAtMost(std::min(kMaxReductionLanes, run));
    if (tensor::Product(outer) == 1) return;
    rotating = std::max_element(outer.begin(), outer.end()) - outer.begin();
    copies = PowerOfTwoAtMost(std::min(outer[rotating], kMaxReductionLanes / lanes));
    if (run % lanes != 0) first_of_rest = lanes * copies;
  }
  // The number of lanes of all copies, a power of two.
  int64_t all_lanes() const { return lanes * copies + first_of_rest; }

  // The index of element `at` of a run.
  Index At(Ir& ir, const DimensionSplit& split, const Values& kept, const Values& of_outer, llvm::Value* at) const {
    Values dims(split.sizes.size());
    for (size_t i = 0; i < split.kept.size(); ++i) dims[split.kept[i]] = kept[i];
    for (size_t i = 0; i < of_outer.size(); ++i) dims[split.reduced[i]] = of_outer[i];
    const Dims of_run(split.sizes.begin() + first, split.sizes.end());
    const Values in_run = DimsOf(ir, Index::OfLinear(at), of_run);
    std::copy(in_run.begin(), in_run.end(), dims.begin() + first);
    llvm::Value* row = LinearOf(ir, Index::Of(Values(dims.begin(), dims.begin() + first)),
                                Dims(split.sizes.begin(), split.sizes.begin() + first));
    return {dims, ir.Add(ir.Mul(row, run), at), true};
  }
};

// The lanes of all reductions of a row.
class LaneSums {
 public:
  LaneSums(KernelContext* kernel, const std::vector<Reduction>& reductions, int64_t count)
      : elements_(kernel->elements()), ir_(kernel->ir()), reductions_(reductions) {
    for (const Reduction& reduction : reductions) {
      const tensor::Shape& shape = reduction.shapes[0];
      accumulators_.emplace_back(&ir_, reduction.shapes, count);
      llvm::Type* type = RegisterType(ir_.context(), shape.type);
      const int64_t bytes = static_cast<int64_t>(type->getScalarSizeInBits() / 8);
      lanes_.push_back({accumulators_.back().base(), type, count, std::min(count, kernel->vector_bytes() / bytes)});
    }
  }
  void Start() {
    for (size_t i = 0; i < lanes_.size(); ++i) FillLanes(ir_, lanes_[i], reductions_[i].reducer.Neutral(ir_));
  }
  void Add(llvm::Value* lane, const Index& index) {
    for (size_t i = 0; i < lanes_.size(); ++i) {
      const Values values = reductions_[i].Operands(elements_, index);
      accumulators_[i].Store(reductions_[i].reducer.Combine(elements_, accumulators_[i].Load(lane), values), lane);
    }
  }
  Values Total(size_t i) {
    const Reducer& reducer = reductions_[i].reducer;
    const auto combine = [&](llvm::Value* x, llvm::Value* y) { return reducer.Combine(elements_, {x}, {y})[0]; };
    const Values total = {CombineLanes(ir_, lanes_[i], combine)};
    return reducer.Round(ir_, reducer.Combine(elements_, reductions_[i].Initial(elements_), total));
  }

 private:
  Elements& elements_;
  Ir& ir_;
  const std::vector<Reduction>& reductions_;
  std::vector<Accumulators> accumulators_;
  std::vector<Lanes> lanes_;
};

void EmitRowsInLanes(KernelContext& kernel, const DimensionSplit& split, const std::vector<Reduction>& reductions,
                     const ReductionSink& sink) {
  Ir& ir = kernel.ir();
  const RowLanes form(kernel.elements(), split, reductions);
  const Dims sizes = split.Sizes(split.kept);
  LaneSums sums(&kernel, reductions, form.all_lanes());
  ForPositions(ir, kernel.range(), sizes, [&](const Index& position) {
    const Values kept = DimsOf(ir, position, sizes);
    sums.Start();
    ForReduced(ir, form.outer, form.rotating, form.copies, [&](const Values& outer, llvm::Value* copy) {
      llvm::Value* of_copy = ir.Mul(copy, form.lanes);
      const auto part = [&](llvm::Value* begin, int64_t count, llvm::Value* first_lane) {
        ir.Loop(count, [&](llvm::Value* lane) {
          const Index index = form.At(ir, split, kept, outer, ir.Add(begin, lane));
          sums.Add(ir.Add(first_lane, lane), index);
        });
      };
      const int64_t parts = form.run / form.lanes, rest = form.run % form.lanes;
      ir.Loop(parts, [&](llvm::Value* number) { part(ir.Mul(number, form.lanes), form.lanes, of_copy); });
      // The sizes of the other parts are powers of two. LLVM would compute 9 elements by two vectors with masks.
      for (int64_t done = 0; done < rest; done += PowerOfTwoAtMost(rest - done)) {
        part(ir.I64(parts * form.lanes + done), PowerOfTwoAtMost(rest - done),
             ir.Add(of_copy, ir.I64(form.first_of_rest + done)));
      }
    });
    for (size_t i = 0; i < reductions.size(); ++i) sink(i, Index::Of(kept), sums.Total(i));
  });
}

// Whether all reductions are sums or products of floats, or maxima or minima of f32 or f64, and rows are long enough
// for several lanes. Maxima and minima of smaller floats are rounded one element at a time, but lanes are combined as
// vectors.
bool HasLanes(KernelContext& kernel, const DimensionSplit& split, const std::vector<Reduction>& reductions) {
  if (!kernel.has_vectors() || tensor::Product(split.sizes) == 0 ||
      tensor::Product(split.Sizes(split.reduced)) < kMinLaneElements) {
    return false;
  }
  return std::all_of(reductions.begin(), reductions.end(), [&](const Reduction& reduction) {
    if (reduction.leaves != 1 || reduction.reducer.Neutral(kernel.ir()) == nullptr) return false;
    const hlo::Computation& reducer = *reduction.instruction->called()[0];
    const std::optional<hlo::Opcode> plain = PlainReducer(reducer);
    return plain == hlo::Opcode::kAdd || plain == hlo::Opcode::kMultiply || IsReorderableFloat(reducer);
  });
}

// Whether a reducer combines tuples, and there are enough rows. Sums and products of floats are excluded, because their
// order in a group of rows would differ from that in the rows that remain.
bool AreReducedTogether(KernelContext& kernel, const DimensionSplit& split, const std::vector<Reduction>& reductions) {
  if (!kernel.has_vectors() || kernel.range().thread != nullptr) return false;
  if (tensor::Product(split.Sizes(split.kept)) < kRowsTogether) return false;
  const auto is_tuple = [](const Reduction& reduction) { return reduction.leaves > 1; };
  return std::any_of(reductions.begin(), reductions.end(), is_tuple) &&
         std::none_of(reductions.begin(), reductions.end(), [&](const Reduction& reduction) {
           return reduction.leaves == 1 && reduction.reducer.has_free_order();
         });
}

void EmitRows(KernelContext& kernel, const DimensionSplit& split, const std::vector<Reduction>& reductions,
              const ReductionSink& sink) {
  if (HasLanes(kernel, split, reductions)) return EmitRowsInLanes(kernel, split, reductions, sink);
  if (AreReducedTogether(kernel, split, reductions)) return EmitRowsTogether(kernel, split, reductions, sink);
  EmitRowsInOrder(kernel.elements(), split, reductions, kernel.range(), sink);
}

struct Strip {
  Values kept;    // The index of the kept dimensions. Its entry `column` is set later.
  size_t column;  // A position among the kept dimensions.
  llvm::Value* begin;
  int64_t width;
};

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
// several copies, at most as many as the size of the dimension that uses them in rotation.
int64_t CopiesOf(Ir& ir, const std::vector<Reduction>& reductions, int64_t width, int64_t size) {
  for (const Reduction& reduction : reductions) {
    if (reduction.leaves != 1 || reduction.reducer.Neutral(ir) == nullptr) return 1;
  }
  return std::max<int64_t>(1, std::min(size, kNarrow / width));
}

void EmitStrip(Elements& elements, const DimensionSplit& split, const std::vector<Reduction>& reductions,
               const ReductionSink& sink, const Strip& strip) {
  Ir& ir = elements.ir();
  const Dims sizes = split.Sizes(split.reduced);
  size_t rotating = sizes.empty() ? 0 : sizes.size() - 1;  // Positions are in the order of memory.
  while (rotating > 0 && sizes[rotating] == 1) --rotating;
  const int64_t copies = CopiesOf(ir, reductions, strip.width, sizes.empty() ? 1 : sizes[rotating]);
  const auto kept_at = [&](llvm::Value* column) {
    Values kept = strip.kept;
    kept[strip.column] = ir.Add(strip.begin, column);
    return kept;
  };
  StripSums sums(&elements, reductions, strip.width, copies);
  ForReduced(ir, sizes, rotating, copies, [&](const Values& reduced, llvm::Value* copy) {
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

void EmitReductions(KernelContext& kernel, const std::vector<const Instruction*>& instructions,
                    const ReductionSink& sink) {
  const DimensionSplit split(instructions[0]);
  std::vector<Reduction> reductions;
  for (const Instruction* instruction : instructions) reductions.emplace_back(instruction);
  // On a GPU, a thread computes one result, so that adjacent threads read adjacent elements of columns.
  if (split.columns && kernel.range().thread == nullptr) {
    EmitColumns(kernel.elements(), split, reductions, kernel.range(), sink);
  } else {
    EmitRows(kernel, split, reductions, sink);
  }
}

}  // namespace xlad::compiler
