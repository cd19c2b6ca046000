// Maps elements of a schedule's buffer to byte ranges of a collective's operands.
#pragma once

#include <vector>

#include "collectives/plan/schedule.h"

namespace xlad::collectives {

// The bytes [offset, offset + bytes) of an operand.
struct Piece {
  int operand = 0;
  int64_t offset = 0;
  int64_t bytes = 0;
};

// A buffer's elements are numbered part by part, and within a part operand by operand (collectives/plan/spec.h).
//
// Example: if operands a and b have 4 and 2 elements and there are 2 parts, the buffer is a0 a1 b0 | a2 a3 b1. The
// elements [1, 4) are then the pieces a[1, 2), b[0, 1) and a[2, 3).
class BufferLayout {
 public:
  // `counts` has the number of elements of each operand. These numbers must be divisible by `parts`.
  BufferLayout(const std::vector<int64_t>& counts, int parts, int64_t element_bytes);

  // Returns the pieces of elements [begin, begin + count), in order. Adjacent pieces of one operand are merged.
  std::vector<Piece> Pieces(int64_t begin, int64_t count) const;

 private:
  std::vector<int64_t> ends_;  // The end of each operand within a part, in elements.
  int64_t element_bytes_;
};

// Return the number of elements of each input or output operand on a rank. It is 0 if the rank has no such operand, for
// example no output of a Reduce.
std::vector<int64_t> InputCounts(const CollectiveSpec& spec, int rank);
std::vector<int64_t> OutputCounts(const CollectiveSpec& spec, int rank);

// Whether the collective writes the outputs of a rank. In a SendRecv, a rank that receives nothing keeps its output.
bool WritesOutputs(const CollectiveSpec& spec, int rank);

// Whether the inputs of a run must be copied before it starts. A schedule requires that inputs and outputs are disjoint
// or, if it is `in_place`, overlap as InPlaceOffsetsOf says. Inputs that overlap the outputs in another way must be
// copied.
bool NeedsCopyOfInputs(const CollectiveSpec& spec, int rank, bool in_place, absl::Span<const std::byte* const> inputs,
                       absl::Span<std::byte* const> outputs);

}  // namespace xlad::collectives
