#include "collectives/exec/group/wait.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <memory>

namespace xlad::collectives {
namespace {

TEST(GroupWait, ARankOnThisCoreThatIsLateMustNotBeKeptFromRunning) {
  constexpr int kRanks = 4;
  const int64_t bytes = ControlFile::BytesFor(kRanks);
  const std::unique_ptr<std::byte, decltype(&std::free)> memory(
      static_cast<std::byte*>(std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096)), &std::free);
  std::fill_n(memory.get(), bytes, std::byte{0});
  const std::unique_ptr<ControlFile> control = ControlFile::InMemory(memory.get(), kRanks, /*create=*/true);
  // Ranks 0 and 1 share core 0; rank 2 waits on core 1; rank 3 has not waited yet.
  const int cores[] = {0, 0, 1, -1};
  for (int rank = 0; rank < kRanks; ++rank) {
    control->rank(rank).core = cores[rank];
    control->rank(rank).lines[1].sequence = 7;
  }
  control->rank(0).lines[0].sequence = 8;
  EXPECT_FALSE(OnlyOtherCoresAreLate(*control, 0, 0));
  control->rank(1).lines[0].sequence = 8;
  EXPECT_TRUE(OnlyOtherCoresAreLate(*control, 0, 0));
  // If rank 0 has moved to core 1 since its last long wait, rank 2 is late there.
  EXPECT_FALSE(OnlyOtherCoresAreLate(*control, 0, 1));
  control->rank(2).lines[0].sequence = 8;
  control->rank(1).lines[1].sequence = 9;
  EXPECT_TRUE(OnlyOtherCoresAreLate(*control, 0, 1));
}

}  // namespace
}  // namespace xlad::collectives
