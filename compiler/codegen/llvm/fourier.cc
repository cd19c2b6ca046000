// fft: the discrete Fourier transform over the last dimensions, forward, inverse, and of real numbers.
//
// Dimensions are transformed one after the other, in c128, between two scratch arrays. Lengths that are powers of two
// use Stockham's form of the Cooley-Tukey algorithm, which needs no bit reversal; other lengths use the definition.
#include <llvm/IR/Constants.h>
#include <llvm/IR/Module.h>

#include <cmath>
#include <numbers>
#include <utility>

#include "compiler/codegen/llvm/arithmetic.h"
#include "compiler/codegen/llvm/convert_ops.h"
#include "compiler/codegen/llvm/kernel.h"

namespace xlad::compiler {
namespace {

using hlo::Instruction;
using tensor::Dims;

class Transform {
 public:
  Transform(KernelContext* kernel, const Dims& dims) : ir_(kernel->ir()), b_(ir_.b), wide_(&ir_, ElementType::kC128) {
    const tensor::Shape shape{ElementType::kC128, dims};
    from_ = kernel->Scratch(shape);
    to_ = kernel->Scratch(shape);
  }

  const ArrayView& data() const { return from_; }
  const Wide& wide() const { return wide_; }

  // Transforms all lines of dimension `d` of data().
  void Dimension(size_t d, bool inverse) {
    const Dims& dims = from_.shape.dims;
    const int64_t n = dims[d], stride = tensor::Strides(dims)[d];
    const int64_t outer = n == 0 ? 0 : tensor::Product(dims) / (n * stride);
    if (n < 2 || outer == 0) return;
    llvm::Value* roots = Roots(n, inverse);
    if ((n & (n - 1)) == 0) {
      // Each pass joins halves of length `half` at distance `step`. After log2 n passes the line is transformed, in
      // order.
      for (int64_t half = n / 2, step = 1; half >= 1; half /= 2, step *= 2) {
        ir_.LoopNest({outer, half, step, stride},
                     [&](const Values& at) { Butterfly(at, {n, stride, half, step}, roots); });
        std::swap(from_, to_);
      }
      return;
    }
    ir_.LoopNest({outer, n, stride}, [&](const Values& at) { Direct(at, n, stride, roots); });
    std::swap(from_, to_);
  }

 private:
  struct Pass {
    int64_t n, stride, half, step;
  };

  llvm::Value* Load(const ArrayView& array, llvm::Value* at) { return LoadFrom(ir_, array, Index::OfLinear(at)); }
  void Store(const ArrayView& array, llvm::Value* at, llvm::Value* value) {
    StoreTo(ir_, array, Index::OfLinear(at), value);
  }
  // The position of element k of a line.
  llvm::Value* Place(llvm::Value* outer, llvm::Value* k, llvm::Value* inner, int64_t n, int64_t stride) {
    return ir_.Add(ir_.Mul(ir_.Add(ir_.Mul(outer, n), k), stride), inner);
  }

  // x'[q + step (2p)] = a + b, x'[q + step (2p+1)] = (a - b) w^p, of a = x[q + step p], b = x[q + step (p + half)].
  void Butterfly(const Values& at, const Pass& pass, llvm::Value* roots) {
    llvm::Value *outer = at[0], *p = at[1], *q = at[2], *inner = at[3];
    const auto place = [&](llvm::Value* block) {
      return Place(outer, ir_.Add(q, ir_.Mul(block, pass.step)), inner, pass.n, pass.stride);
    };
    llvm::Value* a = Load(from_, place(p));
    llvm::Value* b = Load(from_, place(ir_.Add(p, ir_.I64(pass.half))));
    llvm::Value* root = Root(roots, ir_.Mul(p, pass.step));
    Store(to_, place(ir_.Mul(p, 2)), wide_.Add(a, b));
    Store(to_, place(ir_.Add(ir_.Mul(p, 2), ir_.I64(1))), wide_.Multiply(wide_.Subtract(a, b), root));
  }

  void Direct(const Values& at, int64_t n, int64_t stride, llvm::Value* roots) {
    llvm::Value* slot = ir_.Slot(wide_.register_type());
    b_.CreateStore(wide_.Number(0), slot);
    ir_.Loop(n, [&](llvm::Value* i) {
      llvm::Value* x = Load(from_, Place(at[0], i, at[2], n, stride));
      llvm::Value* root = Root(roots, ir_.Rem(b_.CreateMul(i, at[1]), n));
      llvm::Value* sum = b_.CreateLoad(wide_.register_type(), slot);
      b_.CreateStore(wide_.Add(sum, wide_.Multiply(x, root)), slot);
    });
    Store(to_, Place(at[0], at[1], at[2], n, stride), b_.CreateLoad(wide_.register_type(), slot));
  }

  llvm::Value* Root(llvm::Value* roots, llvm::Value* k) {
    return LoadElement(b_, ElementType::kC128, ir_.Address(wide_.register_type(), roots, k));
  }

  // e^(-2 pi i k / n), or its conjugate, for k below n.
  llvm::Value* Roots(int64_t n, bool inverse) {
    std::vector<double> values;
    for (int64_t k = 0; k < n; ++k) {
      const long double angle =
          2 * std::numbers::pi_v<long double> * static_cast<long double>(k) / static_cast<long double>(n);
      values.push_back(static_cast<double>(std::cos(angle)));
      values.push_back(static_cast<double>(inverse ? std::sin(angle) : -std::sin(angle)));
    }
    llvm::Constant* data = llvm::ConstantDataArray::get(ir_.context(), values);
    auto* table = new llvm::GlobalVariable(ir_.module(), data->getType(), true, llvm::GlobalValue::PrivateLinkage, data,
                                           "xlad.roots");
    table->setAlignment(llvm::Align(64));
    return table;
  }

  Ir& ir_;
  IrBuilder& b_;
  Wide wide_;
  ArrayView from_, to_;
};

int64_t Lengths(const Dims& dims, size_t first) {
  int64_t product = 1;
  for (size_t d = first; d < dims.size(); ++d) product *= dims[d];
  return product;
}

// Reads the first elements of the operand along the last dimension into the transform.
void Read(KernelContext& kernel, const Instruction* operand, const Transform& transform) {
  Ir& ir = kernel.ir();
  ir.LoopNest(transform.data().shape.dims, [&](const Values& at) {
    llvm::Value* value = kernel.elements().Emit(operand, Index::Of(at));
    StoreTo(ir, transform.data(), Index::Of(at), EmitConvert(ir, operand->shape().type(), ElementType::kC128, value));
  });
}

// Writes the first elements of the transform along the last dimension, scaled.
void Write(KernelContext& kernel, const Transform& transform, double scale) {
  Ir& ir = kernel.ir();
  const ArrayView& out = kernel.outputs()[0].array;
  ir.LoopNest(out.shape.dims, [&](const Values& at) {
    llvm::Value* value = LoadFrom(ir, transform.data(), Index::Of(at));
    value = transform.wide().Multiply(value, transform.wide().Number(scale));
    StoreTo(ir, out, Index::Of(at), EmitConvert(ir, ElementType::kC128, out.shape.type, value));
  });
}

// Completes the spectrum of a real signal from its first half by symmetry, and ignores the imaginary parts that are
// zero for a real signal.
void Mirror(Ir& ir, const Transform& half, const Transform& full) {
  IrBuilder& b = ir.b;
  const int64_t n = full.data().shape.dims.back();
  ir.LoopNest(full.data().shape.dims, [&](const Values& at) {
    llvm::Value* k = at.back();
    llvm::Value* mirrored = b.CreateICmpUGT(k, ir.I64(n / 2));
    Values from = at;
    from.back() = b.CreateSelect(mirrored, b.CreateSub(ir.I64(n), k), k);
    llvm::Value* value = LoadFrom(ir, half.data(), Index::Of(from));
    llvm::Value* imag = Imag(b, value);
    imag = b.CreateSelect(mirrored, b.CreateFNeg(imag), imag);
    llvm::Value* is_real = b.CreateICmpEQ(k, ir.I64(0));
    if (n % 2 == 0) is_real = b.CreateOr(is_real, b.CreateICmpEQ(k, ir.I64(n / 2)));
    imag = b.CreateSelect(is_real, llvm::ConstantFP::get(b.getDoubleTy(), 0.0), imag);
    StoreTo(ir, full.data(), Index::Of(at), MakeComplex(b, Real(b, value), imag));
  });
}

}  // namespace

void EmitFft(KernelContext& kernel, const Instruction& root) {
  const std::string& kind = root.attributes().fft_type;
  const bool inverse = kind == "IFFT" || kind == "IRFFT";
  const Instruction* operand = root.operand(0);
  const Dims& result = kernel.outputs()[0].array.shape.dims;
  Dims dims = operand->shape().dims();
  const size_t last = dims.size() - 1, first = dims.size() - root.attributes().fft_length.size();
  if (kind == "IRFFT") {
    dims[last] = result[last] / 2 + 1;
    Transform half(&kernel, dims);
    Read(kernel, operand, half);
    for (size_t d = first; d < last; ++d) half.Dimension(d, true);
    Transform full(&kernel, result);
    Mirror(kernel.ir(), half, full);
    full.Dimension(last, true);
    Write(kernel, full, 1.0 / static_cast<double>(Lengths(result, first)));
    return;
  }
  Transform transform(&kernel, dims);
  Read(kernel, operand, transform);
  for (size_t d = dims.size(); d-- > first;) transform.Dimension(d, inverse);
  Write(kernel, transform, inverse ? 1.0 / static_cast<double>(Lengths(dims, first)) : 1.0);
}

}  // namespace xlad::compiler
