// Which launch is detected from the variables of a launcher, and whether each rank has a core of its own.
#include "collectives/exec/bootstrap/launcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <climits>
#include <map>

#include "base/process/cores.h"
#include "base/random.h"
#include "collectives/exec/group/cores.h"

namespace xlad::collectives {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<std::optional<Launch>> Detect(const std::map<std::string, std::string>& variables) {
  return DetectLaunch([&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  });
}

TEST(Launcher, ReadsTheVariablesOfEachLauncher) {
  const auto open_mpi = Detect({{"OMPI_COMM_WORLD_RANK", "3"},
                                {"OMPI_COMM_WORLD_SIZE", "8"},
                                {"OMPI_COMM_WORLD_LOCAL_SIZE", "8"},
                                {"PMIX_NAMESPACE", "12/4"}});
  ASSERT_TRUE(open_mpi.ok() && open_mpi->has_value());
  EXPECT_EQ((*open_mpi)->rank, 3);
  EXPECT_EQ((*open_mpi)->ranks, 8);
  EXPECT_EQ((*open_mpi)->launcher, "Open MPI");
  EXPECT_THAT((*open_mpi)->key, HasSubstr("12-4-"));
  EXPECT_EQ((*Detect({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}}))->launcher, "MPICH");
  EXPECT_EQ((*Detect({{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}}))->rank, 1);
  EXPECT_EQ((*Detect({{"XLAD_RANK", "1"}, {"XLAD_RANKS", "2"}, {"XLAD_LAUNCH", "k"}}))->key, "k-");
  EXPECT_FALSE(Detect({})->has_value());
}

TEST(Launcher, RefusesValuesThatAreNotARank) {
  EXPECT_THAT(std::string(Detect({{"PMI_RANK", "2"}, {"PMI_SIZE", "2"}}).status().message()), HasSubstr("PMI_RANK=2"));
  EXPECT_FALSE(Detect({{"PMI_RANK", "x"}, {"PMI_SIZE", "2"}}).ok());
  EXPECT_FALSE(Detect({{"PMI_RANK", "-1"}, {"PMI_SIZE", "2"}}).ok());
  EXPECT_THAT(std::string(Detect({{"PMI_RANK", "1"}}).status().message()), HasSubstr("PMI_SIZE=(not set)"));
  EXPECT_THAT(std::string(Detect({{"JOB_COMPLETION_INDEX", "1"}}).status().message()),
              HasSubstr("XLAD_RANKS=(not set), expected a number; set it for each process"));
  const auto spread = Detect({{"PMI_RANK", "1"}, {"PMI_SIZE", "4"}, {"MPI_LOCALNRANKS", "2"}});
  ASSERT_TRUE(spread.ok() && spread->has_value());
  EXPECT_TRUE(absl::IsUnimplemented(CheckOneHost(**spread)));
  EXPECT_TRUE(CheckOneHost(**Detect({{"PMI_RANK", "1"}, {"PMI_SIZE", "4"}, {"MPI_LOCALNRANKS", "4"}})).ok());
}

TEST(Cores, CountsQuotaAndMasks) {
  EXPECT_TRUE(EachHasACore({{3}, {3}}, CpuQuotaOf("max 100000\n")));
  EXPECT_TRUE(EachHasACore({{3}, {3}}, CpuQuotaOf("250000 100000\n")));
  EXPECT_FALSE(EachHasACore({{3}, {3}}, CpuQuotaOf("150000 100000\n")));
  EXPECT_TRUE(EachHasACore({{3}, {3}}, CpuQuotaOf("nonsense")));
  EXPECT_TRUE(EachHasACore({{1}, {2}}, INT_MAX));   // One core for each process, as mpirun binds them.
  EXPECT_FALSE(EachHasACore({{1}, {1}}, INT_MAX));  // Both processes are bound to the same core.
  EXPECT_FALSE(EachHasACore({{3}, {3}, {3}}, INT_MAX));
  EXPECT_FALSE(EachHasACore({{3}, {3}}, 1));
  EXPECT_FALSE(EachHasACore({{1}, {1}, {6}}, INT_MAX));  // Three cores, but two processes are bound to the same one.
  EXPECT_TRUE(EachHasACore({{7}, {3}, {1}}, INT_MAX));   // The last process can use only core 0.
  EXPECT_TRUE(EachHasACore({{1}, {0, 1}}, INT_MAX));     // Masks of different lengths.
  EXPECT_FALSE(EachHasACore({{1}, {}}, INT_MAX));
}

// Returns whether each process can have a core of its own. Tries all choices of one core per process.
bool SomeChoiceFits(const std::vector<std::vector<uint64_t>>& masks, size_t process, uint64_t taken) {
  if (process == masks.size()) return true;
  for (uint64_t left = masks[process][0] & ~taken; left != 0; left &= left - 1) {
    if (SomeChoiceFits(masks, process + 1, taken | (left & -left))) return true;
  }
  return false;
}

TEST(Cores, AreFoundIfSomeChoiceFits) {
  const std::unique_ptr<Random> random = SeededRandom(3);
  int fits = 0;
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::vector<uint64_t>> masks(1 + random->Next() % 5);
    for (std::vector<uint64_t>& mask : masks) mask = {random->Next() & random->Next() & 0x3F};
    const bool expected = SomeChoiceFits(masks, 0, 0);
    EXPECT_EQ(EachHasACore(masks, INT_MAX), expected);
    fits += expected;
  }
  EXPECT_GT(fits, 200);
  EXPECT_LT(fits, 1800);
}

}  // namespace
}  // namespace xlad::collectives
