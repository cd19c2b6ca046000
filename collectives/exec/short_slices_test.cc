#include "collectives/exec/short_slices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <thread>

namespace xlad::collectives {
namespace {

using ::testing::AnyOf;

TEST(ShortSlices, PriorityAndPolicyAreUnchanged) {
  std::thread([] {
    const auto self = static_cast<id_t>(gettid());
    setpriority(PRIO_PROCESS, self, getpriority(PRIO_PROCESS, self) + 1);
    const int nice = getpriority(PRIO_PROCESS, self);
    const int policy = sched_getscheduler(0);
    const uint64_t slice_ns = AskForShortSlices();
    EXPECT_THAT(slice_ns, AnyOf(0, 100'000));
    EXPECT_EQ(AskForShortSlices(), slice_ns);
    EXPECT_EQ(sched_getscheduler(0), policy);
    EXPECT_EQ(getpriority(PRIO_PROCESS, self), nice);
  }).join();
}

}  // namespace
}  // namespace xlad::collectives
