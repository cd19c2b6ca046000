#include "base/cores.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <bit>
#include <cmath>

namespace xlad {
namespace {

TEST(Cores, QuotasAreFractionsOfCores) {
  EXPECT_EQ(CpuQuotaOf("150000 100000\n"), 1.5);
  EXPECT_EQ(CpuQuotaOf("100000 100000"), 1);
  EXPECT_EQ(CpuQuotaOf("1000 100000"), 0.01);
  EXPECT_EQ(CpuQuotaOf("6400000 100000"), 64);
}

TEST(Cores, OtherContentsSetNoQuota) {
  for (const char* text : {"", "max 100000\n", "max", "0 100000", "-1 100000", "100000", "100000 0", "a b", "1 2 3"}) {
    EXPECT_TRUE(std::isinf(CpuQuotaOf(text))) << text;
  }
}

TEST(Cores, ThisProcessHasAtLeastOne) {
  int cores = 0;
  for (const uint64_t word : AffinityMask()) cores += std::popcount(word);
  EXPECT_GE(cores, 1);
  EXPECT_GT(CpuQuota(), 0);
  EXPECT_GE(UsableCores(), 1);
  EXPECT_LE(UsableCores(), cores);
}

TEST(Cores, OneCoreOfTheAffinityMaskIsUsable) {
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  CPU_ZERO(&one);
  CPU_SET(sched_getcpu(), &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  EXPECT_EQ(UsableCores(), 1);
  ASSERT_EQ(sched_setaffinity(0, sizeof(before), &before), 0);
}

}  // namespace
}  // namespace xlad
