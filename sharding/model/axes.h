// Arithmetic on lists of axes: overlap, cutting into common parts, joining, shard sizes, device groups.
#pragma once

#include <optional>
#include <vector>

#include "hlo/attributes.h"
#include "sharding/model/tensor_sharding.h"

namespace xlad::sharding {

// Whether two axis parts share a part of an axis: "x":(1)4 and "x":(2)4 do, "x":(1)2 and "x":(2)4 do not.
bool Overlap(const AxisRef& a, const AxisRef& b);
bool OverlapsAny(const AxisRef& a, const AxisList& list);
// Whether a dimension of the tensor is split along a part of `axis`.
bool SplitsDims(const TensorSharding& sharding, const AxisRef& axis);

// Appends `axis` to `list`. If it continues the last entry, the two are joined: "x":(1)2 followed by "x":(2)2 becomes
// "x":(1)4. Returns whether they were joined.
bool AppendAxis(const AxisRef& axis, AxisList* list);
// The list without entries of size 1, in which neighboring entries are joined if the second continues the first.
AxisList Merged(const AxisList& axes);

// The parts of the mesh's axes that no entry of `list` overlaps, in mesh order. The cuts of `list` must nest (see
// AxisCuts).
AxisList UnusedAxes(const Mesh& mesh, const AxisList& list);

// The axes of each dimension of a tensor: a sharding without its annotations and origins.
using DimensionAxes = std::vector<AxisList>;
DimensionAxes DimensionAxesOf(const TensorSharding& sharding);

// Cuts axes into common parts: any two parts that Cut returns are equal or do not overlap. For "x":(1)4 and "x":(2)4 on
// an axis of 8 the parts are "x":(1)2, "x":(2)2, "x":(4)2.
class AxisCuts {
 public:
  // All axes that will be cut must be added before Resolve.
  void Add(const AxisList& axes);
  void Add(const DimensionAxes& axes);
  // Returns false if the cuts do not nest, that is, one does not divide the next: for example, cuts at 2 and at 3 of an
  // axis of 6.
  bool Resolve(const Mesh& mesh);
  // Requires that Resolve has returned true.
  AxisList Cut(const AxisList& axes) const;
  DimensionAxes Cut(const DimensionAxes& axes) const;

 private:
  std::vector<AxisRef> seen_;
  std::vector<std::vector<int64_t>> cuts_;  // The positions of the cuts of each mesh axis, ascending.
};

// The axes, or parts of axes, along which device numbers change in steps of `stride` up to `stride * size`, major to
// minor. Nullopt if `stride` or `stride * size` is not at the border of a part. For stride 4 and size 2 on the mesh
// "a=4,b=2", returns "a":(1)2, because devices 0 and 4 differ in the major half of "a".
std::optional<AxisList> AxesOfStride(const Mesh& mesh, int64_t stride, int64_t size);

// The replica groups of a collective over `axes`, as Mesh::Groups orders them, in the iota form [groups, size]<=[...].
// The length of this form depends on the number of axes, but not on the number of devices. On the mesh "dp=2,tp=4" the
// groups over tp are [2,4]<=[8], and those over dp are [4,2]<=[2,4]T(1,0). If the cuts of `axes` do not nest, the
// groups are lists of devices.
hlo::ReplicaGroups ReplicaGroupsOver(const Mesh& mesh, const AxisList& axes);

// The size of a shard of `size` elements in `shards` shards: ceil(size / shards).
int64_t ShardSize(int64_t size, int64_t shards);

}  // namespace xlad::sharding
