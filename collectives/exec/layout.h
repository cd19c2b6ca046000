// Where the elements of a schedule's buffer lie among an operation's operands.
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

// A buffer's elements are numbered part by part, and inside a part operand by operand (collectives/plan/spec.h).
class BufferLayout {
 public:
  // `counts`: elements of each operand, divisible by `parts`.
  BufferLayout(const std::vector<int64_t>& counts, int parts, int64_t element_bytes);

  // The pieces of elements [begin, begin + count), in order; neighbours in one operand are joined.
  std::vector<Piece> Pieces(int64_t begin, int64_t count) const;

 private:
  std::vector<int64_t> ends_;  // Of the operands in a part, in elements.
  int64_t element_bytes_;
};

}  // namespace xlad::collectives
