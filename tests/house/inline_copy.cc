#include "tests/house/inline_copy.h"

namespace xlad::house {

bool LibraryCallsOptimizedCopy() { return CopyIsOptimized(); }

bool LibraryIsOptimized() {
#ifdef __OPTIMIZE__
  return true;
#else
  return false;
#endif
}

}  // namespace xlad::house
