// Coalescing: decides which values share one buffer, so that copies between them disappear.
//
// The method is aggressive coalescing as in register allocation (Chaitin): each copy and each operation that may write
// in place is a candidate pair; candidates are tried in order of the bytes that they save, weighted by how often they
// run; a pair is merged unless the two classes are live at the same time. A class is a set of values that share a
// buffer.
#pragma once

#include "compiler/buffers/liveness.h"

namespace xlad::compiler {

struct BufferClasses {
  std::vector<int> class_of;              // The class of each value.
  std::vector<std::vector<int>> members;  // The values of each class; empty if it was merged into another.
  std::vector<Intervals> live;            // Each class: the union of its members' intervals.
};

BufferClasses Coalesce(const LinearProgram& program, const Liveness& liveness);

}  // namespace xlad::compiler
