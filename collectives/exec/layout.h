// Maps elements of a schedule's buffer to byte ranges of a collective's operands.
#pragma once

#include <vector>

#include "collectives/plan/schedule.h"

namespace xlad::collectives {

// Bytes [offset, offset + bytes) of operand `operand`.
struct Piece {
  int operand = 0;
  int64_t offset = 0;
  int64_t bytes = 0;
};

// A buffer's elements are numbered part by part, and within a part operand by operand (collectives/plan/spec.h).
//
// Example: operands a and b with 4 and 2 elements and 2 parts: the buffer is a0 a1 b0 | a2 a3 b1, so that elements [1,
// 4) are the pieces a[1, 2), b[0, 1) and a[2, 3).
class BufferLayout {
 public:
  // `counts` has the number of elements of each operand, which must be divisible by `parts`.
  BufferLayout(const std::vector<int64_t>& counts, int parts, int64_t element_bytes);

  // Returns the pieces of elements [begin, begin + count), in order. Adjacent pieces of one operand are merged.
  std::vector<Piece> Pieces(int64_t begin, int64_t count) const;

 private:
  std::vector<int64_t> ends_;  // The end of each operand within a part, in elements.
  int64_t element_bytes_;
};

// Whether the inputs of a run must be copied before it starts. A schedule requires that inputs and outputs are disjoint
// or, if it is `in_place`, overlap as InPlaceOffsetsOf says; buffers that overlap in another way do not satisfy it.
bool NeedsCopyOfInputs(const CollectiveSpec& spec, int rank, bool in_place, absl::Span<const std::byte* const> inputs,
                       absl::Span<std::byte* const> outputs);

}  // namespace xlad::collectives
