// Builds instructions of one computation of the partitioned module: positions in the mesh, masks over padding, copies
// of instructions with local shapes. Equal positions and masks are built once.
#pragma once

#include <map>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "hlo/build/builder.h"
#include "sharding/partition/local_array.h"
#include "sharding/partition/partition_context.h"

namespace xlad::sharding {

// The type of positions along a dimension of `extent` elements, padding included: s32 if it can hold them, otherwise
// s64.
tensor::ElementType IndexType(int64_t extent);
// The type of positions along a dimension of `size` elements that is split into `shards` shards.
tensor::ElementType IndexType(int64_t size, int64_t shards);

class LocalBuilder {
 public:
  // Appends to `computation`. `context` and `computation` must outlive the builder.
  LocalBuilder(PartitionContext* context, hlo::Computation* computation)
      : context_(*context), builder_(computation) {}

  PartitionContext& context() { return context_; }
  const Mesh& mesh() const { return context_.mesh(); }
  hlo::Builder& builder() { return builder_; }
  hlo::Computation* computation() const { return builder_.computation(); }

  // The position of the executing device along `axes`, s32[].
  hlo::Instruction* Position(const AxisList& axes);
  // pred[]: whether the position along `axes` is 0. Each group of devices along `axes` has one such device.
  hlo::Instruction* IsFirst(const AxisList& axes);
  // The global index of the first element of the device's shard, in the IndexType of all shards together.
  hlo::Instruction* ShardStart(const AxisList& axes, int64_t shard_size);
  // pred[shard]: whether an element of a dimension of `size` elements, split over `axes`, is not padding.
  hlo::Instruction* RealIndices(const AxisList& axes, int64_t size);

  static bool HasPadding(const LocalArray& array, int64_t dim);
  // `array` with the padding of `dims` replaced by `fill`, a scalar. Returns array.local if `dims` have no padding.
  hlo::Instruction* MaskPadding(const LocalArray& array, absl::Span<const int64_t> dims, hlo::Instruction* fill);

  // A copy of `source` with local operands and the given shape. The copy has the metadata, the called computations and,
  // except for shardings, the attributes of `source`.
  hlo::Instruction* CloneLocal(const hlo::Instruction& source, hlo::Shape shape,
                               absl::Span<hlo::Instruction* const> operands);
  // As CloneLocal, but the copy calls `called`.
  hlo::Instruction* CloneCalling(const hlo::Instruction& source, hlo::Shape shape,
                                 std::vector<hlo::Computation*> called, absl::Span<hlo::Instruction* const> operands);

  // Emits a permute of `piece`, a part of `from`, and records it. In each pair, the second device gets the piece of the
  // first. A device that is not the second one of any pair gets zeros.
  hlo::Instruction* Permute(const LocalArray& from, hlo::Instruction* piece,
                            std::vector<std::pair<int64_t, int64_t>> pairs, const AxisList& axes,
                            const ReshardCause& cause);
  // The pieces of all devices along `axes`, concatenated along `dim` in the order of their positions. Records the
  // collective.
  hlo::Instruction* GatherPieces(const LocalArray& from, hlo::Instruction* piece, int64_t dim, const AxisList& axes,
                                 const ReshardCause& cause);

  // Identifies a permute of a halo exchange, so that two ops that fetch the same halo share the permute.
  struct HaloKey {
    const hlo::Instruction* from = nullptr;
    int64_t dim = 0, shard = 0, length = 0;
    AxisList axes;
    Dims sources, offsets;
    friend bool operator==(const HaloKey&, const HaloKey&) = default;
    template <typename H>
    friend H AbslHashValue(H h, const HaloKey& key) {
      return H::combine(std::move(h), key.from, key.dim, key.shard, key.length, key.axes, key.sources,
                        key.offsets);
    }
  };
  // The permute with this key, or null if it is not built yet. The caller then builds it and stores it here.
  hlo::Instruction*& HaloPermute(const HaloKey& key) { return halo_permutes_[key]; }

 private:
  PartitionContext& context_;
  hlo::Builder builder_;
  hlo::Instruction* partition_id_ = nullptr;
  std::map<AxisList, hlo::Instruction*> positions_;
  std::map<std::pair<AxisList, int64_t>, hlo::Instruction*> real_indices_;
  absl::flat_hash_map<HaloKey, hlo::Instruction*> halo_permutes_;
};

}  // namespace xlad::sharding
