#include "collectives/exec/layout.h"

#include <algorithm>

namespace xlad::collectives {

BufferLayout::BufferLayout(const std::vector<int64_t>& counts, int parts, int64_t element_bytes)
    : element_bytes_(element_bytes) {
  int64_t end = 0;
  for (int64_t count : counts) ends_.push_back(end += count / parts);
}

std::vector<Piece> BufferLayout::Pieces(int64_t begin, int64_t count) const {
  std::vector<Piece> pieces;
  const int64_t part_size = ends_.back();
  for (int64_t at = begin; at < begin + count;) {
    const int64_t part = at / part_size, within = at % part_size;
    const size_t operand = std::upper_bound(ends_.begin(), ends_.end(), within) - ends_.begin();
    const int64_t operand_begin = operand == 0 ? 0 : ends_[operand - 1];
    const int64_t share = ends_[operand] - operand_begin;
    const int64_t n = std::min(ends_[operand] - within, begin + count - at);
    const Piece piece{static_cast<int>(operand), (part * share + within - operand_begin) * element_bytes_,
                      n * element_bytes_};
    if (!pieces.empty() && pieces.back().operand == piece.operand &&
        pieces.back().offset + pieces.back().bytes == piece.offset) {
      pieces.back().bytes += piece.bytes;
    } else {
      pieces.push_back(piece);
    }
    at += n;
  }
  return pieces;
}

}  // namespace xlad::collectives
