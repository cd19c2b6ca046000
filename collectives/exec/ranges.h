// Splits operands that consist of pieces into ranges that are contiguous in all of them.
#pragma once

#include <algorithm>

#include "absl/container/inlined_vector.h"
#include "collectives/exec/transport.h"

namespace xlad::collectives {

// The pieces of an operand, in order.
using Pieces = absl::InlinedVector<ConstPiece, 4>;

// Whether the pieces are the same memory. The operator == of spans would compare contents, which takes as long as a
// copy, and the host cannot read the contents of device memory.
inline bool AreSameMemory(const Pieces& a, const Pieces& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const ConstPiece& x, const ConstPiece& y) {
    return x.data() == y.data() && x.size() == y.size();
  });
}

// Calls `run(range of dst, addresses of the same range in all sources)` for all ranges, in order, until a call returns
// an error, which is returned. dst and all sources have the same size, but may be split at different positions.
template <typename Run>
absl::Status ForEachRange(const Pieces& dst, absl::Span<const Pieces> sources, const Run& run) {
  const size_t n = sources.size();
  absl::InlinedVector<size_t, 8> piece_at(n, 0), byte_at(n, 0);
  absl::InlinedVector<const void*, 8> addresses(n);
  for (ConstPiece left : dst) {
    while (!left.empty()) {
      size_t bytes = left.size();
      for (size_t i = 0; i < n; ++i) {
        while (byte_at[i] == sources[i][piece_at[i]].size()) {
          ++piece_at[i];
          byte_at[i] = 0;
        }
        addresses[i] = sources[i][piece_at[i]].data() + byte_at[i];
        bytes = std::min(bytes, sources[i][piece_at[i]].size() - byte_at[i]);
      }
      XLAD_RETURN_IF_ERROR(run(left.first(bytes), absl::MakeConstSpan(addresses)));
      for (size_t& at : byte_at) at += bytes;
      left.remove_prefix(bytes);
    }
  }
  return absl::OkStatus();
}

}  // namespace xlad::collectives
