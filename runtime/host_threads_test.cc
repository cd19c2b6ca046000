#include "runtime/host_threads.h"

#include <gtest/gtest.h>

namespace xlad::runtime {
namespace {

TEST(HostThreads, QuotasAreRoundedUp) {
  EXPECT_EQ(QuotaOf("150000 100000\n"), 2);
  EXPECT_EQ(QuotaOf("100000 100000"), 1);
  EXPECT_EQ(QuotaOf("1000 100000"), 1);
  EXPECT_EQ(QuotaOf("6400000 100000"), 64);
}

TEST(HostThreads, OtherContentsSetNoQuota) {
  for (const char* text : {"", "max 100000\n", "max", "0 100000", "-1 100000", "100000", "100000 0", "a b", "1 2 3"}) {
    EXPECT_EQ(QuotaOf(text), 0) << text;
  }
}

TEST(HostThreads, DevicesShareEqually) {
  EXPECT_EQ(ThreadsOfEach(8, 1), 8);
  EXPECT_EQ(ThreadsOfEach(8, 2), 4);
  EXPECT_EQ(ThreadsOfEach(8, 3), 2);
  EXPECT_EQ(ThreadsOfEach(2, 8), 1);
  EXPECT_EQ(ThreadsOfEach(2, 0), 2);
}

TEST(HostThreads, ThereIsAtLeastOne) { EXPECT_GE(HostThreads(), 1); }

}  // namespace
}  // namespace xlad::runtime
