#include "hlo/analysis/collectives.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"

namespace xlad::hlo {
namespace {

// `seen` contains the computations that were visited, because several callers may share a computation.
bool ContainsNewCollective(const Computation& computation, absl::flat_hash_set<const Computation*>* seen) {
  if (!seen->insert(&computation).second) return false;
  const auto communicates = [&](const auto& instruction) {
    return IsCollective(instruction->opcode()) ||
           std::any_of(instruction->called().begin(), instruction->called().end(),
                       [&](const Computation* called) { return ContainsNewCollective(*called, seen); });
  };
  return std::any_of(computation.instructions().begin(), computation.instructions().end(), communicates);
}

}  // namespace

bool ContainsCollective(const Computation& computation) {
  absl::flat_hash_set<const Computation*> seen;
  return ContainsNewCollective(computation, &seen);
}

}  // namespace xlad::hlo
