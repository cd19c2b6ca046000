// Element rules of reduce and reduce-window, which have an inner loop, and of map and gather.

#include <algorithm>
#include <map>

#include "base/containers.h"
#include "compiler/codegen/llvm/element_rules.h"
#include "compiler/codegen/llvm/reducer.h"

namespace xlad::compiler {
namespace {

using hlo::Instruction;
using hlo::Opcode;
using tensor::Dims;

Values Reduce(Elements& elements, const Instruction& reduce, const Index& index) {
  Ir& ir = elements.ir();
  const int64_t leaves = reduce.operand_count() / 2;
  const std::vector<tensor::Shape> shapes = LeafShapes(reduce.shape());
  const Values kept = DimsOf(ir, index, shapes[0].dims);
  const Reducer reducer(reduce.called()[0], shapes[0].type);
  Accumulators accumulators(&ir, shapes);
  Values initial;
  for (int64_t i = 0; i < leaves; ++i) initial.push_back(elements.EmitScalar(reduce.operand(leaves + i)));
  accumulators.Store(initial);
  Dims reduced;
  for (const int64_t d : reduce.dimensions()) reduced.push_back(reduce.operand(0)->shape().dim(d));
  ir.LoopNest(reduced, [&](const Values& inner) {
    Values dims(reduce.operand(0)->shape().ndim());
    size_t next = 0;
    for (int64_t d = 0; d < std::ssize(dims); ++d) {
      const auto at = std::find(reduce.dimensions().begin(), reduce.dimensions().end(), d);
      dims[d] =
          at == reduce.dimensions().end() ? kept[next++] : inner[at - reduce.dimensions().begin()];
    }
    Values values;
    for (int64_t i = 0; i < leaves; ++i) values.push_back(elements.Emit(reduce.operand(i), Index::Of(dims)));
    accumulators.Store(reducer.Combine(elements, accumulators.Load(), values));
  });
  return reducer.Round(ir, accumulators.Load());
}

Values ReduceWindow(Elements& elements, const Instruction& reduce, const Index& index) {
  Ir& ir = elements.ir();
  const int64_t leaves = reduce.operand_count() / 2;
  const std::vector<tensor::Shape> shapes = LeafShapes(reduce.shape());
  const Values out = DimsOf(ir, index, shapes[0].dims);
  const Reducer reducer(reduce.called()[0], shapes[0].type, true);
  const hlo::Window& window = *reduce.attributes().window;
  Accumulators accumulators(&ir, shapes);
  Values initial;
  for (int64_t i = 0; i < leaves; ++i) initial.push_back(elements.EmitScalar(reduce.operand(leaves + i)));
  accumulators.Store(initial);
  Dims sizes;
  for (const hlo::WindowDimension& d : window) sizes.push_back(d.size);
  ir.LoopNest(sizes, [&](const Values& inner) {
    const WindowPosition position = PositionInBase(ir, window, out, inner, reduce.operand(0)->shape().dims());
    ir.If(position.inside, [&] {
      Values values;
      for (int64_t i = 0; i < leaves; ++i) {
        values.push_back(elements.Emit(reduce.operand(i), Index::Of(position.index)));
      }
      accumulators.Store(reducer.Combine(elements, accumulators.Load(), values));
    });
  });
  return reducer.Round(ir, accumulators.Load());
}

Values Map(Elements& elements, const Instruction& map, const Index& index) {
  Values operands;
  for (const Instruction* operand : map.operands()) operands.push_back(elements.Emit(operand, index));
  return elements.Apply(*map.called()[0], operands);
}

// Maps an output element to an operand element. The operand's index is the sum of the start indices, clamped so that
// the slice fits, and the offsets. If a collapsed dimension has slice size 0, the output is 0.
Values Gather(Elements& elements, const Instruction& gather, const Index& index) {
  Ir& ir = elements.ir();
  const Instruction *operand = gather.operand(0), *indices = gather.operand(1);
  const hlo::GatherDimensions& n = *gather.attributes().gather;
  const Dims& slices = gather.attributes().slice_sizes;
  if (Contains(slices, 0)) return {llvm::Constant::getNullValue(RegisterType(ir.context(), gather.shape().type()))};
  const Values out = DimsOf(ir, index, gather.shape().dims());
  Values batch;
  for (size_t d = 0; d < out.size(); ++d) {
    if (!Contains(n.offset_dims, d)) batch.push_back(out[d]);
  }
  Values at(operand->shape().ndim(), ir.I64(0));
  for (int64_t i = 0; i < std::ssize(n.start_index_map); ++i) {
    const size_t d = n.start_index_map[i];
    llvm::Value* start = IndexComponent(elements, indices, n.index_vector_dim, batch, i);
    at[d] = ClampedIndex(ir, indices->shape().type(), start, operand->shape().dims()[d] - slices[d]);
  }
  for (size_t i = 0; i < n.operand_batching_dims.size(); ++i) {
    int64_t position = n.start_indices_batching_dims[i];
    if (position > n.index_vector_dim) --position;
    at[n.operand_batching_dims[i]] = batch[position];
  }
  size_t next = 0;
  for (size_t d = 0; d < at.size(); ++d) {
    const int64_t dim = d;
    if (Contains(n.collapsed_slice_dims, dim) || Contains(n.operand_batching_dims, dim)) continue;
    at[d] = ir.Add(at[d], out[n.offset_dims[next++]]);
  }
  return {elements.Emit(operand, Index::Of(at))};
}

}  // namespace

llvm::Value* IndexComponent(Elements& elements, const Instruction* indices, int64_t vector_dim, const Values& batch,
                            int64_t component) {
  Ir& ir = elements.ir();
  Values at = batch;
  if (vector_dim < indices->shape().ndim()) at.insert(at.begin() + vector_dim, ir.I64(component));
  llvm::Value* value = elements.Emit(indices, Index::Of(at));
  return tensor::IsSigned(indices->shape().type()) ? ir.b.CreateSExtOrTrunc(value, ir.b.getInt64Ty())
                                                   : ir.b.CreateZExtOrTrunc(value, ir.b.getInt64Ty());
}

WindowPosition PositionInBase(Ir& ir, const hlo::Window& window, const Values& out, const Values& inner,
                              const Dims& base) {
  WindowPosition position{ir.b.getTrue(), {}};
  for (size_t d = 0; d < window.size(); ++d) {
    const hlo::WindowDimension& w = window[d];
    llvm::Value* at = ir.Add(ir.Mul(out[d], w.stride), ir.Mul(inner[d], w.window_dilation));
    at = ir.AddSigned(at, -w.padding_low);
    // Base dilation inserts gaps between the elements of the base.
    const int64_t extent = base[d] == 0 ? 0 : (base[d] - 1) * w.base_dilation + 1;
    const bool fits = w.padding_low <= 0 && w.padding_high <= 0;
    if (!fits || extent == 0) position.inside = ir.b.CreateAnd(position.inside, ir.InRange(at, 0, extent));
    if (w.base_dilation != 1) {
      llvm::Value* on = ir.b.CreateICmpEQ(ir.b.CreateSRem(at, ir.I64(w.base_dilation)), ir.I64(0));
      position.inside = ir.b.CreateAnd(position.inside, on);
      at = ir.b.CreateSDiv(at, ir.I64(w.base_dilation));
    }
    position.index.push_back(at);
  }
  return position;
}

const std::map<Opcode, ElementRule>& LoopRules() {
  static const auto* const rules = new std::map<Opcode, ElementRule>{
      {Opcode::kReduce, Reduce},
      {Opcode::kReduceWindow, ReduceWindow},
      {Opcode::kDot, EmitDotElement},
      {Opcode::kConvolution, EmitConvolutionElement},
      {Opcode::kMap, Map},
      {Opcode::kGather, Gather},
      {Opcode::kRaggedDot, EmitRaggedDot},
  };
  return *rules;
}

ElementRule FindElementRule(Opcode opcode) {
  for (const auto* rules : {&IndexRules(), &LoopRules()}) {
    const auto found = rules->find(opcode);
    if (found != rules->end()) return found->second;
  }
  return nullptr;
}

}  // namespace xlad::compiler
