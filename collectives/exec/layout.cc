#include "collectives/exec/layout.h"

#include <algorithm>

namespace xlad::collectives {
namespace {

// Returns the element counts of a rank's operands, which have `elements` elements in total. `counts` are the counts on
// a rank that has all operands.
std::vector<int64_t> CountsOf(const CollectiveSpec& spec, std::vector<int64_t> counts, int64_t elements) {
  if (!spec.sizes.empty()) return {elements};
  if (elements == 0) std::fill(counts.begin(), counts.end(), 0);
  return counts;
}

}  // namespace

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

std::vector<int64_t> InputCounts(const CollectiveSpec& spec, int rank) {
  return CountsOf(spec, spec.counts, spec.input_elements(rank));
}

std::vector<int64_t> OutputCounts(const CollectiveSpec& spec, int rank) {
  return CountsOf(spec, spec.output_counts(), spec.output_elements(rank));
}

bool WritesOutputs(const CollectiveSpec& spec, int rank) {
  if (spec.kind != CollectiveKind::kSendRecv) return true;
  return std::any_of(spec.pairs.begin(), spec.pairs.end(), [&](const RankPair& pair) { return pair.target == rank; });
}

bool NeedsCopyOfInputs(const CollectiveSpec& spec, int rank, bool in_place, absl::Span<const std::byte* const> inputs,
                       absl::Span<std::byte* const> outputs) {
  const int64_t width = tensor::ByteWidth(spec.type);
  const std::vector<int64_t> input_counts = InputCounts(spec, rank), output_counts = OutputCounts(spec, rank);
  for (size_t i = 0; i < inputs.size(); ++i) {
    for (size_t j = 0; j < outputs.size(); ++j) {
      const int64_t in_bytes = input_counts[i] * width, out_bytes = output_counts[j] * width;
      // In place, the input of an AllGather is part `rank` of its output, and the output of a ReduceScatter is part
      // `rank` of its input.
      int64_t in = spec.kind == CollectiveKind::kReduceScatter ? rank * out_bytes : 0;
      int64_t out = spec.kind == CollectiveKind::kAllGather ? rank * in_bytes : 0;
      if (!spec.sizes.empty()) {
        const InPlaceOffsets offsets = InPlaceOffsetsOf(spec, rank);
        in = offsets.input * width;
        out = offsets.output * width;
      }
      if (in_place && i == j && inputs[i] + in == outputs[j] + out) continue;
      const bool empty = in_bytes == 0 || out_bytes == 0;
      if (!empty && inputs[i] < outputs[j] + out_bytes && outputs[j] < inputs[i] + in_bytes) return true;
    }
  }
  return false;
}

}  // namespace xlad::collectives
