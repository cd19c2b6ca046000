// How one tensor is split over a mesh, in Shardy's model: the axes that split each dimension, and the axes along which
// every device holds only a partial result.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "hlo/opcode.h"
#include "sharding/model/mesh.h"

namespace xlad::sharding {

// Why a dimension is split by an axis: one link of a chain that starts at an annotation of the user and continues
// through propagation and partitioning. `xlad explain` prints the chain. Links are immutable and shared.
struct Origin {
  enum class Kind { kAnnotation, kPropagated, kPartitioned };
  Kind kind = Kind::kAnnotation;
  std::string op;      // The name of the instruction that this link is about.
  std::string what;    // "annotated {\"dp\"} on dimension 0", "factor i of dot", "contracting factor k is split".
  std::string source;  // The user's file:line (function), or empty if it is not known.
  std::shared_ptr<const Origin> because;  // The previous link; null for an annotation or if the cause is unknown.
};
using OriginPtr = std::shared_ptr<const Origin>;

// The chain from this link to the annotation, one line "op: what (source)" per link. In a chain of more than 49 links,
// the line "(through N more values)" replaces the links between the first 24 and the last 24.
std::vector<std::string> Chain(const OriginPtr& origin);

struct DimensionSharding {
  AxisList axes;
  std::vector<OriginPtr> origins;  // Parallel to axes. An entry is null or missing if the origin is unknown.
  bool closed = false;             // Propagation may split an open dimension further, but not a closed one.
  int priority = 0;                // Shardy's p<N>: propagation starts with priority 0.
  // Compares only the axes.
  friend bool operator==(const DimensionSharding& a, const DimensionSharding& b) { return a.axes == b.axes; }
};

struct TensorSharding {
  std::vector<DimensionSharding> dims;
  AxisList replicated;  // Axes that propagation must not use in this tensor.
  AxisList unreduced;   // Axes along which devices hold partial results, to be combined by unreduced_reduction.
  hlo::Opcode unreduced_reduction = hlo::Opcode::kAdd;

  static TensorSharding Open(int64_t ndim);        // All dimensions open, no axes.
  static TensorSharding Replicated(int64_t ndim);  // All dimensions closed, no axes.
  bool IsReplicated() const;                       // No axes on any dimension, no unreduced axes.
  // Equal axes on every dimension and equal unreduced axes.
  friend bool operator==(const TensorSharding& a, const TensorSharding& b) {
    return a.dims == b.dims && a.unreduced == b.unreduced;
  }
};

// The shape of every shard: ceil(size / shards) in every dimension. The last shards of a dimension may consist of
// padding, in part or entirely: f32[10] in 4 shards is f32[3] on each device, and the last one holds 1 element.
Dims LocalDims(absl::Span<const int64_t> dims, const TensorSharding& sharding);
// The global indices that `device` holds, without padding.
tensor::Box BoxOf(absl::Span<const int64_t> dims, const Mesh& mesh, const TensorSharding& sharding, int64_t device);

// Shardy's text: `[{"dp"}, {"tp", ?}], replicated={"x"}, unreduced=max{"y"}`. The last two parts are omitted if empty.
std::string ToString(const Mesh& mesh, const TensorSharding& sharding);

}  // namespace xlad::sharding
