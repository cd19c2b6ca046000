// Specs of all kinds of collectives for tests.
#pragma once

#include "collectives/plan/spec.h"

namespace xlad::collectives {

// Returns a valid f32 spec over `ranks` ranks with `count` elements in each part of the data (none if it is a barrier).
// If the kind reduces, the reduction is a sum. If the kind has a root, it is rank `ranks` / 2. If the kind has pairs,
// every rank but the last sends to the next rank.
inline CollectiveSpec MakeSpec(CollectiveKind kind, int ranks, int64_t count) {
  CollectiveSpec spec;
  spec.kind = kind;
  spec.ranks = ranks;
  if (Reduces(kind)) spec.reduction = Reduction::kSum;
  if (HasRoot(kind)) spec.root = ranks / 2;
  if (kind == CollectiveKind::kCollectivePermute || kind == CollectiveKind::kSendRecv) {
    for (int rank = 0; rank + 1 < ranks; ++rank) spec.pairs.push_back({rank, rank + 1});
  }
  if (kind == CollectiveKind::kBarrier) count = 0;
  spec.counts = {InputHasParts(kind) ? count * ranks : count};
  return spec;
}

}  // namespace xlad::collectives
