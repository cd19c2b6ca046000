// cholesky and triangular-solve: plain loops over the matrices of the batch, with sums in f64 or c128.
#include "compiler/codegen/llvm/arithmetic.h"
#include "compiler/codegen/llvm/kernel.h"

namespace xlad::compiler {
namespace {

using hlo::Instruction;
using tensor::Dims;

Dims BatchOf(const Dims& dims) { return Dims(dims.begin(), dims.end() - 2); }

Index At(const Values& batch, llvm::Value* row, llvm::Value* column) {
  Values dims = batch;
  dims.push_back(row);
  dims.push_back(column);
  return Index::Of(dims);
}

// The matrices of a batch in memory, whose elements are read and written as f64 or c128 numbers.
class Matrices {
 public:
  Matrices(Ir* ir, const Wide* wide, ArrayView array) : ir_(*ir), wide_(*wide), array_(std::move(array)) {}
  llvm::Value* Load(const Values& batch, llvm::Value* i, llvm::Value* j) const {
    return wide_.FromNarrow(LoadFrom(ir_, array_, At(batch, i, j)));
  }
  void Store(const Values& batch, llvm::Value* i, llvm::Value* j, llvm::Value* value) const {
    StoreTo(ir_, array_, At(batch, i, j), wide_.ToNarrow(value));
  }

 private:
  Ir& ir_;
  const Wide& wide_;
  ArrayView array_;
};

// start - sum of term(k) for k = 0 .. count-1.
llvm::Value* SubtractSum(Ir& ir, const Wide& wide, llvm::Value* start, llvm::Value* count,
                         const std::function<llvm::Value*(llvm::Value*)>& term) {
  llvm::Value* slot = ir.Slot(wide.register_type());
  ir.b.CreateStore(start, slot);
  ir.DynamicLoop(count, [&](llvm::Value* k) {
    llvm::Value* rest = ir.b.CreateLoad(wide.register_type(), slot);
    ir.b.CreateStore(wide.Subtract(rest, term(k)), slot);
  });
  return ir.b.CreateLoad(wide.register_type(), slot);
}

}  // namespace

// Computes L with A = L L^H from the lower triangle of A, or U with A = U^H U from its upper triangle. The other
// triangle of the result is zero. As with LAPACK, which computes larger matrices, NaNs fill the columns of L from the
// first one whose diagonal element is not positive.
void EmitCholesky(KernelContext& kernel, const Instruction& root) {
  Ir& ir = kernel.ir();
  const ArrayView out = kernel.outputs()[0].array;
  const Wide wide(&ir, out.shape.type);
  const bool lower = root.attributes().lower;
  const Dims& dims = out.shape.dims;
  const int64_t n = dims.back();
  const Matrices matrices(&ir, &wide, out);
  // The upper factor is the conjugate transpose of the lower one.
  const auto load = [&](const Values& batch, llvm::Value* i, llvm::Value* j) {
    return lower ? matrices.Load(batch, i, j) : wide.Conjugate(matrices.Load(batch, j, i));
  };
  const auto store = [&](const Values& batch, llvm::Value* i, llvm::Value* j, llvm::Value* value) {
    return lower ? matrices.Store(batch, i, j, value) : matrices.Store(batch, j, i, wide.Conjugate(value));
  };
  ir.LoopNest(BatchOf(dims), [&](const Values& batch) {
    const auto given = [&](llvm::Value* i, llvm::Value* j) {
      llvm::Value* value = kernel.elements().Emit(root.operand(0), lower ? At(batch, i, j) : At(batch, j, i));
      return lower ? wide.FromNarrow(value) : wide.Conjugate(wide.FromNarrow(value));
    };
    ir.LoopNest({n, n},
                [&](const Values& ij) { StoreTo(ir, out, At(batch, ij[0], ij[1]), wide.ToNarrow(wide.Number(0))); });
    ir.Loop(n, [&](llvm::Value* j) {
      llvm::Value* diagonal = wide.FromReal(wide.RealPartOf(given(j, j)));
      diagonal = SubtractSum(ir, wide, diagonal, j, [&](llvm::Value* k) {
        llvm::Value* l = load(batch, j, k);
        return wide.Multiply(l, wide.Conjugate(l));
      });
      llvm::Value* square = wide.RealPartOf(diagonal);
      llvm::Value* positive = ir.b.CreateFCmpOGT(square, llvm::ConstantFP::get(square->getType(), 0));
      square = ir.b.CreateSelect(positive, square, llvm::ConstantFP::getNaN(square->getType()));
      llvm::Value* pivot = wide.FromReal(wide.Sqrt(square));
      store(batch, j, j, pivot);
      llvm::Value* rest = ir.b.CreateSub(ir.I64(n - 1), j);
      ir.DynamicLoop(rest, [&](llvm::Value* step) {
        llvm::Value* i = ir.b.CreateAdd(ir.b.CreateAdd(j, ir.I64(1)), step);
        llvm::Value* sum = SubtractSum(ir, wide, given(i, j), j, [&](llvm::Value* k) {
          return wide.Multiply(load(batch, i, k), wide.Conjugate(load(batch, j, k)));
        });
        store(batch, i, j, wide.Divide(sum, pivot));
      });
    });
  });
}

// Solves op(A) X = B or X op(A) = B for a triangular A by substitution, in place on a copy of B.
void EmitTriangularSolve(KernelContext& kernel, const Instruction& root) {
  Ir& ir = kernel.ir();
  const hlo::Attributes& attributes = root.attributes();
  const ArrayView out = kernel.outputs()[0].array;
  const Wide wide(&ir, out.shape.type);
  const bool left = attributes.left_side, adjoint = attributes.transpose_a == "ADJOINT";
  const bool transposed = adjoint || attributes.transpose_a == "TRANSPOSE";
  // X op(A) = B is op(A)^T X^T = B^T, so each row of X is computed like a column of X in the other case.
  const bool swap = transposed != !left;
  const bool forwards = attributes.lower != swap;
  const int64_t n = root.operand(0)->shape().dims().back();
  const int64_t lines = out.shape.dims[out.shape.dims.size() - (left ? 1 : 2)];
  EmitArray(kernel, root.operand(1), 0, out);
  const Matrices matrices(&ir, &wide, out);
  ir.LoopNest(BatchOf(out.shape.dims), [&](const Values& batch) {
    const auto a = [&](llvm::Value* i, llvm::Value* k) {
      llvm::Value* value = kernel.elements().Emit(root.operand(0), swap ? At(batch, k, i) : At(batch, i, k));
      return adjoint ? wide.Conjugate(wide.FromNarrow(value)) : wide.FromNarrow(value);
    };
    const auto step_to_row = [&](llvm::Value* step) { return forwards ? step : ir.b.CreateSub(ir.I64(n - 1), step); };
    ir.LoopNest({lines, n}, [&](const Values& at) {
      llvm::Value* line = at[0];
      llvm::Value* i = step_to_row(at[1]);
      const auto load = [&](llvm::Value* k) {
        return left ? matrices.Load(batch, k, line) : matrices.Load(batch, line, k);
      };
      llvm::Value* sum = SubtractSum(ir, wide, load(i), at[1], [&](llvm::Value* step) {
        llvm::Value* k = step_to_row(step);
        return wide.Multiply(a(i, k), load(k));
      });
      if (!attributes.unit_diagonal) sum = wide.Divide(sum, a(i, i));
      left ? matrices.Store(batch, i, line, sum) : matrices.Store(batch, line, i, sum);
    });
  });
}

}  // namespace xlad::compiler
