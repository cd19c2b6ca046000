// Random reductions whose order does not matter, argmax, windows, select-and-scatter.
#include <algorithm>
#include <cmath>
#include <limits>

#include "compiler/testing/random_values.h"

namespace xlad::compiler {

namespace {

// The Sample of a sum of `terms` values like `term`.
Sample SumOf(const Sample& term, Instruction* sum, double terms) {
  Sample result{sum, term.bound * terms, term.fraction, term.error * terms};
  if (result.error > 0) result.error += terms * RoundingOf(term.type()) * result.bound;
  return result;
}

double Lowest(ElementType type) {
  if (tensor::IsFloating(type)) return -std::numeric_limits<double>::infinity();
  if (!tensor::IsSigned(type)) return 0;
  return -std::ldexp(1.0, tensor::BitWidth(type) - 1);
}

// Adds the rounding error of a sum of exact floats if the sum is too large to be exact, because the order of the sum is
// not defined.
Sample Rounded(Sample sum, double terms, double unit) {
  if (unit > 0 && sum.exact() && std::log2(std::max(sum.bound, 1e-9)) + sum.fraction > -std::log2(unit)) {
    sum.error = (terms + 1) * unit * sum.bound;
  }
  return sum;
}

// Zeros of one sign that are computed from the finite values `x`.
Sample ZerosFrom(RandomValues& random, Builder& builder, const Sample& x) {
  Instruction* zero = Splat(builder, x.array, random.OneIn(2) ? 0.0 : -0.0);
  Instruction* zeros = builder.Binary(Opcode::kMultiply, builder.Unary(Opcode::kAbs, x.array), zero);
  random.SetAgreement(zeros, Agreement::kBits);
  return {zeros};
}

Sample Reduce(RandomValues& random, Builder& builder, Sample x) {
  Dims dimensions;
  double terms = 1;
  for (int64_t d = 0; d < x.ndim(); ++d) {
    if (!random.OneIn(2)) continue;
    dimensions.push_back(d);
    terms *= static_cast<double>(x.dims()[d]);
  }
  if (dimensions.empty()) return {};
  const ElementType type = x.type();
  const bool real = !tensor::IsComplex(type);
  if (type == ElementType::kPred) {
    const Opcode opcode = random.OneIn(2) ? Opcode::kAnd : Opcode::kOr;
    Computation* reducer = hlo::ScalarReducer(&random.module(), opcode, type);
    return {builder.Reduce(x.array, builder.Scalar(type, opcode == Opcode::kAnd), dimensions, reducer)};
  }
  if (real && random.OneIn(3)) {
    Computation* reducer = hlo::ScalarReducer(&random.module(), Opcode::kMaximum, type);
    return Like(x, builder.Reduce(x.array, builder.Scalar(type, Lowest(type)), dimensions, reducer));
  }
  if (tensor::IsInteger(type) && random.OneIn(3)) {
    static constexpr Opcode kOpcodes[] = {Opcode::kMultiply, Opcode::kAnd, Opcode::kOr, Opcode::kXor};
    const Opcode opcode = kOpcodes[random.Below(4)];
    const double init = opcode == Opcode::kMultiply ? 1 : opcode == Opcode::kAnd ? -1 : 0;
    Computation* reducer = hlo::ScalarReducer(&random.module(), opcode, type);
    return {builder.Reduce(x.array, builder.Scalar(type, init), dimensions, reducer)};
  }
  Computation* reducer = hlo::ScalarReducer(&random.module(), Opcode::kAdd, type);
  static constexpr double kInits[] = {0.0, -0.0, -0.0, 2.0};
  if (tensor::IsFloating(type) && random.OneIn(3)) x = ZerosFrom(random, builder, x);  // Only such sums can be -0.
  Instruction* sum = builder.Reduce(x.array, builder.Scalar(type, random.OneOf(kInits)), dimensions, reducer);
  Sample result = SumOf(x, sum, terms);
  result.bound += 2;
  return Rounded(result, terms, RoundingOf(type));
}

Sample ArgMax(RandomValues& random, Builder& builder, Sample x) {
  if (!x.exact() || x.ndim() == 0 || tensor::IsComplex(x.type()) || x.type() == ElementType::kPred) return {};
  const int64_t along = random.Below(x.ndim());
  Computation* reducer = random.module().Add(std::make_unique<Computation>("argmax"));
  Builder in(reducer);
  Instruction* v = in.Parameter(0, Shape(x.type(), {}));
  Instruction* i = in.Parameter(1, Shape(ElementType::kS32, {}));
  Instruction* w = in.Parameter(2, Shape(x.type(), {}));
  Instruction* j = in.Parameter(3, Shape(ElementType::kS32, {}));
  Instruction* ties = in.Binary(Opcode::kAnd, in.Compare(hlo::Comparison::kEq, v, w),
                                in.Compare(hlo::Comparison::kLt, i, j));
  Instruction* take = in.Binary(Opcode::kOr, in.Compare(hlo::Comparison::kGt, v, w), ties);
  reducer->set_root(in.Tuple({in.Select(take, v, w), in.Select(take, i, j)}));
  auto reduce = std::make_unique<Instruction>(Opcode::kReduce, Shape());
  reduce->set_dimensions({along});
  reduce->mutable_called() = {reducer};
  Instruction* numbers = builder.Iota(Shape(ElementType::kS32, x.dims()), along);
  Instruction* made = Append(builder, std::move(reduce),
                             {x.array, numbers, builder.Scalar(x.type(), Lowest(x.type())),
                              builder.Scalar(ElementType::kS32, 1 << 30)});
  if (made == nullptr) return {};
  if (random.OneIn(3)) return Like(x, builder.GetTupleElement(made, 0));
  return {builder.GetTupleElement(made, 1)};
}

Sample Window(RandomValues& random, Builder& builder, Sample x) {
  if (x.ndim() == 0 || x.type() == ElementType::kPred || x.array->shape().elements() == 0) return {};
  hlo::Window window(x.dims().size());
  const bool cumulative = random.OneIn(2);
  const size_t chosen = random.Below(x.ndim());
  double terms = 1;
  for (size_t d = 0; d < window.size(); ++d) {
    const int64_t size = x.dims()[d];
    if (cumulative && d == chosen) {
      window[d].size = size;
      (random.OneIn(2) ? window[d].padding_low : window[d].padding_high) = size - 1;
    } else if (!cumulative && random.OneIn(2)) {
      window[d].size = 1 + random.Below(3);
      window[d].stride = 1 + random.Below(2);
      window[d].padding_low = random.Below(window[d].size);
      window[d].padding_high = random.Below(window[d].size);
      window[d].window_dilation = random.OneIn(5) ? 2 : 1;
      window[d].base_dilation = random.OneIn(6) ? 2 : 1;
      if ((size - 1) * window[d].base_dilation + 1 + window[d].padding_low + window[d].padding_high <
          (window[d].size - 1) * window[d].window_dilation + 1) {
        return {};
      }
    }
    terms *= static_cast<double>(window[d].size);
  }
  const bool sums = tensor::IsComplex(x.type()) || !random.OneIn(3);
  auto reduce = std::make_unique<Instruction>(Opcode::kReduceWindow, Shape(x.type(), {}));
  reduce->mutable_attributes().window = window;
  reduce->mutable_called() = {hlo::ScalarReducer(&random.module(), sums ? Opcode::kAdd : Opcode::kMaximum, x.type())};
  // The initial value is finite, so that the result of a window with only padding is finite.
  const double low = tensor::IsFloating(x.type()) ? -x.bound : Lowest(x.type());
  Instruction* made = Append(builder, std::move(reduce), {x.array, builder.Scalar(x.type(), sums ? 0 : low)});
  if (!sums) return Like(x, made);
  return Rounded(SumOf(x, made, terms), terms, RoundingOf(x.type()));
}

Sample SelectAndScatter(RandomValues& random, Builder& builder, Sample x, const Pool& pool) {
  if (!x.exact() || x.ndim() < 2 || !tensor::IsFloating(x.type()) || x.array->shape().elements() == 0) return {};
  hlo::Window window(x.dims().size());
  Dims source;
  for (size_t d = 0; d < window.size(); ++d) {
    if (x.dims()[d] >= 2 && random.OneIn(2)) window[d].size = 2, window[d].stride = 1 + random.Below(2);
    source.push_back((x.dims()[d] - window[d].size) / window[d].stride + 1);
  }
  const Sample y = random.FiniteOperand(builder, pool, x.type(), source);
  auto scatter = std::make_unique<Instruction>(Opcode::kSelectAndScatter, x.array->shape());
  scatter->mutable_attributes().window = window;
  Computation* select = random.module().Add(std::make_unique<Computation>("ge"));
  Builder in(select);
  Instruction* a = in.Parameter(0, Shape(x.type(), {}));
  select->set_root(in.Compare(hlo::Comparison::kGe, a, in.Parameter(1, Shape(x.type(), {}))));
  scatter->mutable_called() = {select, hlo::ScalarReducer(&random.module(), Opcode::kAdd, x.type())};
  const double terms = std::ldexp(1.0, static_cast<int>(window.size()));
  Instruction* made = Append(builder, std::move(scatter), {x.array, y.array, builder.Scalar(x.type(), 0)});
  return Rounded(SumOf(y, made, terms), terms, RoundingOf(x.type()));
}

}  // namespace

Sample RandomReduction(RandomValues& random, Builder& builder, const Pool& pool) {
  const Sample x = random.PickFinite(pool);
  if (!x) return {};
  switch (random.Below(6)) {
    case 0: return ArgMax(random, builder, x);
    case 1: return SelectAndScatter(random, builder, x, pool);
    case 2: return Window(random, builder, x);
    default: return Reduce(random, builder, x);
  }
}

}  // namespace xlad::compiler
