// Computes the required output of each rank.
#include "collectives/plan/expected.h"

namespace xlad::collectives {
namespace {

// Returns the size of the part that `from` sends to `to` in an AllToAll.
int64_t AllToAllSize(const CollectiveSpec& spec, int64_t from, int64_t to) {
  return spec.sizes.empty() ? spec.input_elements() / spec.ranks : spec.sizes[from * spec.ranks + to];
}

// Returns the size of part `rank` for the other kinds with parts.
int64_t PartSize(const CollectiveSpec& spec, int rank) {
  if (!spec.sizes.empty()) return spec.sizes[rank];
  return (InputHasParts(spec.kind) ? spec.input_elements() : spec.output_elements()) / spec.ranks;
}

int64_t PartBegin(const CollectiveSpec& spec, int rank) {
  if (spec.sizes.empty()) return rank * PartSize(spec, 0);
  int64_t begin = 0;
  for (int r = 0; r < rank; ++r) begin += spec.sizes[r];
  return begin;
}

// Returns the parts of all ranks, one after the other.
std::vector<ExpectedOutput> Gathered(const CollectiveSpec& spec, int rank) {
  const bool is_all_to_all = spec.kind == CollectiveKind::kAllToAll;
  std::vector<ExpectedOutput> out;
  int64_t at = 0;
  for (int from = 0; from < spec.ranks; ++from) {
    int64_t in = 0;
    for (int to = 0; is_all_to_all && to < rank; ++to) in += AllToAllSize(spec, from, to);
    const int64_t size = is_all_to_all ? AllToAllSize(spec, from, rank) : PartSize(spec, from);
    if (size > 0) out.push_back({at, at + size, from, in - at});
    at += size;
  }
  return out;
}

}  // namespace

std::vector<ExpectedOutput> ExpectedOutputOf(const CollectiveSpec& spec, int rank) {
  const int64_t size = spec.output_elements(rank);
  if (size == 0) return {};
  switch (spec.kind) {
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kReduce:
      return {{0, size, ExpectedOutput::kAllRanks, 0}};
    case CollectiveKind::kReduceScatter:
      return {{0, size, ExpectedOutput::kAllRanks, PartBegin(spec, rank)}};
    case CollectiveKind::kScatter:
      return {{0, size, spec.root, PartBegin(spec, rank)}};
    case CollectiveKind::kAllGather:
    case CollectiveKind::kAllToAll:
    case CollectiveKind::kGather:
      return Gathered(spec, rank);
    case CollectiveKind::kCollectivePermute:
    case CollectiveKind::kSendRecv:
      for (const RankPair& pair : spec.pairs) {
        if (pair.target == rank) return {{0, size, pair.source, 0}};
      }
      if (spec.kind == CollectiveKind::kSendRecv) return {};
      return {{0, size, ExpectedOutput::kZero, 0}};
    default:
      return {{0, size, spec.root, 0}};
  }
}

}  // namespace xlad::collectives
