// What a collective computes, without how: kind, reduction, element type, sizes and number of ranks.
//
// Pure data. The numbers of the enumerations are those of proto/executable.proto.
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
  kAllGather = 2,          // Output: the inputs of ranks 0..n-1, one after the other.
  kReduceScatter = 3,      // Input: n equal parts. Output: part `rank`, reduced.
  kAllToAll = 4,           // Input: n equal parts; part j goes to rank j. Output: parts in order of their senders.
  kCollectivePermute = 5,  // Output of a rank that no pair targets: zeros.
  kBroadcast = 6,          // From rank 0.
};

enum class Reduction { kNone = 0, kSum = 1, kProduct = 2, kMax = 3, kMin = 4, kAnd = 5, kOr = 6 };

struct RankPair {
  int source = 0;
  int target = 0;
  friend bool operator==(const RankPair&, const RankPair&) = default;
};

// One group's collective. All groups of a collective have the same spec, except that the pairs of a collective
// permute name the ranks of its one group.
//
// Elements are numbered through all operands of one rank. Where a value has n parts (input of ReduceScatter and
// AllToAll, output of AllGather and AllToAll), element order is part by part, and inside a part operand by operand,
// so that a part is one interval however many operands there are.
struct CollectiveSpec {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  Reduction reduction = Reduction::kNone;  // kNone unless the kind reduces.
  tensor::ElementType type = tensor::ElementType::kF32;
  std::vector<int64_t> counts;  // Elements of each input operand on one rank.
  int ranks = 1;
  std::vector<RankPair> pairs;  // kCollectivePermute only.

  int64_t input_elements() const;   // Of one rank, all operands.
  int64_t output_elements() const;  // Of one rank, all operands.
  int64_t input_bytes() const;
  // Elements of each output operand on one rank.
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

// InvalidArgument where sizes are negative, do not divide into n parts where they must, do not fit 2^62 bytes, the
// reduction does not suit the kind or element type, or pairs name a rank twice or one that does not exist.
absl::Status ValidateSpec(const CollectiveSpec& spec);

}  // namespace xlad::collectives
