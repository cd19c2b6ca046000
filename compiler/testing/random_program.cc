#include "compiler/testing/random_program.h"

#include "compiler/hlo_util.h"

namespace xlad::compiler {
namespace {

using tensor::Array;

class Generator {
 public:
  Generator(uint64_t seed, int devices) : random_(SeededRandom(seed)), devices_(devices) {
    module_ = std::make_unique<Module>("random");
    module_->num_partitions = devices;
  }

  std::unique_ptr<Module> Run(int instructions) {
    Computation* entry = module_->Add(std::make_unique<Computation>("main"));
    module_->set_entry(entry);
    hlo::Builder builder(entry);
    const int parameters = 2 + Below(3);
    std::vector<Instruction*> pool;
    for (int p = 0; p < parameters; ++p) pool.push_back(builder.Parameter(p, Shape(RandomType(), RandomDims())));
    Grow(&builder, &pool, instructions, 0);
    Finish(&builder, pool, parameters);
    module_->SortComputations();
    return std::move(module_);
  }

 private:
  int Below(int n) { return static_cast<int>(random_->Below(static_cast<uint64_t>(n))); }
  ElementType RandomType() { return Below(4) == 0 ? ElementType::kS32 : ElementType::kF32; }
  Dims RandomDims() {
    static constexpr int64_t kSizes[] = {1, 2, 3, 4, 5, 8};
    Dims dims;
    for (int d = Below(4); d > 0; --d) dims.push_back(kSizes[Below(6)]);
    return dims;
  }
  Instruction* Pick(const std::vector<Instruction*>& pool) {
    // Recent ones more often, so that programs get deep.
    const int n = static_cast<int>(pool.size());
    return pool[static_cast<size_t>(Below(2) == 0 ? n - 1 - Below(std::min(n, 4)) : Below(n))];
  }

  void Grow(hlo::Builder* builder, std::vector<Instruction*>* pool, int count, int depth) {
    for (int i = 0; i < count; ++i) {
      Instruction* made = One(builder, *pool, depth);
      if (made != nullptr && made->shape().elements() <= 4096) pool->push_back(made);
    }
  }

  Instruction* One(hlo::Builder* builder, const std::vector<Instruction*>& pool, int depth) {
    Instruction* x = Pick(pool);
    switch (Below(devices_ > 1 ? 16 : 14)) {
      case 0:
        return Unary(builder, x);
      case 1:
      case 2:
        return Binary(builder, x, Pick(pool));
      case 3:
        return Broadcast(builder, x);
      case 4:
        return Reduce(builder, x);
      case 5:
        return Transpose(builder, x);
      case 6:
        return Slice(builder, x);
      case 7:
        return builder->Reshape(x, ReshapedDims(x->shape().dims()));
      case 8:
        return Dot(builder, x, Pick(pool));
      case 9:
        return DynamicSlice(builder, x, Pick(pool));
      case 10:
        return Select(builder, x, Pick(pool));
      case 11:
        return Concatenate(builder, x);
      case 12:
        return depth < 2 ? While(builder, pool, depth) : nullptr;
      case 13:
        return depth < 2 ? Conditional(builder, pool, depth) : nullptr;
      default:
        return Collective(builder, x);
    }
  }

  Instruction* Unary(hlo::Builder* builder, Instruction* x) {
    if (x->shape().type() != ElementType::kF32) return builder->Convert(ElementType::kF32, x);
    static constexpr Opcode kOpcodes[] = {Opcode::kNegate, Opcode::kTanh, Opcode::kAbs, Opcode::kLogistic};
    return builder->Unary(kOpcodes[Below(4)], x);
  }
  // `x` in the shape and type of `like`.
  Instruction* Fit(hlo::Builder* builder, Instruction* x, const Shape& like) {
    if (x->shape().type() != like.type()) {
      if (like.type() == ElementType::kS32)
        x = builder->Scalar(ElementType::kS32, 3);
      else
        x = builder->Convert(like.type(), x);
    }
    if (x->shape().dims() == like.dims()) return x;
    while (x->shape().ndim() > 0) {
      Dims limit(x->shape().dims());
      for (int64_t& size : limit) size = 1;
      x = builder->Reshape(builder->Slice(x, Dims(limit.size(), 0), limit), {});
    }
    return builder->Broadcast(x, like.dims(), {});
  }
  Instruction* Binary(hlo::Builder* builder, Instruction* x, Instruction* y) {
    static constexpr Opcode kOpcodes[] = {Opcode::kAdd, Opcode::kSubtract, Opcode::kMultiply, Opcode::kMaximum,
                                          Opcode::kMinimum};
    return builder->Binary(kOpcodes[Below(5)], x, Fit(builder, y, x->shape()));
  }
  Instruction* Select(hlo::Builder* builder, Instruction* x, Instruction* y) {
    y = Fit(builder, y, x->shape());
    return builder->Select(builder->Compare(hlo::Comparison::kLt, x, y), y, x);
  }
  Instruction* Broadcast(hlo::Builder* builder, Instruction* x) {
    if (x->shape().ndim() > 2) return nullptr;
    Dims sizes = x->shape().dims(), dimensions;
    const int at = Below(static_cast<int>(sizes.size()) + 1);
    for (int64_t d = 0; d < x->shape().ndim(); ++d) dimensions.push_back(d < at ? d : d + 1);
    sizes.insert(sizes.begin() + at, 1 + Below(4));
    return builder->Broadcast(x, sizes, dimensions);
  }
  Instruction* Reduce(hlo::Builder* builder, Instruction* x) {
    Dims dimensions;
    for (int64_t d = 0; d < x->shape().ndim(); ++d) {
      if (Below(2) == 0) dimensions.push_back(d);
    }
    if (dimensions.empty()) return nullptr;
    const Opcode opcode = Below(3) == 0 ? Opcode::kMaximum : Opcode::kAdd;
    Instruction* init = builder->Scalar(x->shape().type(), opcode == Opcode::kAdd ? 0 : -100);
    return builder->Reduce(x, init, dimensions, hlo::ScalarReducer(module_.get(), opcode, x->shape().type()));
  }
  Instruction* Concatenate(hlo::Builder* builder, Instruction* x) {
    if (x->shape().ndim() == 0) return nullptr;
    return builder->Concatenate({x, x}, Below(static_cast<int>(x->shape().ndim())));
  }
  Instruction* Transpose(hlo::Builder* builder, Instruction* x) {
    Dims permutation;
    for (int64_t d = 0; d < x->shape().ndim(); ++d) {
      permutation.insert(permutation.begin() + Below(static_cast<int>(d) + 1), d);
    }
    return builder->Transpose(x, permutation);
  }
  Instruction* Slice(hlo::Builder* builder, Instruction* x) {
    Dims start, limit, stride;
    for (int64_t size : x->shape().dims()) {
      start.push_back(Below(static_cast<int>(size)));
      limit.push_back(start.back() + 1 + Below(static_cast<int>(size - start.back())));
      stride.push_back(1 + Below(2));
    }
    return builder->Slice(x, start, limit, stride);
  }
  Dims ReshapedDims(const Dims& dims) {
    Dims result = dims;
    if (Below(2) == 0) return {tensor::Product(dims)};
    result.insert(result.begin() + Below(static_cast<int>(dims.size()) + 1), 1);
    return result;
  }
  Instruction* Dot(hlo::Builder* builder, Instruction* x, Instruction* y) {
    if (x->shape().type() != ElementType::kF32 || x->shape().ndim() == 0) return nullptr;
    const int64_t along = Below(static_cast<int>(x->shape().ndim()));
    y = Fit(builder, y, Shape(ElementType::kF32, {3, x->shape().dim(along)}));
    hlo::DotDimensions dims;
    dims.lhs_contracting = {along};
    dims.rhs_contracting = {1};
    return builder->Dot(x, y, dims, ElementType::kF32);
  }
  Instruction* Index(hlo::Builder* builder, Instruction* y) {
    Instruction* scalar = Fit(builder, y, Shape(y->shape().type(), {}));
    return scalar->shape().type() == ElementType::kS32 ? scalar : builder->Scalar(ElementType::kS32, Below(4));
  }
  Instruction* DynamicSlice(hlo::Builder* builder, Instruction* x, Instruction* y) {
    std::vector<Instruction*> starts;
    Dims sizes;
    for (int64_t size : x->shape().dims()) {
      starts.push_back(Index(builder, y));
      sizes.push_back(1 + Below(static_cast<int>(size)));
    }
    if (starts.empty()) return nullptr;
    if (Below(2) == 0) return builder->DynamicSlice(x, starts, sizes);
    return builder->DynamicUpdateSlice(x, Fit(builder, y, Shape(x->shape().type(), sizes)), starts);
  }

  // A tuple of a counter and values of the pool.
  std::vector<Instruction*> Carried(hlo::Builder* builder, const std::vector<Instruction*>& pool) {
    std::vector<Instruction*> carried = {builder->Scalar(ElementType::kS32, 0)};
    for (int i = 1 + Below(4); i > 0; --i) carried.push_back(Pick(pool));
    return carried;
  }
  std::vector<Instruction*> Open(hlo::Builder* builder, const Shape& tuple) {
    Instruction* parameter = builder->Parameter(0, tuple);
    std::vector<Instruction*> elements;
    for (size_t i = 0; i < tuple.tuple().size(); ++i) {
      elements.push_back(builder->GetTupleElement(parameter, static_cast<int64_t>(i)));
    }
    return elements;
  }

  Instruction* While(hlo::Builder* builder, const std::vector<Instruction*>& pool, int depth) {
    Instruction* init = builder->Tuple(Carried(builder, pool));
    const Shape shape = init->shape();
    Computation* condition = module_->Add(std::make_unique<Computation>("condition"));
    hlo::Builder in_condition(condition);
    Instruction* counter = Open(&in_condition, shape)[0];
    condition->set_root(
        in_condition.Compare(hlo::Comparison::kLt, counter, in_condition.Scalar(ElementType::kS32, Below(13))));
    Computation* body = module_->Add(std::make_unique<Computation>("body"));
    hlo::Builder in_body(body);
    std::vector<Instruction*> old = Open(&in_body, shape), inner = old;
    Grow(&in_body, &inner, 2 + Below(6), depth + 1);
    std::vector<Instruction*> next = {
        in_body.Binary(Opcode::kAdd, old[0], in_body.Scalar(ElementType::kS32, 1 + Below(3)))};
    for (size_t i = 1; i < old.size(); ++i) {
      // Some unchanged, some swapped, some new.
      Instruction* value = Below(4) == 0 ? old[i] : Pick(inner);
      next.push_back(value->shape().SameIgnoringLayout(old[i]->shape()) ? value
                                                                        : Fit(&in_body, value, old[i]->shape()));
    }
    body->set_root(in_body.Tuple(next));
    auto loop = std::make_unique<Instruction>(Opcode::kWhile, shape);
    loop->mutable_called() = {condition, body};
    Instruction* made = builder->computation()->Add(std::move(loop), {init});
    return builder->GetTupleElement(made, 1 + Below(static_cast<int>(old.size()) - 1));
  }

  Instruction* Conditional(hlo::Builder* builder, const std::vector<Instruction*>& pool, int depth) {
    Instruction* argument = builder->Tuple(Carried(builder, pool));
    Instruction* selector = Index(builder, Pick(pool));
    const Shape result = Pick(pool)->shape();
    auto conditional = std::make_unique<Instruction>(Opcode::kConditional, Shape::Tuple({result, result}));
    std::vector<Instruction*> operands = {selector};
    for (int b = 2 + Below(2); b > 0; --b) {
      Computation* branch = module_->Add(std::make_unique<Computation>("branch"));
      hlo::Builder inside(branch);
      std::vector<Instruction*> inner = Open(&inside, argument->shape());
      Grow(&inside, &inner, 1 + Below(4), depth + 1);
      branch->set_root(inside.Tuple({Fit(&inside, Pick(inner), result), Fit(&inside, Pick(inner), result)}));
      conditional->mutable_called().push_back(branch);
      operands.push_back(argument);
    }
    // Collectives inside need a selector that is the same everywhere.
    if (devices_ > 1) operands[0] = builder->Scalar(ElementType::kS32, Below(3));
    Instruction* made = builder->computation()->Add(std::move(conditional), operands);
    return builder->GetTupleElement(made, Below(2));
  }

  Instruction* Collective(hlo::Builder* builder, Instruction* x) {
    hlo::ReplicaGroups groups;
    const int size = devices_ % 2 == 0 && Below(2) == 0 ? devices_ / 2 : devices_;
    for (int first = 0; first < devices_; first += size) {
      groups.groups.emplace_back();
      for (int d = size - 1; d >= 0; --d) groups.groups.back().push_back(first + d);
    }
    const int64_t d = x->shape().ndim() == 0 ? -1 : Below(static_cast<int>(x->shape().ndim()));
    Computation* add = hlo::ScalarReducer(module_.get(), Opcode::kAdd, x->shape().type());
    const int64_t channel = ++channels_;
    const int kind = d < 0 ? 0 : Below(4);
    if (kind == 0) return builder->AllReduce(x, add, groups, channel);
    if (kind == 1) return builder->AllGather(x, d, groups, channel);
    if (kind == 2) {
      std::vector<std::pair<int64_t, int64_t>> pairs;
      for (int i = 0; i + 1 < devices_; ++i) pairs.emplace_back(i, i + 1);
      return builder->CollectivePermute(x, pairs, channel);
    }
    if (x->shape().dim(d) % size != 0) return nullptr;
    return builder->ReduceScatter(x, d, add, groups, channel);
  }

  void Finish(hlo::Builder* builder, const std::vector<Instruction*>& pool, int parameters) {
    std::vector<Instruction*> results;
    for (int i = 2 + Below(4); i > 0; --i) results.push_back(Pick(pool));
    for (int p = 0; p < parameters; ++p) {
      if (Below(2) == 0) continue;
      hlo::InputOutputAlias alias;
      alias.output_index = {static_cast<int64_t>(results.size())};
      alias.parameter = p;
      module_->input_output_alias.push_back(alias);
      Instruction* value = Pick(pool);
      const Shape& shape = module_->entry()->parameter(p)->shape();
      results.push_back(value->shape().SameIgnoringLayout(shape) ? value : Fit(builder, value, shape));
    }
    builder->computation()->set_root(builder->Tuple(results));
  }

  std::unique_ptr<Random> random_;
  const int devices_;
  int64_t channels_ = 0;
  std::unique_ptr<Module> module_;
};

}  // namespace

std::unique_ptr<Module> RandomProgram(uint64_t seed, int instructions, int devices) {
  return Generator(seed, devices).Run(instructions);
}

Array RandomArray(const tensor::Shape& shape, Random* random) {
  Array array(shape);
  const auto below = [&](int n) { return static_cast<int>(random->Below(static_cast<uint64_t>(n))); };
  switch (shape.type) {
    case ElementType::kF32:
      for (float& value : array.values<float>()) value = static_cast<float>(below(33) - 16) / 8;
      break;
    case ElementType::kPred:
      for (uint8_t& value : array.values<uint8_t>()) value = static_cast<uint8_t>(below(2));
      break;
    case ElementType::kS32:
    case ElementType::kU32:
      for (int32_t& value : array.values<int32_t>()) value = below(8);
      break;
    default:
      for (std::byte& byte : array.bytes()) byte = static_cast<std::byte>(below(8));
  }
  return array;
}

std::vector<Array> RandomInputs(const Module& module, Random* random) {
  std::vector<Array> inputs;
  for (const Instruction* parameter : module.entry()->parameters()) {
    for (const Shape* leaf : Leaves(parameter->shape())) inputs.push_back(RandomArray(leaf->array(), random));
  }
  return inputs;
}

}  // namespace xlad::compiler
