// Specs of collectives: what is computed, that is, kind, reduction, element type, sizes and number of ranks.
//
// The enumerators have the numbers of proto/executable.proto.
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
  kReduceScatter = 3,      // Input: n equal parts. Output: part `rank`, reduced.
  kAllToAll = 4,           // Input: n equal parts; part j goes to rank j. Output: parts in order of their senders.
  kCollectivePermute = 5,  // Output of a rank that no pair targets: zeros.
  kBroadcast = 6,          // Output: the input of rank 0.
};

enum class Reduction { kNone = 0, kSum = 1, kProduct = 2, kMax = 3, kMin = 4, kAnd = 5, kOr = 6 };

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
struct CollectiveSpec {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  Reduction reduction = Reduction::kNone;  // kNone unless the kind reduces.
  tensor::ElementType type = tensor::ElementType::kF32;
  std::vector<int64_t> counts;  // The elements of each input operand on one rank.
  int ranks = 1;
  std::vector<RankPair> pairs;  // Used by kCollectivePermute.

  // Elements and bytes of all operands of one rank together.
  int64_t input_elements() const;
  int64_t output_elements() const;
  int64_t input_bytes() const;
  // The elements of each output operand on one rank.
  std::vector<int64_t> output_counts() const;
  // "all_reduce(sum) f32[85002] over 8 ranks"
  std::string ToString() const;
  friend bool operator==(const CollectiveSpec&, const CollectiveSpec&) = default;
};

bool Reduces(CollectiveKind kind);                // AllReduce, ReduceScatter.
bool InputHasParts(CollectiveKind kind);          // ReduceScatter, AllToAll.
bool OutputHasParts(CollectiveKind kind);         // AllGather, AllToAll.
absl::string_view ToString(CollectiveKind kind);  // "all_reduce"
absl::string_view ToString(Reduction reduction);  // "sum"

// InvalidArgument if a size is negative or not divisible into n parts, the sizes exceed 2^62 bytes, the reduction is
// not defined for the kind or element type, or the pairs have a rank twice on one side or a rank that does not exist.
absl::Status ValidateSpec(const CollectiveSpec& spec);

}  // namespace xlad::collectives
