// Inference for fft, cholesky, triangular-solve, batch-norm and random numbers.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "hlo/infer/rules.h"

namespace xlad::hlo {
namespace {

struct FftRow {
  const char* name;
  int operand, result;  // Kinds of types.
};
constexpr FftRow kFfts[] = {{"FFT", kComplexes, kComplexes},
                            {"IFFT", kComplexes, kComplexes},
                            {"RFFT", kFloats, kComplexes},
                            {"IRFFT", kComplexes, kFloats}};

absl::Status ExpectMatrix(absl::string_view label, const Shape& x) {
  if (x.ndim() >= 2 && x.dim(x.ndim() - 1) == x.dim(x.ndim() - 2)) return absl::OkStatus();
  return Violation(label, Brief(x), "square matrices in the last two dimensions");
}

// Checks that the feature dimension is in range and that the operands numbered `vectors` are vectors along it.
absl::Status CheckBatchNorm(const Instruction& i, std::initializer_list<int64_t> vectors) {
  XLAD_RETURN_IF_ERROR(ExpectArrays(i));
  XLAD_RETURN_IF_ERROR(ExpectArray(i, 0, kFloats));
  const Shape& x = i.operand(0)->shape();
  XLAD_RETURN_IF_ERROR(ExpectDimension("batch-norm-feature-index", i.attributes().feature_index, x.ndim()));
  const int64_t features = x.dim(i.attributes().feature_index);
  for (const int64_t v : vectors) {
    const Shape& vector = i.operand(v)->shape();
    if (vector.type() != x.type() || vector.dims() != Dims{features}) {
      return Violation("batch-norm-vectors", absl::StrCat("operand ", v, " of shape ", Brief(vector)),
                       Brief(Shape(x.type(), {features})));
    }
  }
  return absl::OkStatus();
}

Shape BatchNormTuple(const Instruction& i) {
  const Shape& x = i.operand(0)->shape();
  const Shape vector(x.type(), {x.dim(i.attributes().feature_index)});
  return Shape::Tuple({Shape(x.type(), x.dims()), vector, vector});
}

}  // namespace

Inferred InferFft(const Instruction& i) {
  XLAD_RETURN_IF_ERROR(ExpectArray(i, 0, kFloats | kComplexes));
  const Attributes& a = i.attributes();
  const auto* const row =
      std::find_if(std::begin(kFfts), std::end(kFfts), [&](const FftRow& r) { return a.fft_type == r.name; });
  if (row == std::end(kFfts)) {
    return Violation("fft-type", Setting("fft_type", a.fft_type), "FFT, IFFT, RFFT or IRFFT");
  }
  XLAD_RETURN_IF_ERROR(ExpectArray(i, 0, row->operand));
  const Shape& x = i.operand(0)->shape();
  const auto count = std::ssize(a.fft_length);
  if (count < 1 || count > 3 || count > x.ndim()) {
    return Violation("fft-length", absl::StrCat("fft_length=", Brief(a.fft_length), " for ", Brief(x)),
                     "1 to 3 lengths, at most one per dimension");
  }
  if (KindOf(x.type()) == kFloats && x.type() != ElementType::kF32 && x.type() != ElementType::kF64) {
    return Violation("fft-operand", Brief(x), "f32 or f64");
  }
  const bool inverse_real = row->result == kFloats;
  Dims dims = x.dims();
  for (int64_t k = 0; k < count; ++k) {
    int64_t& size = dims[x.ndim() - count + k];
    const int64_t length = a.fft_length[k];
    const bool last = k == count - 1;
    if (length < 0) {
      return Violation("fft-length", absl::StrCat("fft_length=", Brief(a.fft_length)), "lengths of 0 or more");
    }
    const int64_t expected = inverse_real && last && length > 0 ? length / 2 + 1 : length;
    // The sizes of an operand without elements are not checked, because there is nothing to transform.
    if (size != expected && !Contains(x.dims(), 0)) {
      return Violation("fft-length", absl::StrCat("size ", size, " for fft_length ", length),
                       absl::StrCat("size ", expected));
    }
    if (last && inverse_real) size = length;
    if (last && row->operand == kFloats) size = length == 0 ? 0 : length / 2 + 1;
  }
  ElementType type = x.type();
  if (inverse_real) type = tensor::RealPartOf(type);
  if (row->operand == kFloats) type = type == ElementType::kF64 ? ElementType::kC128 : ElementType::kC64;
  return Shape(type, std::move(dims));
}

Inferred InferCholesky(const Instruction& i) {
  XLAD_RETURN_IF_ERROR(ExpectArray(i, 0, kFloats | kComplexes));
  const Shape& x = i.operand(0)->shape();
  XLAD_RETURN_IF_ERROR(ExpectMatrix("cholesky-matrix", x));
  return Shape(x.type(), x.dims());
}

Inferred InferTriangularSolve(const Instruction& i) {
  XLAD_RETURN_IF_ERROR(ExpectArray(i, 0, kFloats | kComplexes));
  XLAD_RETURN_IF_ERROR(ExpectArray(i, 1, kFloats | kComplexes));
  const Shape& a = i.operand(0)->shape();
  const Shape& b = i.operand(1)->shape();
  XLAD_RETURN_IF_ERROR(ExpectMatrix("triangular-solve-matrix", a));
  bool fits = a.type() == b.type() && a.ndim() == b.ndim();
  for (int64_t d = 0; fits && d + 2 < a.ndim(); ++d) fits = a.dim(d) == b.dim(d);
  if (fits) fits = b.dim(b.ndim() - (i.attributes().left_side ? 2 : 1)) == a.dim(a.ndim() - 1);
  if (!fits) {
    return Violation(
        "triangular-solve-sizes",
        absl::StrCat("a ", Brief(a), " and b ", Brief(b), ", left_side=", i.attributes().left_side ? "true" : "false"),
        "the same type and batch sizes, and as many rows (left_side) or columns in b as in a");
  }
  const std::string& transpose = i.attributes().transpose_a;
  if (transpose != "NO_TRANSPOSE" && transpose != "TRANSPOSE" && transpose != "ADJOINT") {
    return Violation("triangular-solve-transpose", Setting("transpose_a", transpose),
                     "NO_TRANSPOSE, TRANSPOSE or ADJOINT");
  }
  return Shape(b.type(), b.dims());
}

Inferred InferBatchNormTraining(const Instruction& i) {
  XLAD_RETURN_IF_ERROR(CheckBatchNorm(i, {1, 2}));
  return BatchNormTuple(i);
}

Inferred InferBatchNormInference(const Instruction& i) {
  XLAD_RETURN_IF_ERROR(CheckBatchNorm(i, {1, 2, 3, 4}));
  return Shape(i.operand(0)->shape().type(), i.operand(0)->shape().dims());
}

Inferred InferBatchNormGrad(const Instruction& i) {
  XLAD_RETURN_IF_ERROR(CheckBatchNorm(i, {1, 2, 3}));
  if (!i.operand(4)->shape().SameIgnoringLayout(i.operand(0)->shape())) {
    return Violation("batch-norm-grad-output", Brief(i.operand(4)->shape()), Brief(i.operand(0)->shape()));
  }
  return BatchNormTuple(i);
}

Inferred InferRng(const Instruction& i) {
  XLAD_RETURN_IF_ERROR(ExpectArrayResult(i));
  XLAD_RETURN_IF_ERROR(ExpectArrays(i));
  const std::string& distribution = i.attributes().rng_distribution;
  if (distribution != "rng_uniform" && distribution != "rng_normal") {
    return Violation("rng-distribution", Setting("distribution", distribution), "rng_uniform or rng_normal");
  }
  const int types = distribution == "rng_normal" ? int{kFloats} : kPreds | kIntegers | kFloats;
  if ((KindOf(i.shape().type()) & types) == 0) {
    return Violation("rng-type", absl::StrCat(Brief(i.shape()), " of ", distribution), TypeSetName(types));
  }
  if (i.operand_count() != 2) {
    return Violation("operand-count", Counted(i.operand_count(), "operand"), "2");
  }
  for (const Instruction* const operand : i.operands()) {
    if (!operand->shape().is_scalar() || operand->shape().type() != i.shape().type()) {
      return Violation("rng-parameters", Brief(operand->shape()), Brief(Shape(i.shape().type(), {})));
    }
  }
  return i.shape();
}

Inferred InferRngBitGenerator(const Instruction& i) {
  XLAD_RETURN_IF_ERROR(ExpectArray(i, 0, kUnsigneds));
  const std::string& algorithm = i.attributes().rng_algorithm;
  if (algorithm != "rng_default" && algorithm != "rng_three_fry" && algorithm != "rng_philox") {
    return Violation("rng-algorithm", Setting("algorithm", algorithm), "rng_default, rng_three_fry or rng_philox");
  }
  const Shape& state = i.operand(0)->shape();
  const int64_t bits = tensor::BitWidth(state.type());
  const bool sized = state.ndim() == 1 && bits >= 32 && state.dim(0) <= 4;
  const int64_t state_bits = sized ? state.dim(0) * bits : 0;
  const auto [fits, expected] = algorithm == "rng_default"  // The backend determines the size of its state.
                                    ? std::pair(state.ndim() == 1, "one dimension")
                                    : algorithm == "rng_three_fry" ? std::pair(state_bits == 128, "u64[2] or u32[4]")
                                                                   : std::pair(state_bits == 128 || state_bits == 192,
                                                                               "u64[2], u64[3] or u32[4]");
  if (!fits) {
    return Violation("rng-state", absl::StrCat("state ", Brief(state), " of ", algorithm), expected);
  }
  const Shape& result = i.shape();
  // The instruction may also return only the bits, without the state.
  if (result.is_array() && (KindOf(result.type()) & (kIntegers | kFloats)) != 0) return result;
  if (!result.is_tuple() || result.tuple().size() != 2 || !result.tuple()[0].SameIgnoringLayout(state) ||
      !result.tuple()[1].is_array()) {
    return Violation("rng-bit-generator-result", Brief(result),
                     absl::StrCat("(", Brief(state), ", the array of bits)"));
  }
  if ((KindOf(result.tuple()[1].type()) & (kIntegers | kFloats)) == 0) {
    return Violation("rng-bit-generator-result", Brief(result), "an integer or floating-point type for the bits");
  }
  return result;
}

Inferred InferRngGetAndUpdateState(const Instruction&) { return Shape(ElementType::kU64, {2}); }

}  // namespace xlad::hlo
