// Kernels whose results depend on the order of their steps: scan, select-and-scatter.
#include "base/rounding.h"
#include "compiler/analysis/kernel_cost.h"
#include "compiler/codegen/llvm/element_rules.h"
#include "compiler/codegen/llvm/kernel.h"
#include "compiler/codegen/llvm/reducer.h"
#include "compiler/codegen/llvm/scalar_ops.h"
#include "hlo/analysis/window.h"

namespace xlad::compiler {
namespace {

using hlo::Instruction;
using tensor::Dims;

// `dims` with `position` inserted at `along`.
Index Inserted(Values dims, size_t along, llvm::Value* position) {
  dims.insert(dims.begin() + along, position);
  return Index::Of(std::move(dims));
}

// Whether the body computes each element from the same element of its parameters.
bool IsElementwise(const hlo::Computation& body) {
  for (const auto& instruction : body.instructions()) {
    const hlo::Opcode opcode = instruction->opcode();
    if (opcode == hlo::Opcode::kTuple && instruction.get() == body.root()) continue;
    if (!instruction->shape().is_array()) return false;
    if (instruction->shape().dims() != body.parameter(0)->shape().dims()) return false;
    if (opcode != hlo::Opcode::kParameter && !HasScalarOp(*instruction)) return false;
  }
  return body.root()->opcode() == hlo::Opcode::kTuple;
}

// A scan by an elementwise body: each row is scanned independently, with its carries in registers. On a GPU, each row
// is scanned by a single thread, so that the operations of a row have the same order as on a CPU.
void EmitRowScan(KernelContext& kernel, const Instruction& root, int64_t inputs) {
  Ir& ir = kernel.ir();
  const std::vector<Output> outputs = kernel.outputs();
  const int64_t carries = root.attributes().num_carries, slices = std::ssize(outputs) - carries;
  const hlo::Computation& body = *root.called()[0];
  const Dims& rows = body.parameter(0)->shape().dims();
  const size_t along = root.dimensions()[0];
  const int64_t steps = root.operand(0)->shape().dims()[along];
  std::vector<tensor::Shape> scalars;  // The types of the carries of a row.
  for (int64_t c = 0; c < carries; ++c) scalars.push_back({outputs[slices + c].array.shape.type, {}});
  if (kernel.has_threads()) kernel.DivideThreads(tensor::Product(rows));
  ForPositions(ir, kernel.range(), rows, [&](const Index& index) {
    const Index row = Index::Of(DimsOf(ir, index, rows));
    Accumulators carried(&ir, scalars);
    Values initial;
    for (int64_t c = 0; c < carries; ++c) initial.push_back(kernel.elements().Emit(root.operand(inputs + c), row));
    carried.Store(initial);
    ir.Loop(steps, [&](llvm::Value* step) {
      llvm::Value* at = root.attributes().is_reverse ? ir.b.CreateSub(ir.I64(steps - 1), step) : step;
      const Index place = Inserted(row.dims, along, at);
      Elements elements(&ir);
      for (int64_t i = 0; i < inputs; ++i) {
        elements.Bind(body.parameter(i),
                      [&, i](int, const Index&) { return kernel.elements().Emit(root.operand(i), place); });
      }
      const Values before = carried.Load();
      for (int64_t c = 0; c < carries; ++c) {
        elements.Bind(body.parameter(inputs + c), [value = before[c]](int, const Index&) { return value; });
      }
      Values values;
      for (const int64_t o : tensor::Indices(outputs)) values.push_back(elements.Emit(body.root(), row, o));
      for (int64_t o = 0; o < slices; ++o) StoreTo(ir, outputs[o].array, place, values[o]);
      carried.Store({values.begin() + slices, values.end()});
    });
    const Values last = carried.Load();
    for (int64_t c = 0; c < carries; ++c) StoreTo(ir, outputs[slices + c].array, row, last[c]);
  });
}

}  // namespace

// Runs the body once for each position, on slices of the inputs and the carries. The body returns slices of the outputs
// and new carries, which are stored in scratch until the body has run.
void EmitScan(KernelContext& kernel, const Instruction& root) {
  Ir& ir = kernel.ir();
  const int64_t carries = root.attributes().num_carries;
  const int64_t inputs = root.operand_count() - carries;
  const size_t along = root.dimensions()[0];
  const std::vector<Output> outputs = kernel.outputs();
  const int64_t slices = std::ssize(outputs) - carries;
  const hlo::Computation& body = *root.called()[0];
  const Dims& scanned = inputs > 0 ? root.operand(0)->shape().dims() : outputs[0].array.shape.dims;
  const bool by_rows = kernel.has_threads() || along + 1 == scanned.size();
  if (inputs > 0 && by_rows && IsElementwise(body)) return EmitRowScan(kernel, root, inputs);
  kernel.UseOneThread();
  for (int64_t c = 0; c < carries; ++c) EmitArray(kernel, root.operand(inputs + c), 0, outputs[slices + c].array);
  std::vector<ArrayView> next;
  for (int64_t c = 0; c < carries; ++c) next.push_back(kernel.Scratch(outputs[slices + c].array.shape));
  const int64_t steps = scanned[along];
  ir.Loop(steps, [&](llvm::Value* step) {
    llvm::Value* at = root.attributes().is_reverse ? ir.b.CreateSub(ir.I64(steps - 1), step) : step;
    Elements elements(&ir);
    for (int64_t i = 0; i < inputs; ++i) {
      const Instruction* operand = root.operand(i);
      elements.Bind(body.parameter(i), [&, operand](int, const Index& index) {
        const Values dims = DimsOf(ir, index, body.parameter(0)->shape().dims());
        return kernel.elements().Emit(operand, Inserted(dims, along, at));
      });
    }
    for (int64_t c = 0; c < carries; ++c) {
      elements.BindArrays(body.parameter(inputs + c), {outputs[slices + c].array});
    }
    for (const int64_t o : tensor::Indices(outputs)) {
      Dims sizes = outputs[o].array.shape.dims;
      if (o < slices) sizes.erase(sizes.begin() + along);
      ir.LoopNest(sizes, [&](const Values& dims) {
        llvm::Value* value = elements.Emit(body.root(), Index::Of(dims), o);
        if (o < slices) return StoreTo(ir, outputs[o].array, Inserted(dims, along, at), value);
        StoreTo(ir, next[o - slices], Index::Of(dims), value);
      });
    }
    for (int64_t c = 0; c < carries; ++c) {
      const uint64_t bytes = next[c].shape.bytes();
      ir.b.CreateMemCpy(outputs[slices + c].array.base, llvm::Align(1), next[c].base, llvm::Align(1), bytes);
    }
  });
}

namespace {

// The dimensions whose index is the same in the operand, in the source and in the result.
std::vector<size_t> OwnDimsOf(const hlo::Window& window) {
  std::vector<size_t> own;
  for (size_t d = 0; d < window.size(); ++d) {
    if (hlo::HasNoWindow(window[d])) own.push_back(d);
  }
  return own;
}

// Combines the source element at index `at` with the output element that `select` chooses in its window.
void ScatterSelected(KernelContext& kernel, const Instruction& root, const Values& at) {
  Ir& ir = kernel.ir();
  IrBuilder& b = ir.b;
  Elements& elements = kernel.elements();
  const Instruction *operand = root.operand(0), *source = root.operand(1);
  const ArrayView out = kernel.outputs()[0].array;
  const hlo::Window& window = *root.attributes().window;
  llvm::Type* type = RegisterType(ir.context(), out.shape.type);
  Dims sizes;
  for (const hlo::WindowDimension& d : window) sizes.push_back(d.size);
  llvm::Value* selected = ir.Slot(b.getInt64Ty());
  llvm::Value* standing = ir.Slot(type);
  b.CreateStore(ir.I64(-1), selected);
  b.CreateStore(llvm::Constant::getNullValue(type), standing);
  ir.LoopNest(sizes, [&](const Values& inner) {
    const WindowPosition position = PositionInBase(ir, window, at, inner, operand->shape().dims());
    ir.If(position.inside, [&] {
      const Index candidate = Index::Of(position.index);
      llvm::Value* value = elements.Emit(operand, candidate);
      llvm::Value* none = b.CreateICmpSLT(b.CreateLoad(b.getInt64Ty(), selected), ir.I64(0));
      llvm::Value* best = b.CreateLoad(type, standing);
      llvm::Value* keeps = elements.Apply(*root.called()[0], {best, value})[0];
      ir.If(b.CreateOr(none, b.CreateNot(keeps)), [&] {
        b.CreateStore(LinearOf(ir, candidate, operand->shape().dims()), selected);
        b.CreateStore(value, standing);
      });
    });
  });
  llvm::Value* to = b.CreateLoad(b.getInt64Ty(), selected);
  ir.If(b.CreateICmpSGE(to, ir.I64(0)), [&] {
    llvm::Value* sum = LoadFrom(ir, out, Index::OfLinear(to));
    const Values combined = elements.Apply(*root.called()[1], {sum, elements.Emit(source, Index::Of(at))});
    StoreTo(ir, out, Index::OfLinear(to), combined[0]);
  });
}

// Like ScatterSelected for adjacent columns that each have their own windows. The loops over columns have no branches,
// so that they become vector instructions.
class ColumnSelector {
 public:
  static constexpr int64_t kMaxWidth = 64;

  ColumnSelector(KernelContext* kernel, const Instruction* root)
      : kernel_(*kernel), ir_(kernel->ir()), root_(*root), out_(kernel->outputs()[0].array) {
    for (const hlo::WindowDimension& d : *root->attributes().window) sizes_.push_back(d.size);
    type_ = RegisterType(ir_.context(), out_.shape.type);
    selected_ = ir_.Slot(ir_.b.getInt32Ty(), kMaxWidth);
    standing_ = ir_.Slot(type_, kMaxWidth);
  }

  // Combines the source elements at index `at`, in the columns `begin` .. begin + width - 1, with the output elements
  // that are selected in their windows. The last entry of `at` is not used.
  void Scatter(Values at, llvm::Value* begin, int64_t width) {
    at.back() = ir_.I64(0);
    ir_.Loop(width, [&](llvm::Value* column) {
      ir_.b.CreateStore(ir_.b.getInt32(-1), Selected(column));
      ir_.b.CreateStore(llvm::Constant::getNullValue(type_), Standing(column));
    });
    ForWindow(at, [&](llvm::Value* number, const Values& position) {
      ir_.Loop(width, [&](llvm::Value* column) { Select(number, ColumnOf(position, begin, column), column); });
    });
    ForWindow(at, [&](llvm::Value* number, const Values& position) {
      ir_.Loop(width, [&](llvm::Value* column) {
        Combine(number, ColumnOf(position, begin, column), ColumnOf(at, begin, column), column);
      });
    });
  }

 private:
  llvm::Value* Selected(llvm::Value* column) { return ir_.Address(ir_.b.getInt32Ty(), selected_, column); }
  llvm::Value* Standing(llvm::Value* column) { return ir_.Address(type_, standing_, column); }

  Index ColumnOf(Values position, llvm::Value* begin, llvm::Value* column) {
    position.back() = ir_.Add(begin, column);
    return Index::Of(std::move(position));
  }

  // Calls `body` for each position of the window that is inside the operand, with its number in the window.
  void ForWindow(const Values& at, const std::function<void(llvm::Value* number, const Values& position)>& body) {
    ir_.LoopNest(sizes_, [&](const Values& inner) {
      const WindowPosition position =
          PositionInBase(ir_, *root_.attributes().window, at, inner, root_.operand(0)->shape().dims());
      llvm::Value* number = ir_.b.CreateTrunc(LinearOf(ir_, Index::Of(inner), sizes_), ir_.b.getInt32Ty());
      ir_.If(position.inside, [&] { body(number, position.index); });
    });
  }

  void Select(llvm::Value* number, const Index& candidate, llvm::Value* column) {
    IrBuilder& b = ir_.b;
    llvm::Value* value = kernel_.elements().Emit(root_.operand(0), candidate);
    llvm::Value* selected = b.CreateLoad(b.getInt32Ty(), Selected(column));
    llvm::Value* best = b.CreateLoad(type_, Standing(column));
    llvm::Value* keeps = kernel_.elements().Apply(*root_.called()[0], {best, value})[0];
    llvm::Value* takes = b.CreateOr(b.CreateICmpSLT(selected, b.getInt32(0)), b.CreateNot(keeps));
    b.CreateStore(b.CreateSelect(takes, number, selected), Selected(column));
    b.CreateStore(b.CreateSelect(takes, value, best), Standing(column));
  }

  void Combine(llvm::Value* number, const Index& to, const Index& from, llvm::Value* column) {
    IrBuilder& b = ir_.b;
    llvm::Value* is_selected = b.CreateICmpEQ(b.CreateLoad(b.getInt32Ty(), Selected(column)), number);
    llvm::Value* sum = LoadFrom(ir_, out_, to);
    llvm::Value* more = kernel_.elements().Emit(root_.operand(1), from);
    llvm::Value* combined = kernel_.elements().Apply(*root_.called()[1], {sum, more})[0];
    StoreTo(ir_, out_, to, b.CreateSelect(is_selected, combined, sum));
  }

  KernelContext& kernel_;
  Ir& ir_;
  const Instruction& root_;
  const ArrayView out_;
  Dims sizes_;
  llvm::Type* type_;
  llvm::Value *selected_, *standing_;
};

// Tiles are ranges of the first dimension if it has no windows.
void SelectInColumns(KernelContext& kernel, const Instruction& root) {
  Ir& ir = kernel.ir();
  const ArrayView out = kernel.outputs()[0].array;
  const Dims& sizes = root.operand(1)->shape().dims();
  const int64_t images = sizes[0], columns = sizes.back();
  const bool divides = OwnDimsOf(*root.attributes().window)[0] == 0 && kernel.wanted_tiles() > 1 && images > 1;
  if (divides) kernel.Divide({images, images, CeilDiv(images, std::min(images, kernel.wanted_tiles())), 1});
  llvm::Value* initial = kernel.elements().EmitScalar(root.operand(2));
  ColumnSelector selector(&kernel, &root);
  const auto compute = [&](const Values& image) {
    const auto in_image = [&](Values rest) {
      rest.insert(rest.begin(), image.begin(), image.end());
      return rest;
    };
    const auto after = static_cast<int64_t>(image.size());
    ir.LoopNest(Dims(out.shape.dims.begin() + after, out.shape.dims.end()),
                [&](const Values& at) { StoreTo(ir, out, Index::Of(in_image(at)), initial); });
    Dims windows(sizes.begin() + after, sizes.end());
    windows.back() = 1;
    ir.LoopNest(windows, [&](const Values& at) {
      constexpr int64_t kWidth = ColumnSelector::kMaxWidth;
      const int64_t strips = columns / kWidth;
      ir.Loop(strips, [&](llvm::Value* strip) { selector.Scatter(in_image(at), ir.Mul(strip, kWidth), kWidth); });
      if (columns % kWidth != 0) selector.Scatter(in_image(at), ir.I64(strips * kWidth), columns % kWidth);
    });
  };
  if (!divides) return compute({});
  ir.RangeLoop(kernel.range().begin, kernel.range().end, [&](llvm::Value* image) { compute({image}); });
}

}  // namespace

// The output is initialized with the initial value. Then, for each window, the computation `scatter` combines the
// source element with the output element that `select` chooses in the window. On a GPU, there is one thread for each
// index of the dimensions without windows (images and channels). A thread combines its elements in order.
void EmitSelectAndScatter(KernelContext& kernel, const Instruction& root) {
  if (!kernel.has_threads() && HasVectorsOfColumns(root)) return SelectInColumns(kernel, root);
  Ir& ir = kernel.ir();
  const ArrayView out = kernel.outputs()[0].array;
  std::vector<size_t> own;
  if (kernel.has_threads()) own = OwnDimsOf(*root.attributes().window);
  Dims positions;
  for (const size_t d : own) positions.push_back(out.shape.dims[d]);
  if (kernel.has_threads()) kernel.DivideThreads(tensor::Product(positions));
  llvm::Value* initial = kernel.elements().EmitScalar(root.operand(2));
  ForPositions(ir, kernel.range(), positions, [&](const Index& index) {
    const Values mine = DimsOf(ir, index, positions);
    ForOthers(ir, out.shape.dims, own, mine, [&](const Values& at) { StoreTo(ir, out, Index::Of(at), initial); });
    ForOthers(ir, root.operand(1)->shape().dims(), own, mine,
              [&](const Values& at) { ScatterSelected(kernel, root, at); });
  });
}

}  // namespace xlad::compiler
