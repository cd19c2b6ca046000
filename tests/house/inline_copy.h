// Shows which copy of an inline function the linker keeps if a program and its libraries contain copies.
#pragma once

namespace xlad::house {

// Whether this copy is optimized. Tests are compiled without optimization, libraries with it.
[[gnu::noinline]] inline bool CopyIsOptimized() {
#ifdef __OPTIMIZE__
  return true;
#else
  return false;
#endif
}

// Returns what CopyIsOptimized returns if a library calls it.
bool LibraryCallsOptimizedCopy();

// Whether libraries are optimized in this build.
bool LibraryIsOptimized();

}  // namespace xlad::house
