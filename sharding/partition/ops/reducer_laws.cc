#include "sharding/partition/ops/reducer_laws.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/container/flat_hash_map.h"
#include "base/random.h"
#include "hlo/analysis/constants.h"
#include "hlo/build/builder.h"
#include "hlo/eval/evaluate.h"

namespace xlad::sharding {
namespace {

using hlo::Instruction;
using hlo::Literal;
using tensor::ElementType;

using Values = std::vector<Literal>;  // One scalar for each array that is reduced.

// The numbers of random triples. Without floats, there are no triples of special values, and more random ones instead.
constexpr int kSamplesWithFloats = 96, kSamplesWithoutFloats = 221;

constexpr double kSpecialNumbers[] = {0, -0.0, std::numeric_limits<double>::infinity(),
                                      -std::numeric_limits<double>::infinity(),
                                      std::numeric_limits<double>::quiet_NaN()};

// The values of the reducer's scalar constants, such as thresholds and bounds, at which its behavior may change.
std::vector<double> ConstantsOf(const hlo::Computation& reducer) {
  std::vector<double> constants;
  for (const auto& instruction : reducer.instructions()) {
    for (const hlo::Computation* called : instruction->called()) {
      for (double value : ConstantsOf(*called)) constants.push_back(value);
    }
    if (instruction->opcode() != hlo::Opcode::kConstant) continue;
    const std::optional<int64_t> integer = hlo::ConstantInteger(*instruction);
    const std::optional<double> value = integer ? static_cast<double>(*integer) : hlo::SplatValue(*instruction);
    if (value && std::isfinite(*value)) constants.push_back(*value);
  }
  return constants;
}

// Draws the numbers to which a reducer is applied.
class Sampler {
 public:
  Sampler(const Instruction& reduce, Values init)
      : init_(std::move(init)),
        constants_(ConstantsOf(*reduce.called()[0])),
        scratch_("samples"),
        builder_(scratch_.Add(std::make_unique<hlo::Computation>("main"))),
        random_(SeededRandom(7)) {}

  // One value for each array. Sometimes these are the initial values.
  Values Draw() {
    if (random_->Below(6) == 0) return init_;
    Values values;
    for (const Literal& like : init_) {
      const ElementType type = like.array.shape().type;
      values.push_back(*builder_.Scalar(type, Number(type))->literal());
    }
    return values;
  }

  // One value for each array: `special`, or a random number if the type is not floating.
  Values Repeat(double special) {
    Values values;
    for (const Literal& like : init_) {
      const ElementType type = like.array.shape().type;
      values.push_back(*builder_.Scalar(type, tensor::IsFloating(type) ? special : Number(type))->literal());
    }
    return values;
  }

 private:
  // Special values, the constants of the reducer and their neighbors, small numbers, and larger ones if their sums and
  // products are nearly exact.
  double Number(ElementType type) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    if (type == ElementType::kPred) return static_cast<double>(random_->Below(2));
    const bool is_float = tensor::IsFloating(type), is_integer = tensor::IsInteger(type);
    const double most = is_integer ? std::ldexp(1.0, std::min(tensor::BitWidth(type) - 1, 62)) - 1 : kInfinity;
    const double least = tensor::IsUnsigned(type) ? 0 : -most;
    const bool has_large_sums = is_integer || type == ElementType::kF32 || type == ElementType::kF64;
    double number = static_cast<double>(random_->Below(6)) - 2;
    switch (random_->Below(4)) {
      case 0:
        if (is_float) return kSpecialNumbers[random_->Below(std::size(kSpecialNumbers))];
        break;
      case 1:
        if (!constants_.empty()) number += constants_[random_->Below(constants_.size())];
        break;
      case 2:
        if (has_large_sums) number = static_cast<double>(random_->Below(2001)) - 1000;
        break;
      default:
        break;
    }
    return std::clamp(tensor::IsUnsigned(type) ? std::abs(number) : number, least, most);
  }

  Values init_;
  std::vector<double> constants_;
  hlo::Module scratch_;
  hlo::Builder builder_;
  std::unique_ptr<Random> random_;
};

// A module whose entry is the reducer.
class Reducer {
 public:
  explicit Reducer(const hlo::Computation& reducer) : module_("reducer") {
    module_.set_entry(module_.CloneComputation(reducer, "main"));
    module_.SortComputations();
  }

  // Returns f(a, b). If it cannot be evaluated, returns `a`, and failed() is true from then on.
  Values Apply(const Values& a, const Values& b) {
    Values operands = a;
    operands.insert(operands.end(), b.begin(), b.end());
    std::string key;
    for (const Literal& operand : operands) {
      const auto bytes = operand.array.bytes();
      key.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    }
    const auto [found, is_new] = results_.try_emplace(std::move(key), a);
    if (is_new) {
      const absl::StatusOr<Literal> result = hlo::Evaluate(module_, operands);
      failed_ |= !result.ok();
      if (result.ok()) found->second = result->is_tuple ? result->tuple : Values{*result};
    }
    return found->second;
  }
  bool failed() const { return failed_; }

 private:
  hlo::Module module_;
  absl::flat_hash_map<std::string, Values> results_;  // By the bytes of the operands. Many triples have equal pairs.
  bool failed_ = false;
};

// Whether the values are equal. f32 and f64 values may differ by rounding, by the sign of a zero and by the payload of
// a NaN.
bool Same(const Values& a, const Values& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    const tensor::Array &x = a[i].array, &y = b[i].array;
    if (x == y) continue;
    const auto close = [](double p, double q) {
      if (!std::isfinite(p) || !std::isfinite(q)) return p == q || (std::isnan(p) && std::isnan(q));
      return std::abs(p - q) <= 1e-4 * std::max(1.0, std::abs(p));
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
  Sampler sampler(reduce, init);
  Reducer f(*reduce.called()[0]);
  ReducerLaws laws{true, true};
  const auto check = [&](const Values& a, const Values& b, const Values& c) {
    if (!laws.combines_parts) return;
    const Values ab = f.Apply(a, b), from_a = f.Apply(init, a);
    laws.combines_parts = Same(f.Apply(ab, c), f.Apply(a, f.Apply(b, c))) &&
                          Same(f.Apply(from_a, f.Apply(init, b)), f.Apply(from_a, b)) &&
                          Same(f.Apply(from_a, init), from_a) && !f.failed();
    laws.commutes = laws.commutes && Same(ab, f.Apply(b, a));
  };
  const bool has_floats =
      std::any_of(init.begin(), init.end(), [](const Literal& l) { return tensor::IsFloating(l.array.shape().type); });
  const int samples = has_floats ? kSamplesWithFloats : kSamplesWithoutFloats;
  for (int i = 0; i < samples && laws.combines_parts; ++i) {
    const Values a = sampler.Draw(), b = sampler.Draw(), c = sampler.Draw();
    check(a, b, c);
  }
  if (!has_floats) return laws;
  // Random values are rarely all special.
  for (const double a : kSpecialNumbers) {
    for (const double b : kSpecialNumbers) {
      for (const double c : kSpecialNumbers) {
        const Values x = sampler.Repeat(a), y = sampler.Repeat(b), z = sampler.Repeat(c);  // In this order.
        check(x, y, z);
      }
    }
  }
  return laws;
}

}  // namespace xlad::sharding
