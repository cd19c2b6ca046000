// How one tensor is split over a mesh (Shardy's model): for each dimension the axes that split it, plus axes along
// which partial results wait to be reduced.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "hlo/opcode.h"
#include "sharding/model/mesh.h"

namespace xlad::sharding {

// Why an axis lies where it lies: a chain from an annotation of the user to here, kept through propagation and
// partitioning and shown by `xlad explain`. Immutable and shared; one link a step.
struct Origin {
  enum class Kind { kAnnotation, kPropagated, kPartitioned };
  Kind kind = Kind::kAnnotation;
  std::string op;      // The instruction that this link is about: its name in the program.
  std::string what;    // "annotated {\"dp\"} on dimension 0", "factor i of dot", "contracting factor k is split".
  std::string source;  // The user's file:line (function), where known.
  std::shared_ptr<const Origin> because;  // The link before; null at an annotation.
};
using OriginPtr = std::shared_ptr<const Origin>;

// The chain as lines, nearest first: "op: what (source)".
std::vector<std::string> Chain(const OriginPtr& origin);

struct DimensionSharding {
  AxisList axes;
  std::vector<OriginPtr> origins;  // Parallel to axes; entries may be null. Not part of equality.
  bool closed = false;             // Open dimensions may be split further by propagation.
  int priority = 0;                // p<N>; 0 first.
  friend bool operator==(const DimensionSharding& a, const DimensionSharding& b) { return a.axes == b.axes; }
};

struct TensorSharding {
  std::vector<DimensionSharding> dims;
  AxisList replicated;  // Axes that propagation must not use here.
  AxisList unreduced;   // Axes along which every device holds a partial result.
  hlo::Opcode unreduced_reduction = hlo::Opcode::kAdd;

  static TensorSharding Open(int64_t ndim);        // Nothing known.
  static TensorSharding Replicated(int64_t ndim);  // Closed, no axes.
  bool IsReplicated() const;                       // No axis on any dimension, nothing unreduced.
  // Same axes on every dimension and the same unreduced ones.
  friend bool operator==(const TensorSharding& a, const TensorSharding& b) {
    return a.dims == b.dims && a.unreduced == b.unreduced;
  }
};

// Shard sizes: ceil(size / shards) in every dimension. The last shards may be partly or wholly padding.
Dims LocalDims(absl::Span<const int64_t> dims, const TensorSharding& sharding);
// The global indices that `device` really holds, padding aside.
tensor::Box BoxOf(absl::Span<const int64_t> dims, const Mesh& mesh, const TensorSharding& sharding, int64_t device);
// Whether every dimension divides evenly.
bool IsEven(absl::Span<const int64_t> dims, const TensorSharding& sharding);

// Shardy's text: `[{"dp"}, {"tp", ?}]`, with replicated/unreduced parts where present.
std::string ToString(const Mesh& mesh, const TensorSharding& sharding);

}  // namespace xlad::sharding
