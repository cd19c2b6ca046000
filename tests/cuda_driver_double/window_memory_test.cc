#include "tests/cuda_driver_double/window_memory.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <vector>

#include "tests/cuda_driver_double/driver_double.h"

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

TEST(WindowMemory, PinnedMemoryOfADestroyedInstanceIsNotAllocated) {
  auto first = std::make_unique<WindowMemory>(uint64_t{1} << 16);
  const auto address = reinterpret_cast<uint64_t>(first->AllocatePinned(100));
  EXPECT_NE(first->Range(address, 100), nullptr);
  first = nullptr;
  const WindowMemory second(uint64_t{1} << 16);
  EXPECT_EQ(second.Range(address, 100), nullptr);
}

TEST(WindowMemory, AnAllocationCanBeOpenedElsewhere) {
  WindowMemory owner(uint64_t{1} << 16), other(uint64_t{1} << 16);
  owner.Allocate(100);
  const uint64_t address = owner.Allocate(9000);  // It does not begin at a page.
  WindowMemory::Exported exported;
  EXPECT_FALSE(owner.Export(address + 1, &exported));
  ASSERT_TRUE(owner.Export(address, &exported));
  const uint64_t opened = other.Open(exported);
  ASSERT_NE(opened, 0u);
  *owner.Range(address + 8999, 1) = std::byte{7};
  EXPECT_EQ(*other.Range(opened + 8999, 1), std::byte{7});
  *other.Range(opened, 1) = std::byte{8};
  EXPECT_EQ(*owner.Range(address, 1), std::byte{8});
  EXPECT_EQ(other.Range(opened, exported.bytes + 1), nullptr);
  EXPECT_EQ(other.Open(exported), opened);
  EXPECT_TRUE(other.Close(opened));
  EXPECT_NE(other.Range(opened, 1), nullptr) << "it was opened twice";
  EXPECT_TRUE(other.Close(opened));
  EXPECT_EQ(other.Range(opened, 1), nullptr);
  EXPECT_FALSE(other.Close(opened));
  exported.process = 0;
  EXPECT_EQ(other.Open(exported), 0u);
}

TEST(DriverDouble, TheSameSizeOfMemoryKeepsItsAllocations) {
  DriverDouble& driver = DriverDouble::Get();
  for (const char* const settings : {"memory=5000", "memory=8192"}) {
    driver.Configure(settings);
    const uint64_t address = driver.memory().Allocate(100);
    ASSERT_NE(address, 0u) << settings;
    driver.Configure(settings);
    EXPECT_NE(driver.memory().Range(address, 100), nullptr) << settings;
  }
  driver.Configure("");
}

}  // namespace
}  // namespace xlad::cuda_double
