// Verifies kernels. VerifyProduct, in product_schedule.cc, verifies products.
#include <algorithm>

#include "base/containers.h"
#include "base/powers_of_two.h"
#include "compiler/analysis/plain_reducer.h"
#include "compiler/kernel/kernel.h"
#include "compiler/kernel/product_schedule.h"
#include "hlo/analysis/leaves.h"

namespace xlad::compiler {
namespace {

absl::Status Wrong(const Statement& statement, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("statement ", statement.name, ": ", what));
}

bool UsesOnly(const Affine& position, const std::vector<int>& dims) {
  for (int d = 0; d < std::ssize(position.factors); ++d) {
    if (position.factors[d] != 0 && !Contains(dims, d)) return false;
  }
  return true;
}

// Whether every position, and every partial sum of its terms, has a magnitude of at most 2^62, so that no partial sum
// overflows.
bool IsBounded(const Affine& position, const Dims& sizes) {
  constexpr int64_t kMax = int64_t{1} << 62;
  const auto magnitude = [](int64_t x) { return x < -kMax || x > kMax ? kMax + 1 : std::abs(x); };
  int64_t sum = magnitude(position.constant);
  for (size_t d = 0; d < sizes.size() && sum <= kMax; ++d) {
    int64_t span = 0;
    if (__builtin_mul_overflow(magnitude(position.factors[d]), sizes[d] - 1, &span) || span > kMax - sum) return false;
    sum += span;
  }
  return sum <= kMax;
}

// Whether different indices have different positions. Sufficient condition: each factor is larger than the sum of the
// spans of all smaller factors, where the span of a dimension is its factor times (size - 1).
bool IsInjective(const Affine& position, const std::vector<int>& dims, const Dims& sizes) {
  std::vector<std::pair<int64_t, int64_t>> steps;
  for (const int d : dims) {
    if (sizes[d] > 1) steps.emplace_back(std::abs(position.factors[d]), sizes[d] - 1);
  }
  std::sort(steps.begin(), steps.end());
  int64_t reach = 0;
  for (const auto& [factor, count] : steps) {
    if (factor <= reach) return false;
    reach += factor * count;
  }
  return true;
}

class Verifier {
 public:
  explicit Verifier(const Kernel& kernel)
      : kernel_(kernel), sizes_(kernel.sizes()), is_written_(kernel.arrays.size(), false) {}

  absl::Status Run() {
    const auto is_product = [](const Statement& statement) { return statement.is_product; };
    if (std::any_of(kernel_.statements.begin(), kernel_.statements.end(), is_product)) {
      if (kernel_.statements.size() == 1) return VerifyProduct(kernel_);
      return absl::InvalidArgumentError("found a product and other statements, expected a product alone");
    }
    for (const KernelDim& dim : kernel_.dims) {
      if (dim.size >= 1) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("dim ", dim.name, ": found size ", dim.size, ", expected a positive size"));
    }
    for (const Statement& statement : kernel_.statements) XLAD_RETURN_IF_ERROR(Check(statement));
    for (size_t a = 0; a < kernel_.arrays.size(); ++a) {
      if (!is_written_[a] && kernel_.arrays[a].role != KernelArray::Role::kInput) {
        return absl::InvalidArgumentError(absl::StrCat("array ", kernel_.arrays[a].name,
                                                       ": found no statement that writes it, expected one"));
      }
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Check(const Statement& statement) {
    const std::vector<int> dims = statement.dims();
    for (const int d : dims) {
      if (d < 0 || d >= std::ssize(sizes_)) return Wrong(statement, "found a dimension that does not exist");
      if (std::count(dims.begin(), dims.end(), d) != 1) return Wrong(statement, "found a dimension twice");
    }
    if (statement.is_reduction() != !statement.along.empty()) {
      return Wrong(statement, "expected reduced dimensions for a reduction, and none for a map");
    }
    XLAD_RETURN_IF_ERROR(CheckCode(statement, statement.value, dims));
    const size_t values = hlo::LeafShapes(statement.value.computation().root()->shape()).size();
    if (values != statement.results.size()) {
      return Wrong(statement, absl::StrCat("found ", values, " values of its code and ", statement.results.size(),
                                           " result arrays, expected one array for each value"));
    }
    if (statement.is_reduction()) XLAD_RETURN_IF_ERROR(CheckReduction(statement));
    return CheckResults(statement);
  }

  absl::Status CheckCode(const Statement& statement, const KernelCode& code, const std::vector<int>& dims) const {
    if (code.code == nullptr) return Wrong(statement, "it has no code");
    const Computation& computation = code.computation();
    if (computation.parameters().size() != code.reads.size()) {
      return Wrong(statement, absl::StrCat("its code has ", computation.parameters().size(), " parameters, expected ",
                                           code.reads.size(), ", one for each element that is read"));
    }
    for (int64_t i = 0; i < std::ssize(code.reads); ++i) {
      const KernelRead& read = code.reads[i];
      const bool is_position = read.array == KernelRead::kPosition;
      if (!is_position && (read.array < 0 || read.array >= std::ssize(kernel_.arrays))) {
        return Wrong(statement, "it reads an array that does not exist");
      }
      if (read.at.factors.size() != sizes_.size() || !UsesOnly(read.at, dims)) {
        return Wrong(statement, "it reads at a position that depends on a dimension that it does not have");
      }
      if (!IsBounded(read.at, sizes_)) return Wrong(statement, "it reads at positions beyond 2^62");
      const Shape& shape = computation.parameter(i)->shape();
      const ElementType type = is_position ? ElementType::kS64 : kernel_.arrays[read.array].type;
      if (!shape.is_scalar() || shape.type() != type) {
        return Wrong(statement, absl::StrCat("parameter ", i, " of its code is ", shape.ToString(false),
                                             ", expected the type of what it reads"));
      }
      if (is_position) continue;
      const KernelArray& array = kernel_.arrays[read.array];
      if (array.role != KernelArray::Role::kInput && !is_written_[read.array]) {
        return Wrong(statement, absl::StrCat("it reads ", array.name, ", which is not written yet"));
      }
      if (LowestOf(read.at, sizes_) < 0 || HighestOf(read.at, sizes_) >= array.elements) {
        return Wrong(statement, absl::StrCat("it reads ", array.name, " outside of its ", array.elements, " elements"));
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckReduction(const Statement& statement) const {
    const size_t values = statement.results.size();
    XLAD_RETURN_IF_ERROR(CheckCode(statement, statement.initial, {}));
    if (statement.combine->entry()->parameters().size() != 2 * values) {
      return Wrong(statement, absl::StrCat("found a combining computation with ",
                                           statement.combine->entry()->parameters().size(), " parameters, expected ",
                                           2 * values, ", two for each value"));
    }
    if (!IsPowerOfTwo(statement.lanes)) {
      return Wrong(statement, absl::StrCat("found ", statement.lanes, " lanes, expected a power of two"));
    }
    if (statement.lanes > 1 && !IsReorderableFloat(*statement.combine->entry())) {
      return Wrong(statement, "found several lanes, expected a sum, product, maximum or minimum of f32 or f64");
    }
    return absl::OkStatus();
  }

  absl::Status CheckResults(const Statement& statement) {
    const std::vector<tensor::Shape> shapes = hlo::LeafShapes(statement.value.computation().root()->shape());
    for (size_t i = 0; i < statement.results.size(); ++i) {
      const int result = statement.results[i];
      if (result < 0 || result >= std::ssize(kernel_.arrays)) {
        return Wrong(statement, "it writes an array that does not exist");
      }
      const KernelArray& array = kernel_.arrays[result];
      if (array.role == KernelArray::Role::kInput || is_written_[result]) {
        return Wrong(statement, absl::StrCat("it writes ", array.name, ", expected an array that nothing else writes"));
      }
      if (shapes[i].type != array.type || !shapes[i].dims.empty()) {
        return Wrong(statement, absl::StrCat("its value is ", shapes[i].ToString(),
                                             ", expected a scalar of the type of ", array.name));
      }
      if (statement.at.factors.size() != sizes_.size() || !UsesOnly(statement.at, statement.over)) {
        return Wrong(statement, "it writes at a position that depends on a dimension that its results do not have");
      }
      if (!IsBounded(statement.at, sizes_)) return Wrong(statement, "it writes at positions beyond 2^62");
      if (!IsInjective(statement.at, statement.over, sizes_)) {
        return Wrong(statement, absl::StrCat("it may write a position in ", array.name,
                                             " twice, expected different positions for different indices"));
      }
      if (LowestOf(statement.at, sizes_) < 0 || HighestOf(statement.at, sizes_) >= array.elements) {
        return Wrong(statement,
                     absl::StrCat("it writes ", array.name, " outside of its ", array.elements, " elements"));
      }
      is_written_[result] = true;
    }
    return absl::OkStatus();
  }

  const Kernel& kernel_;
  const Dims sizes_;
  std::vector<bool> is_written_;
};

}  // namespace

absl::Status VerifyKernel(const Kernel& kernel) {
  return Annotate(Verifier(kernel).Run(), absl::StrCat("kernel ", kernel.name));
}

}  // namespace xlad::compiler
