// Specs of collectives: the kind, reduction, element type, sizes and number of ranks of a collective.
//
// The kinds up to kBroadcast and the reductions up to kOr have the numbers of proto/executable.proto.
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
  kCollectivePermute = 5,  // The output of a rank that is not the target of a pair is zero.
  kBroadcast = 6,          // Output: the input of the root. The inputs of other ranks are not read.
  kReduce = 7,             // Output of the root: all inputs, reduced. Other ranks have no output.
  kGather = 8,     // Output of the root: the inputs of ranks 0 to n-1, concatenated. Other ranks have no output.
  kScatter = 9,    // Input of the root: n parts. Other ranks have no input. Output: part `rank`.
  kBarrier = 10,   // There are no elements. No rank leaves before all ranks have entered.
  kSendRecv = 11,  // Like kCollectivePermute, but the output of a rank that is not the target of a pair is unchanged.
};
inline constexpr int kNumCollectiveKinds = 11;

// kAverage is the sum divided by the number of ranks. Integers are rounded toward zero.
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

// What determines the order in which contributions are reduced. The order determines the bits of the results.
enum class ReductionMode {
  kRunToRun = 0,  // The spec and the logical ranks determine the order.
  kFast = 1,      // The plan determines the order, which may be any order.
  // The number of ranks alone determines the order: a balanced tree over the ranks (kReduceTree of schedule.h).
  kCanonical = 2,
};

struct RankPair {
  int source = 0;
  int target = 0;
  friend bool operator==(const RankPair&, const RankPair&) = default;
};

// The collective of one group of devices. All groups of a collective have the same spec. A collective permute has only
// one group, which contains all devices, so its pairs are unambiguous.
//
// The elements of all operands of a rank are numbered consecutively. An input or output that has n parts
// (InputHasParts, OutputHasParts) is ordered by part, and within a part by operand. Each part is therefore one interval
// of elements for any number of operands. Example: an AllToAll of two operands a and b over 2 ranks has the input
// a[part 0] b[part 0] a[part 1] b[part 1].
//
// Parts have equal sizes unless `sizes` is set. In an AllGather, ReduceScatter, Gather or Scatter, `sizes` contains the
// size of each part. In an AllToAll, its element r * n + j is the size of the part that rank r sends to rank j. If
// `sizes` is set, there is one operand, and counts contains the sum of `sizes`.
struct CollectiveSpec {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  Reduction reduction = Reduction::kNone;  // kNone unless the kind reduces.
  tensor::ElementType type = tensor::ElementType::kF32;
  // The number of elements of each input operand on one rank (on the root in a Scatter).
  std::vector<int64_t> counts;
  int ranks = 1;
  std::vector<RankPair> pairs;  // Used by kCollectivePermute and kSendRecv.
  int root = 0;                 // Used by kBroadcast, kReduce, kGather and kScatter.
  std::vector<int64_t> sizes;
  ReductionMode mode = ReductionMode::kRunToRun;

  // The number of elements of all operands of a rank together.
  int64_t input_elements(int rank) const;
  int64_t output_elements(int rank) const;
  // The numbers for the root, or for any rank if the ranks have equal sizes.
  int64_t input_elements() const { return input_elements(root); }
  int64_t output_elements() const { return output_elements(root); }
  int64_t input_bytes() const;
  // The number of elements of each output operand on the root, or on any rank if the ranks have equal sizes.
  std::vector<int64_t> output_counts() const;
  // Returns a text such as "all_reduce(sum) f32[85002] over 8 ranks". ParseSpec reads it. The text is the same in the
  // modes kFast and kRunToRun; ParseSpec returns kRunToRun.
  std::string ToString() const;
  friend bool operator==(const CollectiveSpec&, const CollectiveSpec&) = default;
};

bool Reduces(CollectiveKind kind);                // True for AllReduce, ReduceScatter and Reduce.
bool InputHasParts(CollectiveKind kind);          // True for ReduceScatter, AllToAll and Scatter.
bool OutputHasParts(CollectiveKind kind);         // True for AllGather, AllToAll and Gather.
bool HasRoot(CollectiveKind kind);                // True for Broadcast, Reduce, Gather and Scatter.
absl::string_view ToString(CollectiveKind kind);  // "all_reduce"
absl::string_view ToString(Reduction reduction);  // "sum"
// The inverses of ToString. InvalidArgument, with a list of all names, if `name` is not one of them. ParseReduction
// also accepts "prod" for kProduct, and rejects "none".
absl::StatusOr<CollectiveKind> ParseCollectiveKind(absl::string_view name);
absl::StatusOr<Reduction> ParseReduction(absl::string_view name);

// InvalidArgument if a number is negative, an enumerator is unknown, a count is not divisible into n parts, or the
// sizes exceed 2^62 bytes; if there are no operands, or `sizes` does not agree with `counts`; if the reduction is not
// defined for the kind or element type; if the root or a rank of a pair does not exist, or two pairs have the same
// source or the same target; or if `reduction`, `root`, `sizes` or `pairs` is set and the kind does not use it.
absl::Status ValidateSpec(const CollectiveSpec& spec);

// Parses the text of a spec and validates it.
absl::StatusOr<CollectiveSpec> ParseSpec(absl::string_view text);

}  // namespace xlad::collectives
