#include "service/blob_peers.h"

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
    EXPECT_TRUE(depth.contains(from)) << "it has been told to read the blocks before";
    depth[worker] = depth[from] + 1;
    EXPECT_LE(++readers[from], from.empty() ? 1 : 2) << from;
    EXPECT_LE(depth[worker], 7) << "the workers are a tree";
  }
}

TEST(BlobPeers, WorkersThatReadOtherBlocksDoNotReadFromEachOther) {
  BlobPeers peers;
  EXPECT_EQ(From(&peers, "a", {0, 4}), "");
  EXPECT_EQ(From(&peers, "b", {4, 8}), "");
  EXPECT_EQ(From(&peers, "c", {2, 6}), "") << "neither a nor b has all of these";
  EXPECT_EQ(From(&peers, "d", {3, 5}), "c");
  EXPECT_EQ(From(&peers, "a", {5, 7}), "b");
}

TEST(BlobPeers, AWorkerThatFailsIsNotNamedAgain) {
  BlobPeers peers;
  EXPECT_EQ(From(&peers, "a", {0, 8}), "");
  EXPECT_EQ(From(&peers, "a", {8, 16}), "");
  EXPECT_EQ(From(&peers, "b", {0, 8}), "a");
  EXPECT_EQ(From(&peers, "b", {0, 8}, {"a"}), "") << "at once from the coordinator";
  EXPECT_EQ(From(&peers, "c", {0, 8}), "b");
  EXPECT_EQ(From(&peers, "c", {8, 16}), "") << "a is not asked for other blocks either";
  EXPECT_EQ(From(&peers, "a", {16, 17}), "");
  EXPECT_EQ(From(&peers, "b", {16, 17}), "") << "nor for what it reads later";
}

TEST(BlobPeers, AttemptsHaveNothingToDoWithEachOther) {
  BlobPeers peers;
  EXPECT_EQ(From(&peers, "a", {0, 1}), "");
  EXPECT_EQ(From(&peers, "b", {0, 1}, {}, 2), "");
}

TEST(BlobPeers, AWorkerThatReadsAgainDoesNotReadFromItself) {
  BlobPeers peers;
  EXPECT_EQ(From(&peers, "a", {0, 1}), "");
  EXPECT_EQ(From(&peers, "a", {0, 1}), "");
  EXPECT_EQ(peers.entries(), 1);
}

TEST(BlobPeers, ItsMemoryIsBounded) {
  BlobPeers peers({.max_entries = 1000});
  for (int64_t attempt = 0; attempt < 500; ++attempt) {
    for (int w = 0; w < 20; ++w) From(&peers, absl::StrCat("w", w), {0, 8}, {}, attempt);
    EXPECT_LE(peers.entries(), 1000 + 20 * 8);
  }
  EXPECT_EQ(From(&peers, "w20", {0, 8}, {}, 499).substr(0, 1), "w") << "the latest are kept";
}

}  // namespace
}  // namespace xlad::service
