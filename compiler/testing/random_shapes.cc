// Random changes of shape, slices, gathers and scatters.
#include <algorithm>

#include "compiler/testing/random_values.h"

namespace xlad::compiler {

namespace {

// A broadcast of a scalar, which many passes move across other instructions.
Sample Filled(RandomValues& random, Builder& builder, const Pool& pool) {
  const Sample x = random.Pick(pool);
  const Dims dims = random.OneIn(2) ? random.Pick(pool).dims() : random.RandomDims(3);
  const Sample scalar = random.FitDims(builder, x, {});
  return dims.empty() ? scalar : Like(scalar, builder.Full(Shape(x.type(), dims), scalar.array));
}

// Merges two dimensions or all of them, splits a dimension, or inserts a dimension of size 1.
Sample Reshaped(RandomValues& random, Builder& builder, const Sample& x) {
  Dims sizes = x.dims();
  const int kind = random.Below(3);
  if (kind == 0 && x.ndim() >= 2) {
    const int64_t at = random.Below(x.ndim() - 1);
    sizes[at] *= sizes[at + 1];
    sizes.erase(sizes.begin() + at + 1);
  } else if (kind == 1 && x.ndim() >= 1) {
    const int64_t at = random.Below(x.ndim()), part = 2 + random.Below(3);
    if (sizes[at] % part != 0) return {};
    sizes[at] /= part;
    sizes.insert(sizes.begin() + at + random.Below(2), part);
  } else if (kind == 2 && random.OneIn(2)) {
    sizes = {tensor::Product(sizes)};
  } else {
    sizes.insert(sizes.begin() + random.Below(x.ndim() + 1), 1);
  }
  return Like(x, builder.Reshape(x.array, sizes));
}

// Padding may be negative, and may be between elements.
Sample Padded(RandomValues& random, Builder& builder, const Sample& x, const Pool& pool) {
  std::vector<hlo::PaddingDimension> padding(x.dims().size());
  for (size_t d = 0; d < padding.size(); ++d) {
    if (random.OneIn(2)) continue;
    padding[d].interior = random.OneIn(4) ? 1 : 0;
    padding[d].low = random.Below(4) - 1;
    padding[d].high = random.Below(4) - 1;
    if (padding[d].low + padding[d].high + x.dims()[d] < 1) return {};
  }
  const Sample y = random.Fit(builder, random.Pick(pool), x.type(), {});
  return JoinOf(x, y, builder.Pad(x.array, y.array, padding));
}

}  // namespace

Sample RandomShapeChange(RandomValues& random, Builder& builder, const Pool& pool) {
  const Sample x = random.Pick(pool);
  const Dims& dims = x.dims();
  switch (random.Below(8)) {
    case 0: {  // A broadcast along a new dimension.
      if (x.ndim() > 3) return {};
      Dims sizes = dims, map;
      const int at = random.Below(x.ndim() + 1);
      for (int64_t d = 0; d < x.ndim(); ++d) map.push_back(d < at ? d : d + 1);
      sizes.insert(sizes.begin() + at, 1 + random.Below(7));
      return Like(x, builder.Broadcast(x.array, sizes, map));
    }
    case 1: {
      Dims permutation;
      for (int64_t d = 0; d < x.ndim(); ++d) permutation.insert(permutation.begin() + random.Below(d + 1), d);
      return Like(x, builder.Transpose(x.array, permutation));
    }
    case 2: return Reshaped(random, builder, x);
    case 3: {
      if (x.ndim() == 0) return {};
      auto reverse = std::make_unique<Instruction>(Opcode::kReverse, x.array->shape());
      Dims reversed = {random.Below(x.ndim())};
      if (x.ndim() > 1 && random.OneIn(3)) reversed = {0, x.ndim() - 1};
      reverse->set_dimensions(reversed);
      return Like(x, Append(builder, std::move(reverse), {x.array}));
    }
    case 4: {
      if (x.ndim() == 0) return {};
      const int64_t along = random.Below(x.ndim());
      Dims other = dims;
      other[along] = 1 + random.Below(4);
      const Sample y = random.Fit(builder, random.Pick(pool), x.type(), other);
      return JoinOf(x, y, builder.Concatenate({x.array, y.array}, along));
    }
    case 5: return Padded(random, builder, x, pool);
    default: return Filled(random, builder, pool);
  }
}

Sample RandomSlice(RandomValues& random, Builder& builder, const Pool& pool) {
  const Sample x = random.Pick(pool);
  if (x.ndim() == 0) return {};
  if (random.OneIn(3)) {
    Dims start, limit, stride;
    for (int64_t size : x.dims()) {
      start.push_back(size == 0 || random.OneIn(2) ? 0 : random.Below(size));
      limit.push_back(size == 0 || random.OneIn(2) ? size : start.back() + 1 + random.Below(size - start.back()));
      stride.push_back(random.OneIn(3) ? 2 : 1);
    }
    return Like(x, builder.Slice(x.array, start, limit, stride));
  }
  static constexpr ElementType kTypes[] = {ElementType::kS32, ElementType::kS32, ElementType::kU32, ElementType::kU64};
  const ElementType type = random.OneIn(2) ? random.OneOf(kTypes) : random.RandomInteger();
  const Pool* const indices = random.OneIn(2) ? nullptr : &pool;  // Passes replace slices at constant indices.
  std::vector<Instruction*> starts;
  Dims sizes;
  for (int64_t size : x.dims()) {
    starts.push_back(random.Index(builder, indices, type, size));
    sizes.push_back(size == 0 || random.OneIn(3) ? size : 1 + random.Below(size));
  }
  if (random.OneIn(2)) return Like(x, builder.DynamicSlice(x.array, starts, sizes));
  const Sample y = random.Fit(builder, random.Pick(pool), x.type(), sizes);
  return JoinOf(x, y, builder.DynamicUpdateSlice(x.array, y.array, starts));
}

namespace {

// Indices for gather and scatter: small and extreme integers of any type.
Instruction* IndexArray(RandomValues& random, Builder& builder, const Pool& pool, const Dims& dims) {
  const ElementType type = random.OneIn(2) ? ElementType::kS32 : random.RandomInteger();
  if (random.options().specials && random.OneIn(4)) return random.SpecialConstant(builder, type, dims);
  const Sample index = random.PickExact(pool);
  return index ? random.Fit(builder, index, type, dims).array : random.FreshArray(builder, type, dims).array;
}

Sample Gather(RandomValues& random, Builder& builder, Sample x, const Pool& pool) {
  const int64_t n = x.ndim(), along = random.Below(n), count = 1 + random.Below(7);
  hlo::GatherDimensions g;
  Dims sizes = x.dims(), indices = {count};
  auto gather = std::make_unique<Instruction>(Opcode::kGather, Shape(x.type(), {}));
  const int kind = random.Below(3);
  if (kind == 0 && n >= 2) {  // Indices for each row, as in jnp.take_along_axis.
    const int64_t batch = (along + 1) % n;
    g.operand_batching_dims = {batch};
    g.start_indices_batching_dims = {0};
    sizes[batch] = 1;
    indices = {x.dims()[batch], count};
  }
  sizes[along] = 1;
  g.start_index_map = {along};
  g.collapsed_slice_dims = {along};
  if (kind == 1 && n >= 2) {  // Two indices for each slice, of size two in the second dimension.
    const int64_t second = (along + 1) % n;
    g.start_index_map.push_back(second);
    indices.push_back(2);
    sizes[second] = std::min<int64_t>(2, x.dims()[second]);
  }
  g.index_vector_dim = std::ssize(indices) - (indices.size() == 2 && kind == 1 ? 1 : 0);
  const int64_t batches = std::ssize(indices) - (kind == 1 && n >= 2 ? 1 : 0);
  const int64_t offsets = n - 1 - std::ssize(g.operand_batching_dims);
  const bool first = random.OneIn(2);
  for (int64_t d = 0; d < offsets; ++d) g.offset_dims.push_back(first ? d : batches + d);
  gather->mutable_attributes().gather = g;
  gather->mutable_attributes().slice_sizes = sizes;
  Instruction* index = IndexArray(random, builder, pool, indices);
  return Like(x, Append(builder, std::move(gather), {x.array, index}));
}

// Updates along one dimension or two, combined by a reducer. A reducer that overwrites gets unique indices, because the
// order of updates is not defined.
Sample Scatter(RandomValues& random, Builder& builder, Sample x, const Pool& pool) {
  const int64_t n = x.ndim(), along = random.Below(n);
  int64_t count = 1 + random.Below(7);
  static constexpr Opcode kReducers[] = {Opcode::kAdd, Opcode::kAdd, Opcode::kMaximum, Opcode::kMinimum};
  const bool overwrite = !x.finite() || random.OneIn(5), logical = x.type() == ElementType::kPred;
  if (overwrite) count = std::min(count, x.dims()[along]);
  const bool two = !overwrite && n >= 2 && random.OneIn(2);  // An index vector has two components.
  const int64_t second_along = (along + 1) % n;
  Dims updates = x.dims();
  if (two) updates[second_along] = std::min<int64_t>(updates[second_along], 1 + random.Below(2));
  updates.erase(updates.begin() + along);
  hlo::ScatterDimensions s;
  const bool last = random.OneIn(2);
  updates.insert(last ? updates.end() : updates.begin(), count);
  for (int64_t d = 0; d + 1 < n; ++d) s.update_window_dims.push_back(last ? d : d + 1);
  s.inserted_window_dims = {along};
  s.scatter_dims_to_operand_dims = {along};
  if (two) s.scatter_dims_to_operand_dims = random.OneIn(2) ? Dims{along, second_along} : Dims{second_along, along};
  s.index_vector_dim = 1;
  auto scatter = std::make_unique<Instruction>(Opcode::kScatter, x.array->shape());
  scatter->mutable_attributes().scatter = s;
  const Opcode opcode = logical                        ? Opcode::kOr
                        : tensor::IsComplex(x.type()) ? Opcode::kAdd
                                                       : random.OneOf(kReducers);
  if (overwrite) {
    Instruction* index = builder.Iota(Shape(ElementType::kS32, {count}), 0);
    hlo::Computation* second = random.module().Add(std::make_unique<hlo::Computation>("second"));
    Builder inside(second);
    inside.Parameter(0, Shape(x.type(), {}));
    second->set_root(inside.Parameter(1, Shape(x.type(), {})));
    scatter->mutable_called() = {second};
    scatter->mutable_attributes().unique_indices = true;
    const Sample u = random.Fit(builder, random.Pick(pool), x.type(), updates);
    return JoinOf(x, u, Append(builder, std::move(scatter), {x.array, index, u.array}));
  }
  Instruction* index = IndexArray(random, builder, pool, two ? Dims{count, 2} : Dims{count});
  scatter->mutable_called() = {hlo::ScalarReducer(&random.module(), opcode, x.type())};
  const Sample u = random.FiniteOperand(builder, pool, x.type(), updates);
  Instruction* made = Append(builder, std::move(scatter), {x.array, index, u.array});
  if (opcode != Opcode::kAdd) return JoinOf(x, u, made);
  const double times = static_cast<double>(count);
  Sample sum{made, x.bound + times * u.bound, std::max(x.fraction, u.fraction), x.error + times * u.error};
  if (sum.error > 0) sum.error += times * RoundingOf(x.type()) * sum.bound;
  return sum;
}

}  // namespace

Sample RandomIndexed(RandomValues& random, Builder& builder, const Pool& pool) {
  const Sample x = random.Pick(pool);
  if (x.ndim() == 0) return {};
  return random.OneIn(2) ? Gather(random, builder, x, pool) : Scatter(random, builder, x, pool);
}

}  // namespace xlad::compiler
