// Kernels that change a part of an array: dynamic-update-slice and scatter.
#include <algorithm>
#include <functional>

#include "base/containers.h"
#include "compiler/codegen/llvm/element_rules.h"
#include "compiler/codegen/llvm/kernel.h"
#include "compiler/codegen/llvm/reducer.h"

namespace xlad::compiler {
namespace {

using hlo::Instruction;
using tensor::Dims;

// There is one thread for each element of the update or, if the operand must be copied, for each element of the result.
void UpdateByThreads(KernelContext& kernel, const Instruction& root) {
  Ir& ir = kernel.ir();
  const Output& output = kernel.outputs()[0];
  const Dims& sizes = output.in_place ? root.operand(1)->shape().dims() : output.array.shape.dims;
  kernel.DivideThreads(tensor::Product(sizes));
  ForPositions(ir, kernel.range(), sizes, [&](const Index& index) {
    if (!output.in_place) return StoreTo(ir, output.array, index, kernel.elements().Emit(&root, index));
    const Values starts = SliceStarts(kernel.elements(), root, 2, root.shape().dims(), sizes);
    Values at = DimsOf(ir, index, sizes);
    llvm::Value* value = kernel.elements().Emit(root.operand(1), Index::Of(at));
    for (size_t d = 0; d < at.size(); ++d) at[d] = ir.Add(starts[d], at[d]);
    StoreTo(ir, output.array, Index::Of(at), value);
  });
}

// The position that an update element of a scatter changes, and whether the window of the element is inside the
// operand.
struct Target {
  Values position;
  llvm::Value* inside;
};

Target TargetOf(Elements& elements, const Instruction& root, const Values& at) {
  Ir& ir = elements.ir();
  const auto inputs = root.operand_count() / 2;
  const Instruction* indices = root.operand(inputs);
  const Instruction* first = root.operand(inputs + 1);
  const hlo::ScatterDimensions& n = *root.attributes().scatter;
  const Dims& sizes = root.operand(0)->shape().dims();
  Values batch, window;
  for (int64_t d = 0; d < std::ssize(at); ++d) {
    (Contains(n.update_window_dims, d) ? window : batch).push_back(at[d]);
  }
  Target target{Values(sizes.size(), ir.I64(0)), ir.b.getTrue()};
  for (int64_t i = 0; i < std::ssize(n.scatter_dims_to_operand_dims); ++i) {
    target.position[n.scatter_dims_to_operand_dims[i]] =
        IndexComponent(elements, indices, n.index_vector_dim, batch, i);
  }
  for (size_t i = 0; i < n.input_batching_dims.size(); ++i) {
    int64_t from = n.scatter_indices_batching_dims[i];
    if (from > n.index_vector_dim) --from;
    target.position[n.input_batching_dims[i]] = batch[from];
  }
  size_t next = 0;
  for (size_t d = 0; d < sizes.size(); ++d) {
    const int64_t dim = d;
    const bool has_window = !Contains(n.inserted_window_dims, dim) && !Contains(n.input_batching_dims, dim);
    const bool has_index = Contains(n.scatter_dims_to_operand_dims, dim);
    const int64_t window_size = has_window ? first->shape().dim(n.update_window_dims[next]) : 1;
    llvm::Value*& place = target.position[d];
    if (has_index) target.inside = ir.b.CreateAnd(target.inside, ir.InRange(place, 0, sizes[d] - window_size + 1));
    if (has_window) place = has_index ? ir.b.CreateAdd(place, window[next]) : window[next];
    if (has_window) ++next;
  }
  return target;
}

// Applies the update elements at index `at`.
void ApplyUpdate(KernelContext& kernel, const Instruction& root, const Values& at) {
  Ir& ir = kernel.ir();
  const size_t inputs = root.operand_count() / 2;
  const Target target = TargetOf(kernel.elements(), root, at);
  const Index place = Index::Of(target.position);
  ir.If(target.inside, [&] {
    const std::vector<Output> outputs = kernel.outputs();
    Values arguments;
    for (size_t i = 0; i < inputs; ++i) arguments.push_back(LoadFrom(ir, outputs[i].array, place));
    for (size_t i = 0; i < inputs; ++i) {
      arguments.push_back(kernel.elements().Emit(root.operand(inputs + 1 + i), Index::Of(at)));
    }
    const Values results = kernel.elements().Apply(*root.called()[0], arguments);
    for (size_t i = 0; i < inputs; ++i) StoreTo(ir, outputs[i].array, place, results[i]);
  });
}

// The dimensions of the operand whose index depends only on the index in the update, each with the corresponding
// dimension of the update. Threads with different indices in these dimensions change different elements.
struct OwnDims {
  std::vector<size_t> operand, update;
};

OwnDims OwnDimsOf(const Instruction& root) {
  const hlo::ScatterDimensions& n = *root.attributes().scatter;
  OwnDims own;
  size_t next = 0;
  for (int64_t d = 0; d < root.operand(0)->shape().ndim(); ++d) {
    const bool has_window = !Contains(n.inserted_window_dims, d) && !Contains(n.input_batching_dims, d);
    if (!has_window) continue;
    const size_t update = n.update_window_dims[next++];
    if (Contains(n.scatter_dims_to_operand_dims, d)) continue;
    own.operand.push_back(d);
    own.update.push_back(update);
  }
  return own;
}

// There is one thread for each index of the OwnDims of the operand. A thread applies all updates of its elements, in
// order.
void ScatterByThreads(KernelContext& kernel, const Instruction& root) {
  Ir& ir = kernel.ir();
  const std::vector<Output> outputs = kernel.outputs();
  const Dims& sizes = outputs[0].array.shape.dims;
  const Dims& updates = root.operand(root.operand_count() / 2 + 1)->shape().dims();
  const OwnDims own = OwnDimsOf(root);
  Dims positions;
  for (const size_t d : own.operand) positions.push_back(sizes[d]);
  kernel.DivideThreads(tensor::Product(positions));
  ForPositions(ir, kernel.range(), positions, [&](const Index& index) {
    const Values mine = DimsOf(ir, index, positions);
    ForOthers(ir, sizes, own.operand, mine, [&](const Values& at) {
      for (int64_t i = 0; i < std::ssize(outputs); ++i) {
        if (outputs[i].in_place) continue;
        llvm::Value* value = kernel.elements().Emit(root.operand(i), Index::Of(at));
        StoreTo(ir, outputs[i].array, Index::Of(at), value);
      }
    });
    if (tensor::Product(updates) == 0) return;
    llvm::Value* has_updates = ir.b.getTrue();
    for (size_t i = 0; i < mine.size(); ++i) {
      has_updates = ir.b.CreateAnd(has_updates, ir.InRange(mine[i], 0, updates[own.update[i]]));
    }
    ir.If(has_updates,
          [&] { ForOthers(ir, updates, own.update, mine, [&](const Values& at) { ApplyUpdate(kernel, root, at); }); });
  });
}

// The number of columns of a tile, or 0 if the scatter is not divided. The last dimension of the operand must be one of
// its OwnDims. Every tile reads all indices, so narrow tiles would take longer together than one tile.
int64_t ScatterStrip(const Instruction& root, int64_t tiles) {
  constexpr int64_t kMinWidth = 32, kUsualWidth = 64;
  const Dims& sizes = root.operand(0)->shape().dims();
  const OwnDims own = OwnDimsOf(root);
  if (tiles <= 1 || own.operand.empty() || own.operand.back() + 1 != sizes.size()) return 0;
  const int64_t columns = sizes.back();
  if (root.operand(root.operand_count() / 2 + 1)->shape().dims()[own.update.back()] != columns) return 0;
  for (int64_t parts = std::min(tiles, std::max<int64_t>(2, columns / kUsualWidth)); parts > 1; --parts) {
    if (columns % (parts * kMinWidth) == 0) return columns / parts;
  }
  return 0;
}

void ScatterByStrips(KernelContext& kernel, const Instruction& root, int64_t width) {
  Ir& ir = kernel.ir();
  const std::vector<Output> outputs = kernel.outputs();
  const OwnDims own = OwnDimsOf(root);
  const int64_t columns = outputs[0].array.shape.dims.back();
  kernel.Divide({columns, columns, width, 1});
  // Calls `body` for all indices of `sizes` whose index in dimension `along` is one of the tile's columns.
  const auto for_strip = [&](Dims sizes, size_t along, const std::function<void(const Values&)>& body) {
    sizes[along] = width;
    ir.LoopNest(sizes, [&](Values at) {
      at[along] = ir.Add(kernel.range().begin, at[along]);
      body(at);
    });
  };
  for (int64_t i = 0; i < std::ssize(outputs); ++i) {
    if (outputs[i].in_place) continue;
    for_strip(outputs[i].array.shape.dims, own.operand.back(), [&](const Values& at) {
      llvm::Value* value = kernel.elements().Emit(root.operand(i), Index::Of(at));
      StoreTo(ir, outputs[i].array, Index::Of(at), value);
    });
  }
  for_strip(root.operand(root.operand_count() / 2 + 1)->shape().dims(), own.update.back(),
            [&](const Values& at) { ApplyUpdate(kernel, root, at); });
}

}  // namespace

void EmitDynamicUpdateSlice(KernelContext& kernel, const Instruction& root) {
  if (kernel.has_threads()) return UpdateByThreads(kernel, root);
  Ir& ir = kernel.ir();
  const Instruction* operand = root.operand(0);
  const Instruction* update = root.operand(1);
  const Output& output = kernel.outputs()[0];
  ArrayView ready;
  if (!output.in_place) {
    EmitArray(kernel, operand, 0, output.array);
  } else if (operand->users().size() > 1) {
    // The update may read other elements of the operand, so it is computed before anything is written.
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
// is skipped completely. Tiles compute different columns, so that they change different elements.
void EmitScatter(KernelContext& kernel, const Instruction& root) {
  if (kernel.has_threads()) return ScatterByThreads(kernel, root);
  if (const int64_t width = ScatterStrip(root, kernel.wanted_tiles()); width > 0) {
    return ScatterByStrips(kernel, root, width);
  }
  const int64_t inputs = root.operand_count() / 2;
  for (int64_t i = 0; i < inputs; ++i) {
    const Output output = kernel.outputs()[i];
    if (!output.in_place) EmitArray(kernel, root.operand(i), 0, output.array);
  }
  const Instruction* first = root.operand(inputs + 1);
  kernel.ir().LoopNest(first->shape().dims(), [&](const Values& at) { ApplyUpdate(kernel, root, at); });
}

}  // namespace xlad::compiler
