// LAPACK calls in the form that JAX emits.
#include <cmath>

#include "compiler/testing/random_values.h"

namespace xlad::compiler {

namespace {

// A well-conditioned matrix whose principal minors are not zero: 3 I + sin(5 i + 3 j) / 2 + a scaled value of the pool.
Sample RegularMatrix(RandomValues& random, Builder& builder, const Pool& pool, const Shape& shape) {
  const ElementType type = shape.type();
  Instruction* i = builder.Iota(shape, 0);
  Instruction* j = builder.Iota(shape, 1);
  Instruction* same = builder.Compare(hlo::Comparison::kEq, i, j);
  Instruction* diagonal = builder.Binary(Opcode::kMultiply, builder.Convert(type, same), Splat(builder, i, 3));
  Instruction* phase = builder.Binary(Opcode::kAdd, builder.Binary(Opcode::kMultiply, i, Splat(builder, i, 5)),
                                      builder.Binary(Opcode::kMultiply, j, Splat(builder, j, 3)));
  Instruction* wave = builder.Binary(Opcode::kMultiply, builder.Unary(Opcode::kSine, phase), Splat(builder, i, 0.5));
  Sample x = random.FiniteOperand(builder, pool, type, shape.dims());
  const double scale = std::ldexp(0.25, -static_cast<int>(std::ceil(std::log2(std::max(x.bound, 1.0)))));
  x.array = builder.Binary(Opcode::kMultiply, x.array, Splat(builder, x.array, scale));
  Instruction* sum = builder.Binary(Opcode::kAdd, builder.Binary(Opcode::kAdd, diagonal, wave), x.array);
  return {sum, 4, 0, x.error * scale + 16 * RoundingOf(ElementType::kF32)};
}

}  // namespace

// The matrix R or the scalar factors (tau) of a QR factorization. The matrix is scaled by a power of two, and R is
// scaled back.
Sample RandomLinearAlgebra(RandomValues& random, Builder& builder, const Pool& pool) {
  const bool wide = random.OneIn(3);
  const ElementType type = wide ? ElementType::kF64 : ElementType::kF32;
  const int64_t rows = 2 + random.Below(3), columns = 1 + random.Below(rows);
  const Sample x = RegularMatrix(random, builder, pool, Shape(type, {rows, columns}));
  const int largest = wide ? 1000 : 120;
  const double scale = std::ldexp(1.0, random.OneIn(2) ? 0 : random.Below(2 * largest) - largest);
  Instruction* scaled = builder.Binary(Opcode::kMultiply, x.array, Splat(builder, x.array, scale));
  auto call = std::make_unique<Instruction>(
      Opcode::kCustomCall, Shape::Tuple({Shape(type, {rows, columns}), Shape(type, {std::min(rows, columns)})}));
  call->mutable_attributes().custom_call_target = wide ? "lapack_dgeqrf_ffi" : "lapack_sgeqrf_ffi";
  Instruction* made = builder.computation()->Add(std::move(call), {scaled});
  Instruction* factors = builder.GetTupleElement(made, 0);
  factors = builder.Binary(Opcode::kMultiply, factors, Splat(builder, factors, 1 / scale));
  const double error = 64 * (x.error + RoundingOf(type));
  if (random.OneIn(3)) return {builder.GetTupleElement(made, 1), 2, 0, error};
  // The reflectors below the diagonal do not scale with the matrix, so only R is kept.
  Instruction* below = builder.Compare(hlo::Comparison::kGt, builder.Iota(factors->shape(), 0),
                                       builder.Iota(factors->shape(), 1));
  return {builder.Select(below, Splat(builder, factors, 0), factors), 16, 0, error};
}

}  // namespace xlad::compiler
