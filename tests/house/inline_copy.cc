#include "tests/house/inline_copy.h"

namespace xlad::house {

bool LibraryCallsOptimizedCopy() { return CopyIsOptimized(); }

}  // namespace xlad::house
