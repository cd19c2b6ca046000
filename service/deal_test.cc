#include "service/placement/deal.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <tuple>

#include "absl/strings/str_cat.h"

namespace xlad::service {
namespace {

Mesh MeshOf(const std::vector<int64_t>& sizes) {
  Mesh mesh;
  for (const int64_t size : sizes) mesh.Add()->set_size(size);
  return mesh;
}

// "0:4 1:2" for 4 devices of worker 0 and then 2 devices of worker 1.
std::string SharesText(const std::vector<WorkerShare>& shares) {
  std::string text;
  for (const WorkerShare& share : shares) {
    absl::StrAppend(&text, text.empty() ? "" : " ", share.worker, ":", share.devices);
  }
  return text;
}

struct DealCase {
  std::vector<WorkerRoom> workers;
  std::vector<int64_t> mesh;
  int64_t devices = 1;
};

DealCase RandomCase(std::mt19937_64* random, int hosts) {
  DealCase out;
  const uint64_t workers = 1 + (*random)() % 6;
  const int64_t most = 1 + static_cast<int64_t>((*random)() % 8);
  for (uint64_t w = 0; w < workers; ++w) {
    out.workers.push_back({1 + static_cast<int64_t>((*random)() % most), static_cast<int>((*random)() % hosts)});
  }
  std::stable_sort(out.workers.begin(), out.workers.end(),
                   [](const WorkerRoom& a, const WorkerRoom& b) { return a.devices > b.devices; });
  for (uint64_t axes = 1 + (*random)() % 3; axes > 0; --axes) {
    out.mesh.push_back(1 + static_cast<int64_t>((*random)() % 4));
    out.devices *= out.mesh.back();
  }
  return out;
}

// Deals devices one at a time to the first workers that together have enough, without regard to hosts and blocks.
std::vector<int64_t> EvenShares(const std::vector<WorkerRoom>& workers, int64_t devices) {
  size_t used = 0;
  for (int64_t room = 0; room < devices; ++used) room += workers[used].devices;
  std::vector<int64_t> share(used, 0);
  for (int64_t dealt = 0; dealt < devices; ++dealt) {
    size_t best = used;
    for (size_t w = 0; w < used; ++w) {
      if (share[w] < workers[w].devices && (best == used || share[w] < share[best])) best = w;
    }
    ++share[best];
  }
  return share;
}

// Whether a block has positions with different values in `place`, which has a value for each position.
bool IsCut(const std::vector<int>& place, int64_t block) {
  for (size_t p = 0; p < place.size(); ++p) {
    if (place[p] != place[p - p % block]) return true;
  }
  return false;
}

// Tries all ways to give each next group of `unit` positions to one worker such that each block of `block` positions
// stays on one host.
class PlacementSearch {
 public:
  PlacementSearch(const std::vector<WorkerRoom>& workers, int64_t devices, int64_t block, int64_t unit)
      : workers_(workers), devices_(devices), block_(block), unit_(unit) {
    for (const WorkerRoom& worker : workers) room_.push_back(worker.devices);
  }

  bool Succeeds() { return SucceedsFrom(0, -1); }

 private:
  // `host` has the position before this one.
  bool SucceedsFrom(int64_t position, int host) {
    if (position == devices_) return true;
    if (position % block_ == 0) host = -1;
    const State state = {position, host, room_};
    if (failed_.contains(state)) return false;
    for (size_t w = 0; w < workers_.size(); ++w) {
      if (room_[w] < unit_ || (host >= 0 && workers_[w].host != host)) continue;
      room_[w] -= unit_;
      const bool succeeds = SucceedsFrom(position + unit_, workers_[w].host);
      room_[w] += unit_;
      if (succeeds) return true;
    }
    failed_.insert(state);
    return false;
  }

  using State = std::tuple<int64_t, int, std::vector<int64_t>>;
  const std::vector<WorkerRoom>& workers_;
  const int64_t devices_, block_, unit_;
  std::vector<int64_t> room_;  // The devices that are left, by worker.
  std::set<State> failed_;     // The states from which no placement exists.
};

bool Exists(const std::vector<WorkerRoom>& workers, int64_t devices, int64_t block, int64_t unit) {
  return PlacementSearch(workers, devices, block, unit).Succeeds();
}

// On random hosts, workers and meshes: each position is dealt once, no worker gets more devices than it has, and the
// positions of a host are consecutive. A block is cut by hosts only if an exhaustive search finds no placement without
// such a cut. It is cut by workers only if the search finds no placement that also keeps the blocks on hosts.
TEST(Deal, CutsABlockOnlyIfItMust) {
  std::mt19937_64 random(11);
  int cut_by_hosts = 0, cut_by_workers = 0, uncut = 0;
  for (int round = 0; round < 4000; ++round) {
    const DealCase c = RandomCase(&random, 1 + static_cast<int>(random() % 3));
    const std::vector<int64_t> blocks = InnerBlocks(MeshOf(c.mesh), c.devices);
    const std::vector<WorkerShare> shares = DealDevices(c.workers, c.devices, blocks);
    int64_t all = 0;
    for (const WorkerRoom& worker : c.workers) all += worker.devices;
    ASSERT_EQ(shares.empty(), all < c.devices) << "round " << round;
    if (shares.empty()) continue;
    std::vector<int> host, worker;  // By position.
    std::set<size_t> seen;
    for (const WorkerShare& share : shares) {
      ASSERT_TRUE(seen.insert(share.worker).second) << SharesText(shares);
      ASSERT_GE(share.devices, 1);
      ASSERT_LE(share.devices, c.workers[share.worker].devices) << SharesText(shares);
      host.insert(host.end(), share.devices, c.workers[share.worker].host);
      worker.insert(worker.end(), share.devices, static_cast<int>(share.worker));
    }
    ASSERT_EQ(std::ssize(host), c.devices);
    std::vector<int> runs = host;
    runs.erase(std::unique(runs.begin(), runs.end()), runs.end());
    EXPECT_EQ(std::set<int>(runs.begin(), runs.end()).size(), runs.size()) << "round " << round;
    int64_t on_hosts = 1;  // The largest block that no host cuts.
    for (const int64_t block : blocks) {
      if (!IsCut(host, block)) on_hosts = std::max(on_hosts, block);
      if (!IsCut(host, block)) continue;
      ++cut_by_hosts;
      EXPECT_FALSE(Exists(c.workers, c.devices, block, 1)) << "round " << round << ", block " << block;
    }
    for (const int64_t block : blocks) {
      if (block > on_hosts) continue;
      ++(IsCut(worker, block) ? cut_by_workers : uncut);
      if (!IsCut(worker, block)) continue;
      EXPECT_FALSE(Exists(c.workers, c.devices, on_hosts, block)) << "round " << round << ", block " << block;
    }
  }
  EXPECT_GT(cut_by_hosts, 100);
  EXPECT_GT(cut_by_workers, 100);
  EXPECT_GT(uncut, 100);
}

// The shares are those of the even placement if all blocks must be cut, or if the even placement on one host cuts no
// block that need not be cut.
TEST(Deal, IsEvenIfBlocksAllowIt) {
  std::mt19937_64 random(12);
  int even = 0;
  for (int round = 0; round < 4000; ++round) {
    const bool one_host = random() % 2 == 0;
    const DealCase c = RandomCase(&random, one_host ? 1 : 4);
    const std::vector<int64_t> blocks = InnerBlocks(MeshOf(c.mesh), c.devices);
    const std::vector<WorkerShare> shares = DealDevices(c.workers, c.devices, blocks);
    if (shares.empty()) continue;
    const std::vector<int64_t> expected = EvenShares(c.workers, c.devices);
    std::vector<int> worker;  // By position in the even placement.
    for (size_t w = 0; w < expected.size(); ++w) worker.insert(worker.end(), expected[w], static_cast<int>(w));
    bool may_differ = false;
    for (const int64_t block : blocks) {
      const bool can_stay = Exists(c.workers, c.devices, block, one_host ? block : 1);
      may_differ = may_differ || (can_stay && (!one_host || IsCut(worker, block)));
    }
    if (may_differ) continue;
    ++even;
    std::map<size_t, int64_t> found;
    for (const WorkerShare& share : shares) found[share.worker] = share.devices;
    ASSERT_EQ(found.size(), expected.size()) << "round " << round;
    for (const auto& [w, devices] : found) EXPECT_EQ(devices, expected[w]) << "round " << round << ", worker " << w;
    if (!one_host) continue;
    for (size_t s = 0; s < shares.size(); ++s) EXPECT_EQ(shares[s].worker, s) << "round " << round;
  }
  EXPECT_GT(even, 500);
}

TEST(Deal, BlocksAndHostsStayTogether) {
  const auto deal = [](const std::vector<WorkerRoom>& workers, const std::vector<int64_t>& mesh) {
    int64_t devices = 1;
    for (const int64_t size : mesh) devices *= size;
    return SharesText(DealDevices(workers, devices, InnerBlocks(MeshOf(mesh), devices)));
  };
  // No pair is on two hosts.
  EXPECT_EQ(deal({{4, 0}, {4, 1}}, {3, 2}), "0:4 1:2");
  // Workers of two hosts alternate in the list; each host gets consecutive positions.
  EXPECT_EQ(deal({{1, 0}, {1, 1}, {1, 0}, {1, 1}}, {2, 2}), "0:1 2:1 1:1 3:1");
  EXPECT_EQ(deal({{4, 0}, {4, 1}, {4, 0}, {4, 1}}, {12}), "0:4 2:4 1:4");
  // One host with two workers has room for everything.
  EXPECT_EQ(deal({{4, 0}, {3, 1}, {3, 1}}, {6}), "1:3 2:3");
  EXPECT_EQ(deal({{4, 0}, {4, 1}}, {9}), "");
}

TEST(Deal, InnerBlocksAreOfWholeDevices) {
  EXPECT_EQ(InnerBlocks(MeshOf({2, 2, 2}), 8), (std::vector<int64_t>{8, 4, 2}));
  EXPECT_EQ(InnerBlocks(MeshOf({3, 1, 1}), 3), (std::vector<int64_t>{3}));
  EXPECT_EQ(InnerBlocks(MeshOf({1}), 1), std::vector<int64_t>());
  // 12 logical shards on 6 devices: the pairs of shards of the last axis are on one device each.
  EXPECT_EQ(InnerBlocks(MeshOf({3, 2, 2}), 6), (std::vector<int64_t>{6, 2}));
  // 4 shards per device: blocks of 6 shards are not whole devices.
  EXPECT_EQ(InnerBlocks(MeshOf({2, 6}), 3), (std::vector<int64_t>{3}));
}

}  // namespace
}  // namespace xlad::service
