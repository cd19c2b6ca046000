// Random reductions, windows, contractions, sorts and random bits.
#include <algorithm>
#include <cmath>
#include <limits>

#include "compiler/testing/random_values.h"

namespace xlad::compiler {

using hlo::Builder;
using hlo::Computation;
using hlo::Dims;
using hlo::ElementType;
using hlo::Instruction;
using hlo::Opcode;
using hlo::Shape;

namespace {

// What a sum of `terms` values of this kind is known to be.
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

// With its rounding: a sum of exact floats that outgrows their grid, whose order nobody promises.
Sample Rounded(Sample sum, double terms, double unit) {
  if (unit > 0 && sum.exact() && std::log2(std::max(sum.bound, 1e-9)) + sum.fraction > -std::log2(unit)) {
    sum.error = (terms + 1) * unit * sum.bound;
  }
  return sum;
}

}  // namespace

Sample RandomValues::Reduce(Builder* builder, Sample x) {
  Dims dimensions;
  double terms = 1;
  for (int64_t d = 0; d < x.ndim(); ++d) {
    if (!OneIn(2)) continue;
    dimensions.push_back(d);
    terms *= static_cast<double>(x.dims()[d]);
  }
  if (dimensions.empty()) return {};
  const ElementType type = x.type();
  const bool real = !tensor::IsComplex(type);
  if (type == ElementType::kPred) {
    const Opcode opcode = OneIn(2) ? Opcode::kAnd : Opcode::kOr;
    Computation* reducer = hlo::ScalarReducer(&module_, opcode, type);
    return {builder->Reduce(x.array, builder->Scalar(type, opcode == Opcode::kAnd), dimensions, reducer)};
  }
  if (real && OneIn(3)) {
    Computation* reducer = hlo::ScalarReducer(&module_, Opcode::kMaximum, type);
    return Like(x, builder->Reduce(x.array, builder->Scalar(type, Lowest(type)), dimensions, reducer));
  }
  if (tensor::IsInteger(type) && OneIn(3)) {
    static constexpr Opcode kOpcodes[] = {Opcode::kMultiply, Opcode::kAnd, Opcode::kOr, Opcode::kXor};
    const Opcode opcode = kOpcodes[Below(4)];
    const double init = opcode == Opcode::kMultiply ? 1 : opcode == Opcode::kAnd ? -1 : 0;
    Computation* reducer = hlo::ScalarReducer(&module_, opcode, type);
    return {builder->Reduce(x.array, builder->Scalar(type, init), dimensions, reducer)};
  }
  Computation* reducer = hlo::ScalarReducer(&module_, Opcode::kAdd, type);
  Instruction* sum = builder->Reduce(x.array, builder->Scalar(type, OneIn(4) ? 2 : 0), dimensions, reducer);
  Sample result = SumOf(x, sum, terms);
  result.bound += 2;
  return Rounded(result, terms, RoundingOf(type));
}

Sample RandomValues::ArgMax(Builder* builder, Sample x) {
  if (!x.exact() || x.ndim() == 0 || tensor::IsComplex(x.type()) || x.type() == ElementType::kPred) return {};
  const int64_t along = Below(x.ndim());
  Computation* reducer = module_.Add(std::make_unique<Computation>("argmax"));
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
  Instruction* numbers = builder->Iota(Shape(ElementType::kS32, x.dims()), along);
  Instruction* made = Append(builder, std::move(reduce),
                             {x.array, numbers, builder->Scalar(x.type(), Lowest(x.type())),
                              builder->Scalar(ElementType::kS32, 1 << 30)});
  if (made == nullptr) return {};
  if (OneIn(3)) return Like(x, builder->GetTupleElement(made, 0));
  return {builder->GetTupleElement(made, 1)};
}

Sample RandomValues::Window(Builder* builder, Sample x) {
  if (x.ndim() == 0 || x.type() == ElementType::kPred) return {};
  hlo::Window window(x.dims().size());
  const bool cumulative = OneIn(2);
  const size_t chosen = Below(x.ndim());
  double terms = 1;
  for (size_t d = 0; d < window.size(); ++d) {
    const int64_t size = x.dims()[d];
    if (cumulative && d == chosen) {
      window[d].size = size;
      (OneIn(2) ? window[d].padding_low : window[d].padding_high) = size - 1;
    } else if (!cumulative && OneIn(2)) {
      window[d].size = 1 + Below(3);
      window[d].stride = 1 + Below(2);
      window[d].padding_low = Below(window[d].size);
      window[d].padding_high = Below(window[d].size);
      window[d].window_dilation = OneIn(5) ? 2 : 1;
      window[d].base_dilation = OneIn(6) ? 2 : 1;
      if ((size - 1) * window[d].base_dilation + 1 + window[d].padding_low + window[d].padding_high <
          (window[d].size - 1) * window[d].window_dilation + 1) {
        return {};
      }
    }
    terms *= static_cast<double>(window[d].size);
  }
  const bool sums = tensor::IsComplex(x.type()) || !OneIn(3);
  auto reduce = std::make_unique<Instruction>(Opcode::kReduceWindow, Shape(x.type(), {}));
  reduce->mutable_attributes().window = window;
  reduce->mutable_called() = {hlo::ScalarReducer(&module_, sums ? Opcode::kAdd : Opcode::kMaximum, x.type())};
  // A finite lower bound of floats: windows of nothing but padding must not make infinities.
  const double low = tensor::IsFloating(x.type()) ? -x.bound : Lowest(x.type());
  Instruction* made = Append(builder, std::move(reduce), {x.array, builder->Scalar(x.type(), sums ? 0 : low)});
  if (!sums) return Like(x, made);
  return Rounded(SumOf(x, made, terms), terms, RoundingOf(x.type()));
}

Sample RandomValues::SelectAndScatter(Builder* builder, Sample x, const Pool& pool) {
  if (!x.exact() || x.ndim() < 2 || !tensor::IsFloating(x.type())) return {};
  hlo::Window window(x.dims().size());
  Dims source;
  for (size_t d = 0; d < window.size(); ++d) {
    if (x.dims()[d] >= 2 && OneIn(2)) window[d].size = 2, window[d].stride = 1 + Below(2);
    source.push_back((x.dims()[d] - window[d].size) / window[d].stride + 1);
  }
  const Sample y = Fit(builder, Pick(pool), x.type(), source);
  auto scatter = std::make_unique<Instruction>(Opcode::kSelectAndScatter, x.array->shape());
  scatter->mutable_attributes().window = window;
  Computation* select = module_.Add(std::make_unique<Computation>("ge"));
  Builder in(select);
  Instruction* a = in.Parameter(0, Shape(x.type(), {}));
  select->set_root(in.Compare(hlo::Comparison::kGe, a, in.Parameter(1, Shape(x.type(), {}))));
  scatter->mutable_called() = {select, hlo::ScalarReducer(&module_, Opcode::kAdd, x.type())};
  const double terms = std::ldexp(1.0, static_cast<int>(window.size()));
  Instruction* made = Append(builder, std::move(scatter), {x.array, y.array, builder->Scalar(x.type(), 0)});
  return Rounded(SumOf(y, made, terms), terms, RoundingOf(x.type()));
}

Sample RandomValues::RandomReduction(Builder* builder, const Pool& pool) {
  const Sample x = Pick(pool);
  switch (Below(6)) {
    case 0: return ArgMax(builder, x);
    case 1: return SelectAndScatter(builder, x, pool);
    case 2: return Window(builder, x);
    default: return Reduce(builder, x);
  }
}

Sample RandomValues::Sort(Builder* builder, Sample x, const Pool& pool) {
  if (!x.exact() || x.ndim() == 0 || tensor::IsComplex(x.type()) || x.type() == ElementType::kPred) return {};
  const int64_t along = Below(x.ndim());
  const Sample y = Fit(builder, Pick(pool), RandomType(), x.dims());
  const bool two = OneIn(2);
  auto sort = std::make_unique<Instruction>(Opcode::kSort, x.array->shape());
  sort->set_dimensions({along});
  sort->mutable_attributes().is_stable = true;
  Computation* less = module_.Add(std::make_unique<Computation>("less"));
  Builder in(less);
  Instruction* a = in.Parameter(0, Shape(x.type(), {}));
  Instruction* b = in.Parameter(1, Shape(x.type(), {}));
  if (two) {
    in.Parameter(2, Shape(y.type(), {}));
    in.Parameter(3, Shape(y.type(), {}));
  }
  less->set_root(in.Compare(OneIn(2) ? hlo::Comparison::kLt : hlo::Comparison::kGt, a, b));
  sort->mutable_called() = {less};
  if (!two) return Like(x, Append(builder, std::move(sort), {x.array}));
  Instruction* made = Append(builder, std::move(sort), {x.array, y.array});
  if (made == nullptr) return {};
  return OneIn(3) ? Like(x, builder->GetTupleElement(made, 0)) : Like(y, builder->GetTupleElement(made, 1));
}

Sample RandomValues::TopK(Builder* builder, Sample x) {
  if (!x.exact() || x.ndim() == 0 || x.type() != ElementType::kF32) return {};
  auto top = std::make_unique<Instruction>(Opcode::kTopk, Shape());
  top->mutable_attributes().k = 1 + Below(x.dims().back());
  top->mutable_attributes().largest = OneIn(2);
  top->mutable_attributes().is_stable = true;
  Instruction* made = Append(builder, std::move(top), {x.array});
  if (made == nullptr) return {};
  if (OneIn(2)) return Like(x, builder->GetTupleElement(made, 0));
  return {builder->GetTupleElement(made, 1)};
}

Sample RandomValues::RandomBits(Builder* builder, const Pool& pool) {
  static constexpr ElementType kTypes[] = {ElementType::kU32, ElementType::kU32, ElementType::kU64, ElementType::kU8,
                                           ElementType::kU16};
  const Sample key = PickExact(pool);
  if (!key) return {};
  const bool philox = OneIn(3);
  const Sample state = Fit(builder, key, ElementType::kU64, {philox ? 3 : 2});
  const Shape shape = Shape::Tuple({state.array->shape(), Shape(kTypes[Below(5)], RandomDims(3))});
  auto bits = std::make_unique<Instruction>(Opcode::kRngBitGenerator, shape);
  bits->mutable_attributes().rng_algorithm = philox ? "rng_philox" : OneIn(2) ? "rng_three_fry" : "rng_default";
  Instruction* made = Append(builder, std::move(bits), {state.array});
  if (made == nullptr) return {};
  return {builder->GetTupleElement(made, OneIn(5) ? 0 : 1)};
}

Sample RandomValues::RandomOrder(Builder* builder, const Pool& pool) {
  const Sample x = Pick(pool);
  switch (Below(5)) {
    case 0: return TopK(builder, x);
    case 1: return RandomBits(builder, pool);
    case 2: {
      const Sample y = Pick(pool);
      Instruction* both = builder->Tuple({x.array, y.array});
      auto barrier = std::make_unique<Instruction>(Opcode::kOptBarrier, both->shape());
      return Like(x, builder->GetTupleElement(Append(builder, std::move(barrier), {both}), 0));
    }
    default: return Sort(builder, x, pool);
  }
}

}  // namespace xlad::compiler
