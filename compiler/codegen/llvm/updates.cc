// Kernels that change a part of an array: dynamic-update-slice and scatter.
#include <algorithm>

#include "base/containers.h"
#include "compiler/codegen/llvm/element_rules.h"
#include "compiler/codegen/llvm/kernel.h"
#include "compiler/codegen/llvm/reducer.h"

namespace xlad::compiler {
namespace {

using hlo::Instruction;
using tensor::Dims;

}  // namespace

void EmitDynamicUpdateSlice(KernelContext& kernel, const Instruction& root) {
  Ir& ir = kernel.ir();
  const Instruction* operand = root.operand(0);
  const Instruction* update = root.operand(1);
  const Output& output = kernel.outputs()[0];
  ArrayView ready;
  if (!output.in_place) {
    EmitArray(kernel, operand, 0, output.array);
  } else if (operand->users().size() > 1) {
    // The update reads other elements of the operand, so it is computed before anything is written.
    ready = kernel.Scratch(update->shape().array());
    EmitArray(kernel, update, 0, ready);
    kernel.elements().BindArrays(update, {ready});
  }
  const Dims& sizes = update->shape().dims();
  const Values starts = SliceStarts(kernel.elements(), root, 2, root.shape().dims(), sizes);
  ir.LoopNest(sizes, [&](const Values& dims) {
    llvm::Value* value = kernel.elements().Emit(update, Index::Of(dims));
    Values at = dims;
    for (size_t d = 0; d < at.size(); ++d) at[d] = ir.Add(starts[d], at[d]);
    StoreTo(ir, output.array, Index::Of(at), value);
  });
}

// Updates are applied one after the other, in row-major order of the updates. A window that is not inside the operand
// is skipped completely.
void EmitScatter(KernelContext& kernel, const Instruction& root) {
  Ir& ir = kernel.ir();
  Elements& elements = kernel.elements();
  const size_t inputs = root.operand_count() / 2;
  const Instruction* indices = root.operand(inputs);
  const hlo::ScatterDimensions& n = *root.attributes().scatter;
  const std::vector<Output> outputs = kernel.outputs();
  for (size_t i = 0; i < inputs; ++i) {
    if (!outputs[i].in_place) EmitArray(kernel, root.operand(i), 0, outputs[i].array);
  }
  const Dims& sizes = outputs[0].array.shape.dims;
  const Instruction* first = root.operand(inputs + 1);
  ir.LoopNest(first->shape().dims(), [&](const Values& at) {
    Values batch, window;
    for (size_t d = 0; d < at.size(); ++d) {
      (Contains(n.update_window_dims, static_cast<int64_t>(d)) ? window : batch).push_back(at[d]);
    }
    Values position(sizes.size(), ir.I64(0));
    for (size_t i = 0; i < n.scatter_dims_to_operand_dims.size(); ++i) {
      position[n.scatter_dims_to_operand_dims[i]] =
          IndexComponent(elements, indices, n.index_vector_dim, batch, static_cast<int64_t>(i));
    }
    for (size_t i = 0; i < n.input_batching_dims.size(); ++i) {
      int64_t from = n.scatter_indices_batching_dims[i];
      if (from > n.index_vector_dim) --from;
      position[n.input_batching_dims[i]] = batch[from];
    }
    llvm::Value* inside = ir.b.getTrue();
    size_t next = 0;
    for (size_t d = 0; d < sizes.size(); ++d) {
      const int64_t dim = d;
      const bool has_window = !Contains(n.inserted_window_dims, dim) && !Contains(n.input_batching_dims, dim);
      const bool has_index = Contains(n.scatter_dims_to_operand_dims, dim);
      const int64_t window_size = has_window ? first->shape().dim(n.update_window_dims[next]) : 1;
      if (has_index) inside = ir.b.CreateAnd(inside, ir.InRange(position[d], 0, sizes[d] - window_size + 1));
      if (has_window) position[d] = has_index ? ir.b.CreateAdd(position[d], window[next]) : window[next];
      if (has_window) ++next;
    }
    ir.If(inside, [&] {
      Values arguments;
      for (size_t i = 0; i < inputs; ++i) arguments.push_back(LoadFrom(ir, outputs[i].array, Index::Of(position)));
      for (size_t i = 0; i < inputs; ++i) {
        arguments.push_back(elements.Emit(root.operand(inputs + 1 + i), Index::Of(at)));
      }
      const Values results = elements.Apply(*root.called()[0], arguments);
      for (size_t i = 0; i < inputs; ++i) StoreTo(ir, outputs[i].array, Index::Of(position), results[i]);
    });
  });
}

}  // namespace xlad::compiler
