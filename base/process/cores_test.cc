#include "base/process/cores.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <vector>

#include "base/process/cgroup.h"

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

TEST(Cores, QuotasAreRoundedDownForCoresAndUpForThreads) {
  const double unlimited = CpuQuotaOf("max 100000");
  for (int cores = 1; cores < 70; ++cores) {
    EXPECT_EQ(UsableCoresOf(cores, unlimited), cores);
    EXPECT_EQ(UsableThreadsOf(cores, unlimited), cores);
    for (int tenths = 1; tenths < 1000; ++tenths) {
      const double quota = tenths / 10.0;
      EXPECT_EQ(UsableCoresOf(cores, quota), std::max(1, std::min(cores, tenths / 10))) << cores << " " << tenths;
      EXPECT_EQ(UsableThreadsOf(cores, quota), std::min(cores, (tenths + 9) / 10)) << cores << " " << tenths;
    }
  }
}

TEST(Cgroup, EachEnclosingGroupIsNamedOnce) {
  using Groups = std::vector<std::string>;
  EXPECT_EQ(GroupsIn("0::/\n"), Groups({""}));
  EXPECT_EQ(GroupsIn("0::/a\n"), Groups({"/a", ""}));
  EXPECT_EQ(GroupsIn("0::/a/b.slice/c\n"), Groups({"/a/b.slice/c", "/a/b.slice", "/a", ""}));
  EXPECT_EQ(GroupsIn("12:cpu,cpuacct:/x\n1:name=systemd:/y\n0::/a\n"), Groups({"/a", ""}));
  for (const char* const text : {"", "\n", "12:cpu:/x\n", "0:/a"}) EXPECT_EQ(GroupsIn(text), Groups()) << text;
}

TEST(Cores, ThisProcessHasAtLeastOne) {
  int cores = 0;
  for (const uint64_t word : AffinityMask()) cores += std::popcount(word);
  EXPECT_GE(cores, 1);
  EXPECT_GT(CpuQuota(), 0);
  EXPECT_GE(UsableCores(), 1);
  EXPECT_LE(UsableCores(), cores);
  EXPECT_GE(UsableThreads(), UsableCores());
  EXPECT_LE(UsableThreads(), cores);
}

TEST(Cores, OneCoreOfTheAffinityMaskIsUsable) {
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  CPU_ZERO(&one);
  CPU_SET(sched_getcpu(), &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  EXPECT_EQ(UsableCores(), 1);
  EXPECT_EQ(UsableThreads(), 1);
  ASSERT_EQ(sched_setaffinity(0, sizeof(before), &before), 0);
}

}  // namespace
}  // namespace xlad
