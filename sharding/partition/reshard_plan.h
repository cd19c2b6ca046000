// Plans how an array is resharded from one sharding to another with little communication. A plan depends only on the
// mesh, the shape of the array and the shardings, not on instructions.
//
// A plan is a sequence of steps. Slices come first, because they send nothing. They are followed by reductions of
// partial results, by all-to-alls and permutes of the small pieces, by all-gathers, and by the slices that were not
// possible before. Shardy and GSPMD (Xu et al., "GSPMD: General and Scalable Parallelization for ML Computation
// Graphs", 2021) use the same order. The plan that sends the fewest bytes is chosen from at most four candidates.
//
// Example: f32[16,8] on the mesh "dp=2,tp=2".
//
//   from [{"dp"}, {}] to [{}, {"dp"}]          all-to-all over dp: 128 bytes. (An all-gather and a slice send 256.)
//   from [{"dp","tp"}, {}] to [{"tp"}, {}]     permute so that "tp" is major, then all-gather over dp.
//   from [{}, {}] unreduced {"tp"} to [{"dp"}, {"tp"}]
//                                              slice over dp, then reduce-scatter over tp along dimension 1.
#pragma once

#include <optional>
#include <vector>

#include "sharding/model/axes.h"

namespace xlad::sharding {

struct ReshardStep {
  enum class Kind { kSlice, kAllReduce, kReduceScatter, kAllToAll, kPermute, kAllGather };
  Kind kind = Kind::kSlice;
  // The dimension that loses the axes in an all-gather, or gets them in a slice, a reduce-scatter or an all-to-all;
  // otherwise -1.
  int64_t dim = -1;
  int64_t from_dim = -1;  // The dimension that loses the axes in an all-to-all.
  AxisList axes;          // Major to minor, adjacent parts joined. Empty for a permute.
  DimensionAxes before, after;
  double bytes = 0;       // The bytes that each device sends; see CommunicationBytes.
};

struct ReshardPlan {
  std::vector<ReshardStep> steps;
  double bytes = 0;
};

// A plan from `from` to `to`. Partial results along the axes that are unreduced in `from` but not in `to` are reduced;
// axes that are unreduced only in `to` are ignored. After every step, shards have ceil(size / shards) elements. A step
// is used only if every device finds the data that it needs in its own group.
ReshardPlan PlanReshard(const Mesh& mesh, const tensor::Shape& shape, const TensorSharding& from,
                        const TensorSharding& to);

}  // namespace xlad::sharding
