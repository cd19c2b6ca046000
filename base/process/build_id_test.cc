#include "base/process/build_id.h"

#include <gtest/gtest.h>

namespace xlad {
namespace {

TEST(BuildId, IsTheSameEachTime) {
  EXPECT_FALSE(BuildId("/proc/self/exe").empty());
  EXPECT_EQ(BuildId("/proc/self/exe"), BuildId("/proc/self/exe"));
}

}  // namespace
}  // namespace xlad
