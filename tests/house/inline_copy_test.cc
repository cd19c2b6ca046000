// Checks that test programs are linked so that their libraries do not call the tests' unoptimized copies of inline
// functions (scripts/cmake/XladTargets.cmake).
#include "tests/house/inline_copy.h"

#include "gtest/gtest.h"

namespace xlad::house {
namespace {

TEST(InlineCopyTest, TheOneOfTheLibraryIsLinked) {
#ifndef XLAD_LINKS_LIBRARIES_FIRST
  GTEST_SKIP() << "the order of linking is changed only for mold and lld";
#endif
  if (!LibraryIsOptimized()) GTEST_SKIP() << "this build does not optimize libraries";
  EXPECT_TRUE(LibraryCallsOptimizedCopy());
  EXPECT_TRUE(CopyIsOptimized()) << "all callers use the same copy";
}

}  // namespace
}  // namespace xlad::house
