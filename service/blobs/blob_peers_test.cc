#include "service/blobs/blob_peers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "absl/strings/str_cat.h"

namespace xlad::service {
namespace {

constexpr char kBlob[] = "blob";

struct Blocks {
  int64_t first = 0, last = 0;
};
std::string From(BlobPeers* peers, const std::string& worker, const Blocks& blocks,
                 const std::vector<std::string>& failed = {}, int64_t attempt = 1) {
  return peers->Choose({"job", attempt, worker, failed}, kBlob, blocks.first, blocks.last);
}

TEST(BlobPeers, TheCoordinatorSendsEachBlockOnceAndEveryWorkerPassesItToTwo) {
  BlobPeers peers;
  std::map<std::string, int> readers;
  std::map<std::string, int> depth = {{"", 0}};
  for (int w = 0; w < 100; ++w) {
    const std::string worker = absl::StrCat("w", w);
    const std::string from = From(&peers, worker, {0, 8});
    EXPECT_TRUE(depth.contains(from)) << "the named worker must have been told to read the blocks earlier";
    depth[worker] = depth[from] + 1;
    EXPECT_LE(++readers[from], from.empty() ? 1 : 2) << from;
    EXPECT_LE(depth[worker], 7) << "the workers form a binary tree";
  }
}

TEST(BlobPeers, WorkersThatReadOtherBlocksDoNotReadFromEachOther) {
  BlobPeers peers;
  EXPECT_EQ(From(&peers, "a", {0, 4}), "");
  EXPECT_EQ(From(&peers, "b", {4, 8}), "");
  EXPECT_EQ(From(&peers, "c", {2, 6}), "") << "neither a nor b has all of these blocks";
  EXPECT_EQ(From(&peers, "d", {3, 5}), "c");
  EXPECT_EQ(From(&peers, "a", {5, 7}), "b");
}

TEST(BlobPeers, AWorkerThatFailsIsNotNamedForAWhile) {
  ManualClock clock(1);
  BlobPeers peers({.failure_pause_ms = 10, .clock = &clock});
  EXPECT_EQ(From(&peers, "a", {0, 8}), "");
  EXPECT_EQ(From(&peers, "a", {8, 16}), "");
  EXPECT_EQ(From(&peers, "b", {0, 8}), "a");
  EXPECT_EQ(From(&peers, "b", {0, 8}, {"a"}), "") << "after a failure, b reads from the coordinator";
  EXPECT_EQ(From(&peers, "c", {0, 8}), "b");
  EXPECT_EQ(From(&peers, "c", {8, 16}), "") << "a is not asked for other blocks either";
  EXPECT_EQ(From(&peers, "a", {16, 17}), "");
  EXPECT_EQ(From(&peers, "b", {16, 17}), "") << "a is not named for blocks that it reads later, either";
  clock.Advance(10 * kNsPerMs);
  EXPECT_EQ(From(&peers, "d", {8, 16}), "c") << "a read these blocks before the pause was over";
  EXPECT_EQ(From(&peers, "a", {17, 18}), "");
  EXPECT_EQ(From(&peers, "b", {17, 18}), "a");
}

TEST(BlobPeers, ThePauseAfterAFailureGrows) {
  ManualClock clock(1);
  BlobPeers peers({.failure_pause_ms = 10, .clock = &clock});
  int64_t block = 0;
  for (const int64_t pause_ms : {10, 20, 40, 80}) {
    for (const char* reader : {"b", "c", "d"}) From(&peers, reader, {block, block + 1}, {"a"});
    const auto is_named = [&] {
      ++block;
      From(&peers, "a", {block, block + 1});
      return From(&peers, "e", {block, block + 1}) == "a";
    };
    clock.Advance(pause_ms * kNsPerMs - 1);
    EXPECT_FALSE(is_named()) << pause_ms;
    clock.Advance(1);
    EXPECT_TRUE(is_named()) << pause_ms;
  }
}

TEST(BlobPeers, AttemptsAreIndependent) {
  BlobPeers peers;
  EXPECT_EQ(From(&peers, "a", {0, 1}), "");
  EXPECT_EQ(From(&peers, "b", {0, 1}, {}, 2), "");
}

TEST(BlobPeers, AWorkerThatReadsAgainDoesNotReadFromItself) {
  BlobPeers peers;
  EXPECT_EQ(From(&peers, "a", {0, 1}), "");
  const int64_t entries = peers.entries();
  EXPECT_EQ(From(&peers, "a", {0, 1}), "");
  EXPECT_EQ(peers.entries(), entries);
}

TEST(BlobPeers, AWorkerThatReadsAgainReadsFromTheCoordinator) {
  BlobPeers peers;
  EXPECT_EQ(From(&peers, "a", {0, 2}), "");
  EXPECT_EQ(From(&peers, "b", {0, 2}), "a");
  EXPECT_EQ(From(&peers, "a", {0, 2}), "") << "b may still be waiting for a";
  EXPECT_EQ(From(&peers, "b", {1, 2}), "");
}

TEST(BlobPeers, AWorkerWithAllItsReadersDoesNotReadFromThemAgain) {
  BlobPeers peers;
  EXPECT_EQ(From(&peers, "a", {0, 2}), "");
  EXPECT_EQ(From(&peers, "b", {0, 2}), "a");
  EXPECT_EQ(From(&peers, "c", {0, 2}), "a");
  EXPECT_EQ(From(&peers, "a", {0, 2}), "") << "a repeats a call that failed; b and c wait for a";
  EXPECT_EQ(From(&peers, "d", {0, 2}, {"a"}), "");
  EXPECT_EQ(From(&peers, "a", {1, 2}), "") << "d has reported a failure of a; b and c may still wait for it";
}

TEST(BlobPeers, TheNextAttemptReplacesTheEarlierOnes) {
  BlobPeers peers;
  const auto total = [&](int64_t attempt) {
    From(&peers, "a", {0, 100}, {}, attempt);
    From(&peers, "b", {0, 100}, {"c"}, attempt);
    return peers.entries();
  };
  const int64_t first = total(1);
  EXPECT_EQ(total(2), first);
  EXPECT_EQ(total(3), first);
  peers.Choose({"another job", 9, "a", {}}, kBlob, 0, 1);
  EXPECT_EQ(From(&peers, "d", {0, 100}, {}, 3), "a") << "the attempt of another job replaces nothing";
}

TEST(BlobPeers, ItsMemoryIsBounded) {
  BlobPeers peers({.max_entries = 1000});
  const auto from = [&](int job, int worker) {
    return peers.Choose({absl::StrCat("job", job), 1, absl::StrCat("w", worker), {}}, kBlob, 0, 8);
  };
  for (int job = 0; job < 500; ++job) {
    for (int w = 0; w < 20; ++w) from(job, w);
    EXPECT_LE(peers.entries(), 1000);
  }
  EXPECT_EQ(from(499, 20).substr(0, 1), "w") << "the most recently used blobs are kept";
}

TEST(BlobPeers, FailuresAndBlobsWithoutBlocksAreCounted) {
  BlobPeers peers({.max_entries = 1000, .max_failed = 10});
  for (int i = 0; i < 5; ++i) From(&peers, "a", {0, 0}, {absl::StrCat("x", i)});
  EXPECT_EQ(peers.entries(), 1 + 5);
  for (int i = 0; i < 100; ++i) From(&peers, "a", {0, 0}, {absl::StrCat("y", i)});
  EXPECT_EQ(peers.entries(), 1 + 10) << "more failures are not remembered";
  for (int job = 0; job < 5000; ++job) peers.Choose({absl::StrCat("job", job), 1, "a", {}}, kBlob, 0, 0);
  EXPECT_EQ(peers.entries(), 1000);
}

}  // namespace
}  // namespace xlad::service
