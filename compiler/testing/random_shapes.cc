// Random changes of shape, slices, gathers and scatters.
#include <algorithm>

#include "compiler/testing/random_values.h"

namespace xlad::compiler {

using hlo::Builder;
using hlo::Dims;
using hlo::ElementType;
using hlo::Instruction;
using hlo::Opcode;
using hlo::Shape;

Sample RandomValues::RandomShapeChange(Builder* builder, const Pool& pool) {
  const Sample x = Pick(pool);
  const Dims& dims = x.dims();
  switch (Below(6)) {
    case 0: {  // Repeated along a new dimension.
      if (x.ndim() > 3) return {};
      Dims sizes = dims, map;
      const int at = Below(x.ndim() + 1);
      for (int64_t d = 0; d < x.ndim(); ++d) map.push_back(d < at ? d : d + 1);
      sizes.insert(sizes.begin() + at, 1 + Below(7));
      return Like(x, builder->Broadcast(x.array, sizes, map));
    }
    case 1: {
      Dims permutation;
      for (int64_t d = 0; d < x.ndim(); ++d) permutation.insert(permutation.begin() + Below(d + 1), d);
      return Like(x, builder->Transpose(x.array, permutation));
    }
    case 2: {  // Merged, split or with a one more.
      Dims sizes = dims;
      const int kind = Below(3);
      if (kind == 0 && x.ndim() >= 2) {
        const int at = Below(x.ndim() - 1);
        sizes[at] *= sizes[static_cast<size_t>(at) + 1];
        sizes.erase(sizes.begin() + at + 1);
      } else if (kind == 1 && x.ndim() >= 1) {
        const int at = Below(x.ndim());
        const int64_t part = 2 + Below(3);
        if (sizes[at] % part != 0) return {};
        sizes[at] /= part;
        sizes.insert(sizes.begin() + at + Below(2), part);
      } else if (kind == 2 && OneIn(2)) {
        sizes = {tensor::Product(dims)};
      } else {
        sizes.insert(sizes.begin() + Below(x.ndim() + 1), 1);
      }
      return Like(x, builder->Reshape(x.array, sizes));
    }
    case 3: {
      if (x.ndim() == 0) return {};
      auto reverse = std::make_unique<Instruction>(Opcode::kReverse, x.array->shape());
      Dims reversed = {Below(x.ndim())};
      if (x.ndim() > 1 && OneIn(3)) reversed = {0, x.ndim() - 1};
      reverse->set_dimensions(reversed);
      return Like(x, Append(builder, std::move(reverse), {x.array}));
    }
    case 4: {
      if (x.ndim() == 0) return {};
      const int64_t along = Below(x.ndim());
      Dims other = dims;
      other[along] = 1 + Below(4);
      const Sample y = Fit(builder, Pick(pool), x.type(), other);
      Sample both{nullptr, std::max(x.bound, y.bound), std::max(x.fraction, y.fraction), std::max(x.error, y.error)};
      return Like(both, builder->Concatenate({x.array, y.array}, along));
    }
    default: {
      std::vector<hlo::PaddingDimension> padding(dims.size());
      for (size_t d = 0; d < dims.size(); ++d) {
        if (OneIn(2)) continue;
        padding[d].interior = OneIn(4) ? 1 : 0;
        padding[d].low = Below(4) - 1;
        padding[d].high = Below(4) - 1;
        if (padding[d].low + padding[d].high + dims[d] < 1) return {};
      }
      const Sample y = Fit(builder, Pick(pool), x.type(), {});
      Sample both{nullptr, std::max(x.bound, y.bound), std::max(x.fraction, y.fraction), std::max(x.error, y.error)};
      return Like(both, builder->Pad(x.array, y.array, padding));
    }
  }
}

Sample RandomValues::RandomSlice(Builder* builder, const Pool& pool) {
  const Sample x = Pick(pool);
  if (x.ndim() == 0) return {};
  if (OneIn(3)) {
    Dims start, limit, stride;
    for (int64_t size : x.dims()) {
      start.push_back(size == 0 || OneIn(2) ? 0 : Below(size));
      limit.push_back(size == 0 || OneIn(2) ? size : start.back() + 1 + Below(size - start.back()));
      stride.push_back(OneIn(3) ? 2 : 1);
    }
    return Like(x, builder->Slice(x.array, start, limit, stride));
  }
  std::vector<Instruction*> starts;
  Dims sizes;
  for (int64_t size : x.dims()) {
    const Sample start = PickExact(pool);
    starts.push_back(start && OneIn(2) ? Fit(builder, start, ElementType::kS32, {}).array
                                       : builder->Scalar(ElementType::kS32, Below(size + 2) - 1));
    sizes.push_back(size == 0 || OneIn(2) ? size : 1 + Below(size));
  }
  if (OneIn(2)) return Like(x, builder->DynamicSlice(x.array, starts, sizes));
  const Sample y = Fit(builder, Pick(pool), x.type(), sizes);
  const Sample both{nullptr, std::max(x.bound, y.bound), std::max(x.fraction, y.fraction), std::max(x.error, y.error)};
  return Like(both, builder->DynamicUpdateSlice(x.array, y.array, starts));
}

Sample RandomValues::Gather(Builder* builder, Sample x, const Pool& pool) {
  const Sample start = PickExact(pool);
  if (!start) return {};
  const int64_t n = x.ndim(), along = Below(n), count = 1 + Below(7);
  hlo::GatherDimensions g;
  Dims sizes = x.dims(), indices = {count};
  auto gather = std::make_unique<Instruction>(Opcode::kGather, Shape(x.type(), {}));
  const int kind = Below(3);
  if (kind == 0 && n >= 2) {  // One index for each row: take_along_axis.
    const int64_t batch = (along + 1) % n;
    g.operand_batching_dims = {batch};
    g.start_indices_batching_dims = {0};
    sizes[batch] = 1;
    indices = {x.dims()[batch], count};
  }
  sizes[along] = 1;
  g.start_index_map = {along};
  g.collapsed_slice_dims = {along};
  if (kind == 1 && n >= 2) {  // Two indices an element, or blocks of two.
    const int64_t second = (along + 1) % n;
    g.start_index_map.push_back(second);
    indices.push_back(2);
    sizes[second] = std::min<int64_t>(2, x.dims()[second]);
  }
  g.index_vector_dim = std::ssize(indices) - (indices.size() == 2 && kind == 1 ? 1 : 0);
  const int64_t batches = std::ssize(indices) - (kind == 1 && n >= 2 ? 1 : 0);
  int64_t offsets = n - 1 - std::ssize(g.operand_batching_dims);
  const bool first = OneIn(2);
  for (int64_t d = 0; d < offsets; ++d) g.offset_dims.push_back(first ? d : batches + d);
  gather->mutable_attributes().gather = g;
  gather->mutable_attributes().slice_sizes = sizes;
  const Sample index = Fit(builder, start, OneIn(4) ? ElementType::kU8 : ElementType::kS32, indices);
  return Like(x, Append(builder, std::move(gather), {x.array, index.array}));
}

Sample RandomValues::Scatter(Builder* builder, Sample x, const Pool& pool) {
  const Sample start = PickExact(pool);
  if (!start) return {};
  const int64_t n = x.ndim(), along = Below(n);
  int64_t count = 1 + Below(7);
  static constexpr Opcode kReducers[] = {Opcode::kAdd, Opcode::kAdd, Opcode::kMaximum, Opcode::kMinimum};
  const bool overwrite = OneIn(5), logical = x.type() == ElementType::kPred;
  if (overwrite) count = std::min(count, x.dims()[along]);
  Dims updates = x.dims();
  updates.erase(updates.begin() + along);
  hlo::ScatterDimensions s;
  const bool last = OneIn(2);
  updates.insert(last ? updates.end() : updates.begin(), count);
  for (int64_t d = 0; d + 1 < n; ++d) s.update_window_dims.push_back(last ? d : d + 1);
  s.inserted_window_dims = {along};
  s.scatter_dims_to_operand_dims = {along};
  s.index_vector_dim = 1;
  auto scatter = std::make_unique<Instruction>(Opcode::kScatter, x.array->shape());
  scatter->mutable_attributes().scatter = s;
  const Opcode opcode = logical ? Opcode::kOr : tensor::IsComplex(x.type()) ? Opcode::kAdd : kReducers[Below(4)];
  Instruction* index = nullptr;
  if (overwrite) {  // Each place once: which of two writes wins is nobody's promise.
    index = builder->Iota(Shape(ElementType::kS32, {count}), 0);
    hlo::Computation* second = module_.Add(std::make_unique<hlo::Computation>("second"));
    Builder inside(second);
    inside.Parameter(0, Shape(x.type(), {}));
    second->set_root(inside.Parameter(1, Shape(x.type(), {})));
    scatter->mutable_called() = {second};
    scatter->mutable_attributes().unique_indices = true;
  } else {
    index = Fit(builder, start, ElementType::kS32, {count}).array;
    scatter->mutable_called() = {hlo::ScalarReducer(&module_, opcode, x.type())};
  }
  const Sample u = Fit(builder, Pick(pool), x.type(), updates);
  const bool adds = !overwrite && opcode == Opcode::kAdd;
  const double times = adds ? static_cast<double>(count) : 1, unit = RoundingOf(x.type());
  Sample result{Append(builder, std::move(scatter), {x.array, index, u.array})};
  result.bound = adds ? x.bound + times * u.bound : std::max(x.bound, u.bound);
  result.fraction = std::max(x.fraction, u.fraction);
  result.error = x.error + times * u.error;
  if (adds && result.error > 0) result.error += times * unit * result.bound;
  return result;
}

Sample RandomValues::RandomIndexed(Builder* builder, const Pool& pool) {
  const Sample x = Pick(pool);
  if (x.ndim() == 0) return {};
  return OneIn(2) ? Gather(builder, x, pool) : Scatter(builder, x, pool);
}

}  // namespace xlad::compiler
