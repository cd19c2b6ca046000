#include "runtime/host_threads.h"

#include <gtest/gtest.h>

namespace xlad::runtime {
namespace {

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
