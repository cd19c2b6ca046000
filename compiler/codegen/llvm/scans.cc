// Kernels whose results depend on the order of their steps: scan, select-and-scatter.
#include "compiler/codegen/llvm/element_rules.h"
#include "compiler/codegen/llvm/kernel.h"
#include "compiler/codegen/llvm/reducer.h"
#include "compiler/codegen/llvm/scalar_ops.h"

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
    const hlo::WindowDimension& w = window[d];
    const bool moves =
        w.size != 1 || w.stride != 1 || w.padding_low != 0 || w.padding_high != 0 || w.base_dilation != 1;
    if (!moves) own.push_back(d);
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

}  // namespace

// The output is initialized with the initial value. Then, for each window, the computation `scatter` combines the
// source element with the output element that `select` chooses in the window. On a GPU, there is one thread for each
// index of the dimensions without windows (images and channels). A thread combines its elements in order.
void EmitSelectAndScatter(KernelContext& kernel, const Instruction& root) {
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
