#include "tests/cuda_driver_double/window_memory.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace xlad::cuda_double {
namespace {

TEST(WindowMemory, AllocationsHaveDifferentAddressesAndAllOfThemCanBeFreed) {
  WindowMemory memory(uint64_t{1} << 16);
  for (int round = 0; round < 3; ++round) {
    std::vector<uint64_t> addresses;
    for (const uint64_t bytes : {0, 0, 1, 512, 0, 513, 0}) {
      addresses.push_back(memory.Allocate(bytes));
      EXPECT_NE(memory.Range(addresses.back(), bytes), nullptr);
    }
    EXPECT_EQ(std::set<uint64_t>(addresses.begin(), addresses.end()).size(), addresses.size());
    for (const uint64_t address : addresses) EXPECT_TRUE(memory.Free(address));
    for (const uint64_t address : addresses) EXPECT_FALSE(memory.Free(address));
    EXPECT_EQ(memory.free_bytes(), memory.total_bytes());
  }
}

}  // namespace
}  // namespace xlad::cuda_double
