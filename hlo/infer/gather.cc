// Inference for gather and scatter. The names of dimensions are those of the StableHLO specification.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "hlo/infer/rules.h"

namespace xlad::hlo {
namespace {

// The common part of gather and scatter: how an index vector selects a position in an operand, and which operand
// dimensions are not dimensions of a window.
struct IndexRules {
  int64_t operand_ndim;
  const Shape* indices;
  int64_t index_vector_dim;
  const Dims& index_map;  // The operand dimension of each component of the index vector.
  const Dims& dropped;    // collapsed_slice_dims, inserted_window_dims
  const Dims& operand_batching;
  const Dims& indices_batching;
  const Dims& operand_dims;
};

int64_t SizeOf(const Dims& dims, int64_t d) { return dims[d]; }

absl::Status CheckBatching(const IndexRules& r) {
  if (r.operand_batching.size() != r.indices_batching.size()) {
    return Violation(
        "gather-batching-dims",
        absl::StrCat("batching dimensions ", Brief(r.operand_batching), " of the operand and ",
                     Brief(r.indices_batching), " of the indices"),
        "the same number of batching dimensions");
  }
  XLAD_RETURN_IF_ERROR(ExpectDimensions("gather-batching-dims", r.indices_batching, r.indices->ndim()));
  if (Contains(r.indices_batching, r.index_vector_dim)) {
    return Violation("gather-batching-dims",
                     absl::StrCat("index_vector_dim ", r.index_vector_dim, " in ", Brief(r.indices_batching)),
                     "batching dimensions of the indices without index_vector_dim");
  }
  for (size_t b = 0; b < r.operand_batching.size(); ++b) {
    const int64_t of_operand = SizeOf(r.operand_dims, r.operand_batching[b]);
    const int64_t of_indices = r.indices->dim(r.indices_batching[b]);
    if (of_operand != of_indices) {
      return Violation("gather-batching-sizes", absl::StrCat("sizes ", of_operand, " and ", of_indices),
                       "equal sizes of batching dimensions");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckIndices(const IndexRules& r) {
  if (r.index_vector_dim < 0 || r.index_vector_dim > r.indices->ndim()) {
    return Violation("gather-index-vector-dim", absl::StrCat("index_vector_dim=", r.index_vector_dim),
                     absl::StrCat("0 to ", r.indices->ndim()));
  }
  const int64_t length = r.index_vector_dim == r.indices->ndim() ? 1 : r.indices->dim(r.index_vector_dim);
  if (std::ssize(r.index_map) != length) {
    return Violation("gather-index-map", absl::StrCat("index map ", Brief(r.index_map)),
                     absl::StrCat("one operand dimension for each of ", length, " components of an index vector"));
  }
  XLAD_RETURN_IF_ERROR(ExpectDimensions("gather-index-map", r.index_map, r.operand_ndim));
  XLAD_RETURN_IF_ERROR(ExpectDimensions("gather-collapsed-dims", r.dropped, r.operand_ndim));
  XLAD_RETURN_IF_ERROR(ExpectDimensions("gather-batching-dims", r.operand_batching, r.operand_ndim));
  for (const int64_t d : r.operand_batching) {
    if (Contains(r.dropped, d) || Contains(r.index_map, d)) {
      return Violation("gather-batching-dims", absl::StrCat("operand dimension ", d, " with a second use"),
                       "batching dimensions that are neither collapsed nor indexed");
    }
  }
  return CheckBatching(r);
}

// The operand dimensions of a window, in order.
Dims WindowDimensions(const IndexRules& r) {
  Dims result;
  for (int64_t d = 0; d < r.operand_ndim; ++d) {
    if (!Contains(r.dropped, d) && !Contains(r.operand_batching, d)) result.push_back(d);
  }
  return result;
}

Dims IndexBatchSizes(const IndexRules& r) {
  Dims sizes = r.indices->dims();
  if (r.index_vector_dim < r.indices->ndim()) sizes.erase(sizes.begin() + r.index_vector_dim);
  return sizes;
}

absl::Status CheckSliceSizes(const IndexRules& r, const Dims& slice_sizes) {
  if (std::ssize(slice_sizes) != r.operand_ndim) {
    return Violation("gather-slice-sizes", absl::StrCat("slice_sizes=", Brief(slice_sizes)),
                     absl::StrCat("one size for each of ", r.operand_ndim, " operand dimensions"));
  }
  for (int64_t d = 0; d < r.operand_ndim; ++d) {
    const int64_t size = SizeOf(slice_sizes, d);
    const bool single = Contains(r.dropped, d) || Contains(r.operand_batching, d);
    if (size < 0 || size > SizeOf(r.operand_dims, d) || (single && size > 1)) {
      return Violation(
          "gather-slice-sizes", absl::StrCat("slice size ", size, " in dimension ", d),
          absl::StrCat("0 to ", single ? std::min<int64_t>(1, SizeOf(r.operand_dims, d)) : SizeOf(r.operand_dims, d)));
    }
  }
  return absl::OkStatus();
}

}  // namespace

Inferred InferGather(const Instruction& i) {
  XLAD_RETURN_IF_ERROR(ExpectArray(i, 0));
  XLAD_RETURN_IF_ERROR(ExpectArray(i, 1, kIntegers));
  if (!i.attributes().gather.has_value()) {
    return Violation("gather-dims", "no dimension numbers", "offset_dims, start_index_map and others");
  }
  const GatherDimensions& g = *i.attributes().gather;
  const Shape& x = i.operand(0)->shape();
  const IndexRules rules{x.ndim(),
                         &i.operand(1)->shape(),
                         g.index_vector_dim,
                         g.start_index_map,
                         g.collapsed_slice_dims,
                         g.operand_batching_dims,
                         g.start_indices_batching_dims,
                         x.dims()};
  XLAD_RETURN_IF_ERROR(CheckIndices(rules));
  const Dims& slice_sizes = i.attributes().slice_sizes;
  XLAD_RETURN_IF_ERROR(CheckSliceSizes(rules, slice_sizes));
  const Dims window = WindowDimensions(rules);
  const Dims batch = IndexBatchSizes(rules);
  const int64_t ndim = batch.size() + g.offset_dims.size();
  if (g.offset_dims.size() != window.size()) {
    return Violation("gather-offset-dims", absl::StrCat("offset_dims=", Brief(g.offset_dims)),
                     absl::StrCat("one for each of ", window.size(), " dimensions of a slice"));
  }
  XLAD_RETURN_IF_ERROR(ExpectDimensions("gather-offset-dims", g.offset_dims, ndim));
  if (!std::is_sorted(g.offset_dims.begin(), g.offset_dims.end())) {
    return Violation("gather-offset-dims", absl::StrCat("offset_dims=", Brief(g.offset_dims)), "ascending order");
  }
  Dims dims;
  size_t next_window = 0, next_batch = 0;
  for (int64_t d = 0; d < ndim; ++d) {
    dims.push_back(Contains(g.offset_dims, d) ? SizeOf(slice_sizes, window[next_window++]) : batch[next_batch++]);
  }
  return Shape(x.type(), std::move(dims));
}

namespace {

// Checks that `updates` has at most the operand's sizes in update_window_dims, and the batch sizes of the indices in
// its other dimensions.
absl::Status CheckUpdates(const ScatterDimensions& s, const IndexRules& rules, const Shape& updates) {
  const Dims window = WindowDimensions(rules);
  const Dims batch = IndexBatchSizes(rules);
  if (s.update_window_dims.size() != window.size() || updates.ndim() != std::ssize(window) + std::ssize(batch)) {
    return Violation("scatter-updates",
                     absl::StrCat("updates ", Brief(updates), " with update_window_dims=", Brief(s.update_window_dims)),
                     absl::StrCat(window.size(), " window dimensions and ", batch.size(), " of the indices"));
  }
  XLAD_RETURN_IF_ERROR(ExpectDimensions("scatter-window-dims", s.update_window_dims, updates.ndim()));
  if (!std::is_sorted(s.update_window_dims.begin(), s.update_window_dims.end())) {
    return Violation("scatter-window-dims", absl::StrCat("update_window_dims=", Brief(s.update_window_dims)),
                     "ascending order");
  }
  size_t next_window = 0, next_batch = 0;
  for (int64_t d = 0; d < updates.ndim(); ++d) {
    const bool in_window = Contains(s.update_window_dims, d);
    const int64_t bound = in_window ? SizeOf(rules.operand_dims, window[next_window++]) : batch[next_batch++];
    if (in_window ? updates.dim(d) > bound : updates.dim(d) != bound) {
      return Violation("scatter-updates",
                       absl::StrCat("size ", updates.dim(d), " in dimension ", d, " of updates ", Brief(updates)),
                       absl::StrCat(in_window ? "at most " : "", bound));
    }
  }
  return absl::OkStatus();
}

}  // namespace

Inferred InferScatter(const Instruction& i) {
  XLAD_RETURN_IF_ERROR(ExpectOperandCount(i, 3));
  XLAD_RETURN_IF_ERROR(ExpectArrays(i));
  if (i.operand_count() % 2 == 0) {
    return Violation("operand-count", Counted(i.operand_count(), "operand"), "N operands, indices, N updates");
  }
  const int64_t n = i.operand_count() / 2;
  if (!i.attributes().scatter.has_value()) {
    return Violation("scatter-dims", "no dimension numbers", "update_window_dims and others");
  }
  XLAD_RETURN_IF_ERROR(ExpectArray(i, n, kIntegers));
  const ScatterDimensions& s = *i.attributes().scatter;
  const Shape& first = i.operand(0)->shape();
  std::vector<Shape> results;
  std::vector<ElementType> updates_types, types;
  for (int64_t k = 0; k < n; ++k) {
    const Shape& x = i.operand(k)->shape();
    const Shape& updates = i.operand(n + 1 + k)->shape();
    if (x.dims() != first.dims() || updates.dims() != i.operand(n + 1)->shape().dims()) {
      return Violation("scatter-same-sizes", absl::StrCat("operand ", Brief(x), " with updates ", Brief(updates)),
                       absl::StrCat("the sizes of ", Brief(first), " and ", Brief(i.operand(n + 1)->shape())));
    }
    results.emplace_back(x.type(), x.dims());
    types.push_back(x.type());
    updates_types.push_back(updates.type());
  }
  const IndexRules rules{first.ndim(),
                         &i.operand(n)->shape(),
                         s.index_vector_dim,
                         s.scatter_dims_to_operand_dims,
                         s.inserted_window_dims,
                         s.input_batching_dims,
                         s.scatter_indices_batching_dims,
                         first.dims()};
  XLAD_RETURN_IF_ERROR(CheckIndices(rules));
  XLAD_RETURN_IF_ERROR(CheckUpdates(s, rules, i.operand(n + 1)->shape()));
  XLAD_RETURN_IF_ERROR(ExpectCalled(i, 1));
  XLAD_RETURN_IF_ERROR(ExpectReducer(i, 0, updates_types, types));
  return OneOrTuple(std::move(results));
}

}  // namespace xlad::hlo
