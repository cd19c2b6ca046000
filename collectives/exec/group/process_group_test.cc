// Compares process groups whose ranks are threads with a slow reference. In other tests the ranks are processes, and
// some of them die.
#include "collectives/exec/group/process_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/file_system.h"
#include "base/random.h"
#include "collectives/exec/group/calibrate.h"
#include "collectives/exec/group/plans.h"
#include "collectives/exec/testing/death_in_shrink.h"
#include "collectives/exec/testing/reading_clock.h"
#include "collectives/plan/calibration.h"
#include "collectives/plan/expected.h"
#include "collectives/plan/mapped.h"
#include "collectives/plan/testing/make_spec.h"

namespace xlad::collectives {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

ProcessGroup::Options OptionsOf(int rank, int ranks, const std::string& key) {
  ProcessGroup::Options options;
  options.launch.rank = rank;
  options.launch.ranks = ranks;
  options.launch.launcher = "test";
  options.launch.key = key;
  return options;
}

// The control files of groups that fail are kept, so the tests use a folder of their own for them.
class ControlFolderOfTests : public ::testing::Environment {
 public:
  void SetUp() override {
    std::filesystem::remove_all(folder_);  // A test that crashed may have left it, if its process had the same id.
    setenv("XLAD_COMM_DIR", folder_.c_str(), 1);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

 private:
  const std::string folder_ =
      (std::filesystem::temp_directory_path() / absl::StrCat("xlad-comm-test-", getpid())).string();
};
const ::testing::Environment* const kFolder = ::testing::AddGlobalTestEnvironment(new ControlFolderOfTests());

std::string NewKey() { return absl::StrCat("test-", getpid(), "-", SystemRandom()->Hex(4)); }

// Calls `body` on a thread for each rank of a new group, whose cache and scratch have the given sizes.
void OnRanks(int ranks, const std::function<void(ProcessGroup*)>& body, const ProcessGroup::Options& sizes = {}) {
  const std::unique_ptr<Bootstrap> bootstrap = MapBootstrap({});
  const std::string key = NewKey();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      ProcessGroup::Options options = OptionsOf(rank, ranks, key);
      options.cache_bytes = sizes.cache_bytes;
      options.scratch_bytes = sizes.scratch_bytes;
      auto group = ProcessGroup::Form(options, bootstrap.get());
      ASSERT_TRUE(group.ok()) << group.status();
      body(group->get());
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Returns element i of the input of a rank. Sums of these values are exact.
float Value(int rank, int64_t i) { return static_cast<float>((i * 7 + rank * 13) % 101); }

// Returns the output of `rank` by the definition of the collective.
std::vector<float> Expected(const CollectiveSpec& spec, int rank) {
  const int64_t n = spec.output_elements(rank);
  std::vector<float> out(n);
  const auto sum = [&](int64_t i) {
    float total = 0;
    for (int r = 0; r < spec.ranks; ++r) total += Value(r, i);
    return total;
  };
  for (const ExpectedOutput& at : spec.sizes.empty() ? std::vector<ExpectedOutput>() : ExpectedOutputOf(spec, rank)) {
    for (int64_t i = at.begin; i < at.end; ++i) {
      out[i] = at.source == ExpectedOutput::kAllRanks ? sum(i + at.shift) : Value(at.source, i + at.shift);
    }
  }
  if (!spec.sizes.empty()) return out;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t part = std::max<int64_t>(1, n / spec.ranks);
    switch (spec.kind) {
      case CollectiveKind::kAllReduce:
      case CollectiveKind::kReduce:
        out[i] = sum(i);
        break;
      case CollectiveKind::kReduceScatter:
        out[i] = sum(rank * n + i);
        break;
      case CollectiveKind::kAllGather:
      case CollectiveKind::kGather:
        out[i] = Value(static_cast<int>(i / part), i % part);
        break;
      case CollectiveKind::kAllToAll:
        out[i] = Value(static_cast<int>(i / part), rank * part + i % part);
        break;
      case CollectiveKind::kBroadcast:
        out[i] = Value(spec.root, i);
        break;
      case CollectiveKind::kScatter:
        out[i] = Value(spec.root, rank * n + i);
        break;
      default:
        for (const RankPair& pair : spec.pairs) {
          if (pair.target == rank) out[i] = Value(pair.source, i);
        }
    }
  }
  return out;
}

// Runs the operation twice in separate buffers and, if the spec allows it, once in place.
void RunAndCompare(ProcessGroup* group, const CollectiveSpec& spec, const PrepareOptions& options) {
  const int rank = group->rank();
  const absl::StatusOr<std::unique_ptr<GroupOperation>> operation = group->Prepare(spec, options);
  ASSERT_TRUE(operation.ok()) << operation.status();
  SCOPED_TRACE(absl::StrCat(spec.ToString(), ", ", (*operation)->plan().ToString(), ", rank ", rank));
  const int64_t in = spec.input_elements(rank), out = spec.output_elements(rank);
  std::vector<float> plain(2 * (in + out) + 2);
  float* input = plain.data();
  std::byte* allocated = nullptr;
  if (options.registered) {
    allocated = *group->Allocate(static_cast<int64_t>(plain.size() * sizeof(float)));
    input = reinterpret_cast<float*>(allocated);
  }
  float* const output = input + in + 1;
  std::vector<float> expected = Expected(spec, rank);
  const bool keeps = spec.kind == CollectiveKind::kSendRecv && (rank == 0 || spec.ranks == 1);
  if (keeps) expected.assign(out, -1);
  const auto check = [&](const float* found) {
    const auto [wrong, wanted] = std::mismatch(found, found + out, expected.begin());
    ASSERT_EQ(wrong, found + out) << "element " << wrong - found << ": found " << *wrong << ", expected " << *wanted;
  };
  for (int64_t i = 0; i < in; ++i) input[i] = Value(rank, i);
  for (int time = 0; time < 2; ++time) {
    std::fill(output, output + out + 1, -1.0f);
    ASSERT_TRUE(group->Run(**operation, input, output).ok());
    check(output);
    ASSERT_EQ(output[out], -1) << "wrote beyond the output";
  }
  const InPlaceOffsets in_place = InPlaceOffsetsOf(spec, rank);
  if (in_place.valid) {
    float* const from = output + (out > in ? in_place.output : 0);
    float* const to = output + (in > out ? in_place.input : 0);
    for (int64_t i = 0; i < in; ++i) from[i] = Value(rank, i);
    ASSERT_TRUE(group->Run(**operation, from, to).ok());
    if (out > 0) check(to);
  }
  if (allocated != nullptr) ASSERT_TRUE(group->Free(allocated).ok());
}

TEST(ProcessGroup, AllCollectivesHaveTheResultsOfTheirDefinitions) {
  for (const int ranks : {1, 2, 3, 4}) {
    OnRanks(ranks, [&](ProcessGroup* group) {
      for (int kind = 1; kind <= kNumCollectiveKinds; ++kind) {
        for (const int64_t count : {0, 1, 5, 12, 13, 200, 30011}) {
          const CollectiveSpec spec = MakeSpec(static_cast<CollectiveKind>(kind), ranks, count);
          for (const bool registered : {false, true}) {
            PrepareOptions options;
            options.registered = registered;
            RunAndCompare(group, spec, options);
          }
        }
      }
    });
  }
}

TEST(ProcessGroup, EveryPlanHasTheSameResults) {
  for (const int ranks : {2, 3, 5}) {
    OnRanks(ranks, [&](ProcessGroup* group) {
      for (int kind = 1; kind <= kNumCollectiveKinds; ++kind) {
        for (const int64_t count : {0, 1, 3, 17, 1000}) {
          const CollectiveSpec spec = MakeSpec(static_cast<CollectiveKind>(kind), ranks, count);
          for (const char* plan : {"mapped_one_shot", "mapped_slots chunks=1", "mapped_slots chunks=2",
                                   "mapped_slots chunks=7", "mapped_windows"}) {
            PrepareOptions options;
            options.registered = std::string(plan) == kMappedWindows;
            options.plan = plan;
            RunAndCompare(group, spec, options);
          }
        }
      }
    });
  }
}

TEST(ProcessGroup, PartsMayHaveDifferentSizes) {
  for (const int ranks : {1, 2, 3, 5}) {
    OnRanks(ranks, [&](ProcessGroup* group) {
      for (const CollectiveKind kind : {CollectiveKind::kAllGather, CollectiveKind::kReduceScatter,
                                        CollectiveKind::kGather, CollectiveKind::kScatter, CollectiveKind::kAllToAll}) {
        for (const int64_t scale : {0, 1, 100, 40'000}) {
          CollectiveSpec spec = MakeSpec(kind, ranks, 0);
          const int senders = kind == CollectiveKind::kAllToAll ? ranks : 1;
          for (int i = 0; i < senders * ranks; ++i) {
            spec.sizes.push_back(scale * (i % 3) + (scale + i) % 2);
            spec.counts[0] += spec.sizes.back();
          }
          for (const bool registered : {false, true}) {
            PrepareOptions options;
            options.registered = registered;
            RunAndCompare(group, spec, options);
          }
        }
      }
    });
  }
}

TEST(ProcessGroup, PlansOfHugeCollectivesFitIntoTheScratch) {
  for (int kind = 1; kind <= kNumCollectiveKinds; ++kind) {
    for (const int ranks : {2, 3, 8}) {
      for (const bool exclusive : {false, true}) {
        for (int64_t count = 1; count < int64_t{1} << 33; count = count * 7 + 1) {
          const CollectiveSpec spec = MakeSpec(static_cast<CollectiveKind>(kind), ranks, count / ranks);
          const GroupMachine machine{ranks, exclusive, /*scratch_bytes=*/256 << 10, /*cache_bytes=*/32 << 20};
          const CollectivePlan plan = ChooseGroupPlan(spec, /*registered=*/false, machine).plan;
          SCOPED_TRACE(absl::StrCat(spec.ToString(), " by ", plan.ToString()));
          ASSERT_TRUE(Rounds(plan, spec).ok()) << Rounds(plan, spec).status();
          const int64_t scratch =
              plan.algorithm == kMappedSlots ? MappedSlotsScratch(spec, plan.chunks) : LargestInput(spec);
          EXPECT_LE(scratch * 4, machine.scratch_bytes);
        }
      }
    }
  }
}

TEST(ProcessGroup, ListedPlansCanRun) {
  for (const int ranks : {1, 3}) {
    const auto body = [&](ProcessGroup* group) {
      for (const CollectiveKind kind :
           {CollectiveKind::kAllReduce, CollectiveKind::kReduceScatter, CollectiveKind::kAllGather,
            CollectiveKind::kAllToAll, CollectiveKind::kBroadcast, CollectiveKind::kReduce}) {
        for (const int64_t count : {0, 5, 5501}) {  // The last one does not fit into the scratch of an AllToAll.
          for (const bool registered : {false, true}) {
            const CollectiveSpec spec = MakeSpec(kind, ranks, count);
            const std::vector<CollectivePlan> plans = group->Plans(spec, registered);
            ASSERT_FALSE(plans.empty());
            EXPECT_EQ(plans[0], (*group->Prepare(spec, {registered, ""}))->plan());
            for (const CollectivePlan& plan : plans) RunAndCompare(group, spec, {registered, plan.ToString()});
          }
        }
      }
    };
    OnRanks(ranks, body, {.scratch_bytes = 128 << 10});
  }
}

TEST(ProcessGroup, CalibrationHasTheSameResultOnAllRanks) {
  std::vector<CostModel> found(3);
  OnRanks(3, [&](ProcessGroup* group) {
    const ReadingClock clock(kNsPerMs / 10);
    absl::StatusOr<CostModel> costs = Calibrate(group, clock, 50);
    ASSERT_TRUE(costs.ok()) << costs.status();
    const CollectiveSpec spec = MakeSpec(CollectiveKind::kAllReduce, 3, 20'000);
    for (const CollectivePlan& plan : group->Plans(spec, false)) EXPECT_GT(*PredictUs(plan, spec, *costs), 0);
    found[group->rank()] = *std::move(costs);
  });
  EXPECT_EQ(PrintCosts(found[0]), PrintCosts(found[1]));
  EXPECT_EQ(PrintCosts(found[0]), PrintCosts(found[2]));
  EXPECT_TRUE(found[0].corrections.contains("all_reduce mapped_slots"));
}

TEST(ProcessGroup, LargeResultsBypassTheCache) {
  const auto body = [&](ProcessGroup* group) {
    for (const bool registered : {false, true}) {
      PrepareOptions options;
      options.registered = registered;
      RunAndCompare(group, MakeSpec(CollectiveKind::kAllReduce, 2, 400'003), options);
      RunAndCompare(group, MakeSpec(CollectiveKind::kAllGather, 2, 300'001), options);
    }
  };
  OnRanks(2, body, {.cache_bytes = 1 << 20});
}

TEST(ProcessGroup, RanksThatDisagreeAreNamedOnEveryRank) {
  OnRanks(3, [](ProcessGroup* group) {
    const auto sum = group->Prepare(MakeSpec(CollectiveKind::kAllReduce, 3, 4));
    const auto more = group->Prepare(MakeSpec(CollectiveKind::kAllReduce, 3, 5000));
    ASSERT_TRUE(sum.ok() && more.ok());
    std::vector<float> in(5000), out(5000);
    ASSERT_TRUE(group->Run(**sum, in.data(), out.data()).ok());
    // Rank 1 runs a different operation than the other ranks.
    const auto& mine = group->rank() == 1 ? *more : *sum;
    const absl::Status status = group->Run(*mine, in.data(), out.data());
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("operation 2"), HasSubstr("f32[4]"), HasSubstr("f32[5000]"), HasSubstr("rank 1")));
    EXPECT_EQ(group->Run(*mine, in.data(), out.data()), status);
  });
}

TEST(ProcessGroup, ADisagreementNamesAnOperationThatHasBeenDestroyed) {
  OnRanks(2, [](ProcessGroup* group) {
    if (group->rank() == 1) {
      // Rank 1 is the root, which need not wait for rank 0.
      const auto broadcast = group->Prepare(MakeSpec(CollectiveKind::kBroadcast, 2, 3));
      ASSERT_TRUE(broadcast.ok()) << broadcast.status();
      float data[3] = {};
      ASSERT_TRUE(group->Run(**broadcast, data, data).ok());
    }
    const auto sum = group->Prepare(MakeSpec(CollectiveKind::kAllReduce, 2, 1));
    ASSERT_TRUE(sum.ok()) << sum.status();
    float value = 1;
    EXPECT_THAT(std::string(group->Run(**sum, &value, &value).message()),
                AllOf(HasSubstr("broadcast"), HasSubstr("all_reduce")));
  });
}

// Rank 2 leaves, rank 1 fails because of that, and rank 0 leaves last.
TEST(ProcessGroup, TheControlFileIsKeptIfAnyRankHadAnError) {
  for (const bool fails : {false, true}) {
    const std::unique_ptr<Bootstrap> bootstrap = MapBootstrap({});
    const std::string key = NewKey();
    std::unique_ptr<ProcessGroup> groups[3];
    std::vector<std::thread> threads;
    for (const int rank : {0, 1, 2}) {
      threads.emplace_back([&, rank] { groups[rank] = *ProcessGroup::Form(OptionsOf(rank, 3, key), bootstrap.get()); });
    }
    for (std::thread& thread : threads) thread.join();
    groups[2].reset();
    if (fails) {
      EXPECT_TRUE(absl::IsUnavailable(groups[1]->Barrier()));
    }
    groups[1].reset();
    groups[0].reset();
    int files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(*ControlFolder())) {
      files += absl::StrContains(entry.path().filename().string(), key) ? 1 : 0;
    }
    EXPECT_EQ(files, fails ? 1 : 0);
  }
}

TEST(ProcessGroup, RefusesWhatItCannotRun) {
  OnRanks(2, [](ProcessGroup* group) {
    PrepareOptions ring;
    ring.plan = "ring";
    const CollectiveSpec spec = MakeSpec(CollectiveKind::kAllReduce, 2, 8);
    const absl::Status messages = group->Prepare(spec, ring).status();
    EXPECT_EQ(messages.code(), absl::StatusCode::kUnimplemented);
    EXPECT_THAT(std::string(messages.message()),
                AllOf(HasSubstr("found plan ring "),
                      HasSubstr("expected one of mapped_one_shot, mapped_slots, mapped_windows (mapped_windows only "
                                "with registered buffers), because")));
    CollectiveSpec to_itself = MakeSpec(CollectiveKind::kSendRecv, 2, 8);
    to_itself.pairs = {{1, 1}};  // No rank sends a message, but with other pairs only some ranks would.
    EXPECT_EQ(group->Prepare(to_itself, {false, "direct"}).status().code(), absl::StatusCode::kUnimplemented);
    PrepareOptions windows;
    windows.plan = kMappedWindows;
    EXPECT_THAT(std::string(group->Prepare(spec, windows).status().message()), HasSubstr("must be registered"));
    EXPECT_FALSE(group->Prepare(MakeSpec(CollectiveKind::kAllReduce, 3, 8)).ok());
    windows.registered = true;
    const auto operation = group->Prepare(spec, windows);
    std::vector<float> plain(16);
    const absl::Status status = group->Run(**operation, plain.data(), plain.data());
    EXPECT_THAT(std::string(status.message()), HasSubstr("outside the memory of Allocate"));
    EXPECT_TRUE(group->Barrier().ok());
  });
}

// Starts a process that is rank 1 of 2, runs `operations` operations and then kills itself.
pid_t StartRankThatDies(const std::string& folder, const std::string& key, int operations) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  const std::unique_ptr<Bootstrap> bootstrap = FileBootstrap(RealFileSystem(), folder);
  auto group = ProcessGroup::Form(OptionsOf(1, 2, key), bootstrap.get());
  if (!group.ok()) _exit(1);
  auto operation = (*group)->Prepare(MakeSpec(CollectiveKind::kAllReduce, 2, 4));
  std::vector<float> values(4);
  for (int i = 0; i < operations; ++i) {
    if (!(*group)->Run(**operation, values.data(), values.data()).ok()) _exit(2);
  }
  raise(SIGKILL);
  _exit(3);
}

TEST(ProcessGroup, ARankThatDiesIsNamed) {
  for (const int operations : {0, 1, 2, 7}) {
    const std::string key = NewKey();
    const std::string folder = (std::filesystem::temp_directory_path() / key).string();
    const pid_t pid = StartRankThatDies(folder, key, operations);
    const std::unique_ptr<Bootstrap> bootstrap = FileBootstrap(RealFileSystem(), folder);
    auto group = ProcessGroup::Form(OptionsOf(0, 2, key), bootstrap.get());
    ASSERT_TRUE(group.ok()) << group.status();
    auto operation = (*group)->Prepare(MakeSpec(CollectiveKind::kAllReduce, 2, 4));
    std::vector<float> values(4);
    absl::Status status;
    int done = 0;
    while ((status = (*group)->Run(**operation, values.data(), values.data())).ok()) ++done;
    EXPECT_EQ(done, operations);
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("rank 1 (host "), HasSubstr(absl::StrCat("pid ", pid)), HasSubstr("has died"),
                      HasSubstr(absl::StrCat("operation ", operations + 1)), HasSubstr("all_reduce(sum) f32[4]")));
    EXPECT_EQ(waitpid(pid, nullptr, 0), pid);
    std::filesystem::remove_all(folder);
  }
}

constexpr int64_t kLargeScratch = 5 << 20;  // More than the default of any group.

// Runs operations as one of `ranks` ranks until an operation fails. Then shrinks the group and sums the old ranks of
// its members. Returns the sum, or a negative number that tells which call failed. The process kills itself after
// operation number `dies_after`, counted from 0. Rank 0 chooses the size of the scratch.
float SumOfSurvivors(const std::string& folder, const std::string& key, int rank, int ranks, int dies_after) {
  const std::unique_ptr<Bootstrap> bootstrap = FileBootstrap(RealFileSystem(), folder);
  ProcessGroup::Options options = OptionsOf(rank, ranks, key);
  if (rank == 0) options.scratch_bytes = kLargeScratch;
  auto group = ProcessGroup::Form(options, bootstrap.get());
  if (!group.ok()) return -1;
  auto operation = (*group)->Prepare(MakeSpec(CollectiveKind::kAllReduce, ranks, 4));
  if (!operation.ok()) return -2;
  std::vector<float> values(4);
  for (int i = 0; (*group)->Run(**operation, values.data(), values.data()).ok(); ++i) {
    if (i == dies_after) raise(SIGKILL);
  }
  auto smaller = (*group)->Shrink();
  if (!smaller.ok() || (*smaller)->ranks() != ranks - 1) return -3;
  if ((*smaller)->shared_bytes() < kLargeScratch * (ranks - 1)) return -5;
  auto sum = (*smaller)->Prepare(MakeSpec(CollectiveKind::kAllReduce, ranks - 1, 1));
  float own = static_cast<float>(rank), all = 0;
  if (!sum.ok() || !(*smaller)->Run(**sum, &own, &all).ok()) return -4;
  return all;
}

TEST(ProcessGroup, AGroupThatCannotFormLeavesNoFolder) {
  const std::string key = NewKey();
  setenv("XLAD_RANK", "0", 1);
  setenv("XLAD_RANKS", "2", 1);
  setenv("XLAD_LAUNCH", key.c_str(), 1);
  const auto group = JoinLaunchedGroup(/*deadline_ms=*/10);
  for (const char* name : {"XLAD_RANK", "XLAD_RANKS", "XLAD_LAUNCH"}) unsetenv(name);
  EXPECT_TRUE(absl::IsDeadlineExceeded(group.status())) << group.status();
  for (const auto& entry : std::filesystem::directory_iterator(*ControlFolder())) {
    EXPECT_THAT(entry.path().filename().string(), ::testing::Not(::testing::StartsWith("meet-")));
  }
}

TEST(ProcessGroup, SurvivorsShrinkTheGroup) {
  constexpr int kRanks = 4, kParent = 1;
  for (const int victim : {2, 0}) {
    const std::string key = NewKey();
    const std::string folder = (std::filesystem::temp_directory_path() / key).string();
    const float expected = static_cast<float>(0 + 1 + 2 + 3 - victim);
    std::map<int, pid_t> children;
    for (const int rank : {0, 2, 3}) {
      const pid_t pid = fork();
      if (pid == 0) {
        const float sum = SumOfSurvivors(folder, key, rank, kRanks, rank == victim ? 3 : INT_MAX);
        _exit(sum == expected ? 0 : 1);
      }
      children[rank] = pid;
    }
    EXPECT_EQ(SumOfSurvivors(folder, key, kParent, kRanks, INT_MAX), expected);
    for (const auto& [rank, pid] : children) {
      int status = 0;
      EXPECT_EQ(waitpid(pid, &status, 0), pid);
      EXPECT_TRUE(rank == victim ? WIFSIGNALED(status) : WIFEXITED(status) && WEXITSTATUS(status) == 0)
          << "rank " << rank << ", victim " << victim;
    }
    std::filesystem::remove_all(folder);
  }
}

TEST(ProcessGroup, ARankThatDiesInsteadOfShrinkingIsLeftOut) {
  const std::string key = NewKey();
  const std::string folder = (std::filesystem::temp_directory_path() / key).string();
  const std::string meeting = absl::StrCat(*ControlFolder(), "/meet-", key, "-3-1");
  ExpectThatARankThatDiesInShrinkIsLeftOut(meeting, [&](int rank) {
    const std::unique_ptr<Bootstrap> bootstrap = FileBootstrap(RealFileSystem(), folder);
    auto group = ProcessGroup::Form(OptionsOf(rank, 2, key), bootstrap.get());
    if (!group.ok()) return group;
    const auto sum = (*group)->Prepare(MakeSpec(CollectiveKind::kAllReduce, 2, 4 + rank));
    std::vector<float> values(5);
    EXPECT_FALSE((*group)->Run(**sum, values.data(), values.data()).ok()) << "the ranks disagree";
    return group;
  });
  std::filesystem::remove_all(folder);
}

TEST(ProcessGroup, NamesTheRanksThatAreMissing) {
  const std::unique_ptr<Bootstrap> bootstrap = MapBootstrap({});
  ProcessGroup::Options options = OptionsOf(0, 3, NewKey());
  options.deadline_ms = 30;
  const absl::Status status = ProcessGroup::Form(options, bootstrap.get()).status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("cannot form"), HasSubstr(": 1, 2")));
}

}  // namespace
}  // namespace xlad::collectives
