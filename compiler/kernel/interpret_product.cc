#include "compiler/kernel/interpret_product.h"

#include <cmath>
#include <complex>
#include <utility>

#include "hlo/build/builder.h"
#include "hlo/eval/evaluate.h"

namespace xlad::compiler {
namespace {

using hlo::Instruction;
using tensor::Array;
using tensor::ElementType;

// `array` as a vector of another type, by the instruction `convert`.
absl::StatusOr<Array> Converted(const Array& array, ElementType type) {
  hlo::Module module("convert");
  hlo::Computation* entry = module.Add(std::make_unique<hlo::Computation>("convert"));
  module.set_entry(entry);
  hlo::Builder builder(entry);
  const hlo::Shape shape(array.shape().type, {array.elements()});
  entry->set_root(builder.ConvertTo(type, builder.Parameter(0, shape, "x")));
  Array vector(shape.array());
  std::copy(array.bytes().begin(), array.bytes().end(), vector.bytes().begin());
  XLAD_ASSIGN_OR_RETURN(hlo::Literal result, hlo::Evaluate(module, {hlo::Literal(std::move(vector))}));
  return std::move(result.array);
}

template <typename Float>
Float MultiplyAdd(Float x, Float y, Float sum) {
  return std::fma(x, y, sum);
}
// Sums of integers are modulo 2^64. Truncated, they are those of the smaller types.
uint64_t MultiplyAdd(uint64_t x, uint64_t y, uint64_t sum) { return x * y + sum; }
template <typename Float>
std::complex<Float> MultiplyAdd(std::complex<Float> x, std::complex<Float> y, std::complex<Float> sum) {
  const Float re = std::fma(-x.imag(), y.imag(), std::fma(x.real(), y.real(), sum.real()));
  return {re, std::fma(x.imag(), y.real(), std::fma(x.real(), y.imag(), sum.imag()))};
}

template <typename T>
class TypedSums final : public ProductSums {
 public:
  // `type` is the element type of T.
  TypedSums(const Instruction& product, ElementType type, Array lhs, Array rhs)
      : ProductSums(product),
        lhs_(std::move(lhs)),
        rhs_(std::move(rhs)),
        sums_(tensor::Shape{type, {product.shape().elements()}}) {}

  void Add(int64_t group, int64_t row, int64_t column, int64_t depth) override {
    const int64_t left = form().Lhs(group, row, depth);
    const T x = left == ProductForm::kOutside ? T() : lhs_.values<T>()[left];
    T& sum = sums_.values<T>()[form().Result(group, row, column)];
    sum = MultiplyAdd(x, rhs_.values<T>()[form().Rhs(group, column, depth)], sum);
  }

  absl::StatusOr<Array> Result() const override {
    XLAD_ASSIGN_OR_RETURN(const Array rounded, Converted(sums_, product_.shape().type()));
    Array result(product_.shape().array());
    std::copy(rounded.bytes().begin(), rounded.bytes().end(), result.bytes().begin());
    return result;
  }

 private:
  const Array lhs_, rhs_;
  Array sums_;
};

template <typename T>
absl::StatusOr<std::unique_ptr<ProductSums>> MakeSums(const Instruction& product, ElementType type, const Array& lhs,
                                                      const Array& rhs) {
  // Factors are first converted to the type of the sums, then to a type of C++.
  const ElementType factor = SumTypeOf(product.shape().type());
  XLAD_ASSIGN_OR_RETURN(Array x, Converted(lhs, factor));
  XLAD_ASSIGN_OR_RETURN(Array y, Converted(rhs, factor));
  XLAD_ASSIGN_OR_RETURN(x, Converted(x, type));
  XLAD_ASSIGN_OR_RETURN(y, Converted(y, type));
  return std::make_unique<TypedSums<T>>(product, type, std::move(x), std::move(y));
}

}  // namespace

absl::StatusOr<std::unique_ptr<ProductSums>> ProductSums::Make(const Instruction& product, const Array& lhs,
                                                               const Array& rhs) {
  const ElementType type = SumTypeOf(product.shape().type());
  if (type == ElementType::kF32) return MakeSums<float>(product, type, lhs, rhs);
  if (type == ElementType::kF64) return MakeSums<double>(product, type, lhs, rhs);
  if (type == ElementType::kC64) return MakeSums<std::complex<float>>(product, type, lhs, rhs);
  if (type == ElementType::kC128) return MakeSums<std::complex<double>>(product, type, lhs, rhs);
  return MakeSums<uint64_t>(product, tensor::IsSigned(type) ? ElementType::kS64 : ElementType::kU64, lhs, rhs);
}

}  // namespace xlad::compiler
