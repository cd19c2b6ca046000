#include "sharding/partition/ops/reducer_laws.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/random.h"
#include "hlo/analysis/constants.h"
#include "hlo/build/builder.h"
#include "hlo/eval/evaluate.h"
#include "sharding/rules/linear.h"

namespace xlad::sharding {
namespace {

using hlo::Instruction;
using hlo::Literal;
using tensor::ElementType;

using Values = std::vector<Literal>;  // One scalar for each array that is reduced.

constexpr int kSamples = 48;

// Small numbers, so that sums and products of floats are exact, and special values.
double SampleNumber(ElementType type, Random& random) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kSpecial[] = {0, -0.0, kInfinity, -kInfinity, std::numeric_limits<double>::quiet_NaN()};
  if (tensor::IsFloating(type) && random.Below(4) == 0) return kSpecial[random.Below(std::size(kSpecial))];
  if (type == ElementType::kPred) return static_cast<double>(random.Below(2));
  return static_cast<double>(random.Below(6)) - (tensor::IsUnsigned(type) ? 0 : 2);
}

Values Sample(const Values& init, hlo::Builder& builder, Random& random) {
  if (random.Below(6) == 0) return init;
  Values values;
  for (const Literal& like : init) {
    const ElementType type = like.array.shape().type;
    values.push_back(*builder.Scalar(type, SampleNumber(type, random))->literal());
  }
  return values;
}

// A module whose entry is the reducer.
class Reducer {
 public:
  explicit Reducer(const hlo::Computation& reducer) : module_("reducer") {
    module_.set_entry(module_.CloneComputation(reducer, "main"));
    module_.SortComputations();
  }

  // f(a, b); fails if an earlier application failed.
  Values Apply(const Values& a, const Values& b) {
    Values operands = a;
    operands.insert(operands.end(), b.begin(), b.end());
    const absl::StatusOr<Literal> result = hlo::Evaluate(module_, operands);
    failed_ |= !result.ok();
    if (!result.ok()) return a;
    return result->is_tuple ? result->tuple : Values{*result};
  }
  bool failed() const { return failed_; }

 private:
  hlo::Module module_;
  bool failed_ = false;
};

// Equal up to the rounding of floats; the sign of a zero and the payload of a NaN may differ.
bool Same(const Values& a, const Values& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    const tensor::Array &x = a[i].array, &y = b[i].array;
    if (x == y) continue;
    const auto close = [](double p, double q) {
      return p == q || (std::isnan(p) && std::isnan(q)) || std::abs(p - q) <= 1e-4 * std::max(1.0, std::abs(p));
    };
    const ElementType type = x.shape().type;
    const bool close_f32 = type == ElementType::kF32 && close(x.values<float>()[0], y.values<float>()[0]);
    const bool close_f64 = type == ElementType::kF64 && close(x.values<double>()[0], y.values<double>()[0]);
    if (!close_f32 && !close_f64) return false;
  }
  return true;
}

}  // namespace

ReducerLaws LawsOf(const Instruction& reduce) {
  Values init;
  for (int64_t i = reduce.operand_count() / 2; i < reduce.operand_count(); ++i) {
    const Instruction* scalar = hlo::RepeatedValue(reduce.operand(i));
    const hlo::Literal* literal = hlo::KnownLiteral(*scalar);
    if (literal == nullptr || !scalar->shape().is_scalar()) return {};
    init.push_back(*literal);
  }
  hlo::Module scratch("samples");
  hlo::Builder builder(scratch.Add(std::make_unique<hlo::Computation>("main")));
  const std::unique_ptr<Random> random = SeededRandom(7);
  Reducer f(*reduce.called()[0]);
  ReducerLaws laws{true, true};
  for (int i = 0; i < kSamples && laws.combines_parts; ++i) {
    const Values a = Sample(init, builder, *random), b = Sample(init, builder, *random),
                 c = Sample(init, builder, *random);
    const Values ab = f.Apply(a, b), from_a = f.Apply(init, a);
    laws.combines_parts = Same(f.Apply(ab, c), f.Apply(a, f.Apply(b, c))) &&
                          Same(f.Apply(from_a, f.Apply(init, b)), f.Apply(from_a, b)) &&
                          Same(f.Apply(from_a, init), from_a) && !f.failed();
    laws.commutes = laws.commutes && Same(ab, f.Apply(b, a));
  }
  return laws;
}

}  // namespace xlad::sharding
