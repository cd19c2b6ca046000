// Coalescing: decides which values share a buffer. A copy between values that share a buffer is removed.
//
// The method is aggressive coalescing as in register allocation (Chaitin). A class is a set of values that share a
// buffer. Each copy, and each operation that may write in place, is a candidate pair. Candidates are tried in order of
// weight: the bytes of the value, times an estimate of how often the operation runs, times 1000 if sharing avoids a
// copy. The classes of a pair are merged under three conditions. They are live at the same time only during operations
// that run in place. All their values are writable and have the same size. At most one of these values is a parameter
// or result.
#pragma once

#include "compiler/buffers/liveness.h"

namespace xlad::compiler {

struct BufferClasses {
  std::vector<int> class_of;              // The class of each value.
  std::vector<std::vector<int>> members;  // The values of each class. Empty if the class was merged into another.
  std::vector<Intervals> live;            // For each class, the union of its members' intervals.
};

BufferClasses Coalesce(const LinearProgram& program, const Liveness& liveness);

// Whether the class has values and all of them are temporaries.
bool IsTemporary(const LinearProgram& program, const BufferClasses& classes, int number);
// For each point, the bytes of the classes of temporaries that are live, each rounded up to the alignment of buffers.
std::vector<int64_t> LiveTemporaryBytes(const LinearProgram& program, const BufferClasses& classes, int64_t points);

}  // namespace xlad::compiler
