// Specs of collectives: what is computed, that is, kind, reduction, element type, sizes and number of ranks.
//
// The enumerators up to kBroadcast and kOr have the numbers of proto/executable.proto.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/status.h"
#include "tensor/element_type.h"

namespace xlad::collectives {

enum class CollectiveKind {
  kAllReduce = 1,
  kAllGather = 2,          // Output: the inputs of ranks 0 to n-1, concatenated.
  kReduceScatter = 3,      // Input: n parts. Output: part `rank`, reduced.
  kAllToAll = 4,           // Input: n parts; part j goes to rank j. Output: parts in order of their senders.
  kCollectivePermute = 5,  // Output of a rank that no pair targets: zeros.
  kBroadcast = 6,          // Output: the input of the root. The inputs of other ranks are not read.
  kReduce = 7,             // Output of the root: all inputs, reduced. Other ranks have no output.
  kGather = 8,             // Output of the root: the inputs of ranks 0 to n-1, concatenated. Others have no output.
  kScatter = 9,            // Input of the root: n parts. Other ranks have no input. Output: part `rank`.
  kBarrier = 10,           // No elements: no rank leaves before all ranks have entered.
  kSendRecv = 11,          // As kCollectivePermute, but the output of a rank that no pair targets is left as it is.
};
inline constexpr int kNumCollectiveKinds = 11;

// kAverage is the sum divided by the number of ranks; integers are rounded towards zero.
enum class Reduction {
  kNone = 0,
  kSum = 1,
  kProduct = 2,
  kMax = 3,
  kMin = 4,
  kAnd = 5,
  kOr = 6,
  kXor = 7,
  kAverage = 8
};

// What determines the order in which contributions are reduced, and thereby the bits of results.
enum class ReductionMode {
  kRunToRun = 0,   // The spec and the logical ranks.
  kFast = 1,       // The plan: any order.
  kCanonical = 2,  // The number of ranks alone: a balanced tree over the ranks (kReduceTree of schedule.h).
};

struct RankPair {
  int source = 0;
  int target = 0;
  friend bool operator==(const RankPair&, const RankPair&) = default;
};

// The collective of one group of devices. All groups of a collective have the same spec. A collective permute has only
// one group, with all devices, so that its pairs are unambiguous.
//
// The elements of all operands of a rank are numbered consecutively. An input or output that has n parts
// (InputHasParts, OutputHasParts) is ordered by part, and by operand within a part, so that each part is one interval
// of elements for any number of operands. Example: AllToAll of two operands a and b over 2 ranks has the input a[part
// 0] b[part 0] a[part 1] b[part 1].
//
// Parts are of equal size unless `sizes` is set (AllGather, ReduceScatter, Gather, Scatter: the size of each part;
// AllToAll: element r * n + j is the size of the part that rank r sends to rank j). Then there is one operand, and
// counts has the sum of `sizes`.
struct CollectiveSpec {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  Reduction reduction = Reduction::kNone;  // kNone unless the kind reduces.
  tensor::ElementType type = tensor::ElementType::kF32;
  // The elements of each input operand on one rank (on the root in a Scatter).
  std::vector<int64_t> counts;
  int ranks = 1;
  std::vector<RankPair> pairs;  // Used by kCollectivePermute and kSendRecv.
  int root = 0;                 // Used by kBroadcast, kReduce, kGather and kScatter.
  std::vector<int64_t> sizes;
  ReductionMode mode = ReductionMode::kRunToRun;

  // Elements of all operands of a rank together.
  int64_t input_elements(int rank) const;
  int64_t output_elements(int rank) const;
  // The same for the root, or for any rank if the ranks have equal sizes.
  int64_t input_elements() const { return input_elements(root); }
  int64_t output_elements() const { return output_elements(root); }
  int64_t input_bytes() const;
  // The elements of each output operand on the root, or on any rank if the ranks have equal sizes.
  std::vector<int64_t> output_counts() const;
  // "all_reduce(sum) f32[85002] over 8 ranks". ParseSpec reads it.
  std::string ToString() const;
  friend bool operator==(const CollectiveSpec&, const CollectiveSpec&) = default;
};

bool Reduces(CollectiveKind kind);                // AllReduce, ReduceScatter, Reduce.
bool InputHasParts(CollectiveKind kind);          // ReduceScatter, AllToAll, Scatter.
bool OutputHasParts(CollectiveKind kind);         // AllGather, AllToAll, Gather.
bool HasRoot(CollectiveKind kind);                // Broadcast, Reduce, Gather, Scatter.
absl::string_view ToString(CollectiveKind kind);  // "all_reduce"
absl::string_view ToString(Reduction reduction);  // "sum"
// The inverses of ToString. InvalidArgument, with a list of all names, if `name` is not one of them.
absl::StatusOr<CollectiveKind> ParseCollectiveKind(absl::string_view name);
absl::StatusOr<Reduction> ParseReduction(absl::string_view name);

// InvalidArgument if a size is negative or not divisible into n parts, the sizes exceed 2^62 bytes, the reduction is
// not defined for the kind or element type, or the pairs have a rank twice on one side or a rank that does not exist.
absl::Status ValidateSpec(const CollectiveSpec& spec);

// Parses the text of a spec and validates it.
absl::StatusOr<CollectiveSpec> ParseSpec(absl::string_view text);

}  // namespace xlad::collectives
