#include "service/placement/free_devices.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <set>

#include "absl/strings/str_cat.h"
#include "proto/device_name.h"
#include "service/placement/deal.h"
#include "service/testing/target.h"

namespace xlad::service {
namespace {

std::string Text(const std::vector<Peer>& peers) {
  std::string text;
  for (const Peer& peer : peers) absl::StrAppend(&text, peer.ShortDebugString(), "\n");
  return text;
}

// Deals to all workers that fit, and not only to the largest ones as Take does.
std::vector<Peer> PlaceOnWorkers(const std::vector<WorkerDevices>& free, int64_t devices, const Target& target,
                                 const std::vector<int64_t>& blocks) {
  std::vector<const WorkerDevices*> fit;
  for (const WorkerDevices& worker : free) {
    if (IsSameTarget(worker.offer.target(), target)) fit.push_back(&worker);
  }
  std::stable_sort(fit.begin(), fit.end(), [](const auto* a, const auto* b) { return a->devices > b->devices; });
  std::map<std::string, int> hosts;
  std::vector<WorkerRoom> rooms;
  for (const WorkerDevices* worker : fit) {
    const int next = static_cast<int>(hosts.size());
    rooms.push_back({worker->devices, hosts.emplace(worker->registration->host(), next).first->second});
  }
  std::vector<std::pair<const WorkerDevices*, int64_t>> shares;
  for (const WorkerShare& share : DealDevices(rooms, devices, blocks)) {
    shares.emplace_back(fit[share.worker], share.devices);
  }
  return PeersFor(shares);
}

// Take returns the same peers as PlaceOnWorkers for the remaining devices, on random clusters and for random jobs.
TEST(FreeDevices, TakesTheDevicesThatPlaceOnWorkersTakes) {
  std::mt19937_64 random(5);
  const Target targets[] = {TargetOf("cpu", "znver3"), TargetOf("cpu", "znver5"), TargetOf("opaque", "")};
  for (int round = 0; round < 200; ++round) {
    std::deque<RegisterWorker> workers;
    std::vector<WorkerDevices> left;
    const int count = static_cast<int>(random() % 13);
    for (int w = 0; w < count; ++w) {
      RegisterWorker& worker = workers.emplace_back();
      worker.set_worker_id(absl::StrCat("w", w));
      worker.set_host(absl::StrCat("host", random() % 4));
      for (const Target& target : targets) {
        if (random() % 3 != 0) continue;
        DeviceOffer offer;
        offer.set_count(static_cast<int>(1 + random() % 7));
        *offer.mutable_target() = target;
        left.push_back({&worker, offer, 1 + static_cast<int64_t>(random() % offer.count())});
      }
    }
    FreeDevices free(left);
    for (int job = 0; job < 30; ++job) {
      const Target& target = targets[random() % std::size(targets)];
      const int64_t devices = 1 + static_cast<int64_t>(random() % 12);
      const bool restricted = random() % 4 == 0;
      const std::string banned = absl::StrCat("w", random() % 13);
      std::vector<WorkerDevices> allowed = left;
      int64_t sum = 0;
      for (const WorkerDevices& offer : left) sum += IsSameTarget(offer.offer.target(), target) ? offer.devices : 0;
      ASSERT_EQ(free.Count(target), sum);
      if (restricted) {
        std::erase_if(allowed, [&](const auto& offer) { return offer.registration->worker_id() == banned; });
      }
      std::vector<int64_t> blocks;
      for (const int64_t size : {devices, int64_t{4}, int64_t{2}}) {
        if (devices % size == 0 && (blocks.empty() || blocks.back() % size == 0)) blocks.push_back(size);
      }
      const std::vector<Peer> expected = PlaceOnWorkers(allowed, devices, target, blocks);
      const std::vector<Peer> taken =
          restricted ? free.TakeFrom([&](const std::string& id) { return id != banned; }, devices, target, blocks)
                     : free.Take(devices, target, blocks);
      ASSERT_EQ(Text(taken), Text(expected)) << "round " << round << ", job " << job;
      for (const Peer& peer : taken) {
        for (WorkerDevices& offer : left) {
          const bool is_it = offer.registration->worker_id() == peer.worker_id() &&
                             IsSameTarget(offer.offer.target(), target);
          if (is_it) offer.devices -= peer.devices_size();
        }
      }
      std::erase_if(left, [](const WorkerDevices& offer) { return offer.devices == 0; });
    }
  }
}

// Null, or a choice of workers that are in use.
FreeDevices::MayHave RandomInUse(std::mt19937_64* random) {
  if ((*random)() % 2 == 0) return nullptr;
  return [](const std::string& worker) { return worker < "w3"; };
}

// Calls TakeMix for random mixes. It assigns each mesh position once, and positions of earlier parts precede those of
// later parts. It takes no more devices of an offer than are free. The result has one peer for each worker. It is empty
// if there are too few devices.
TEST(FreeDevices, TakesMixes) {
  std::mt19937_64 random(7);
  const Target targets[] = {TargetOf("cpu", "znver3"), TargetOf("cpu", "znver5"), TargetOf("opaque", "")};
  for (int round = 0; round < 500; ++round) {
    std::deque<RegisterWorker> workers;
    std::vector<WorkerDevices> offers;
    std::map<std::string, int64_t> free;  // The number of free devices by worker and target.
    for (uint64_t w = random() % 6; w > 0; --w) {
      RegisterWorker& worker = workers.emplace_back();
      worker.set_worker_id(absl::StrCat("w", w));
      // All CPU devices of a worker are of one model.
      for (const Target* target : {&targets[random() % 2], &targets[2]}) {
        if (random() % 4 == 0) continue;
        DeviceOffer offer;
        offer.set_count(5);
        *offer.mutable_target() = *target;
        offers.push_back({&worker, offer, 1 + static_cast<int64_t>(random() % 5)});
        free[absl::StrCat(worker.worker_id(), "/", DeviceName(*target), "/", target->cpu())] = offers.back().devices;
      }
    }
    std::vector<FreeDevices::Part> parts;
    for (size_t t = 0; t < std::size(targets); ++t) parts.push_back({targets[t], absl::StrCat(t)});
    std::shuffle(parts.begin(), parts.end(), random);
    int64_t most_cpus = 1 + static_cast<int64_t>(random() % 8), cpus = 0, usable = 0;
    for (FreeDevices::Part& part : parts) {
      if (DeviceName(part.target) == "cpu") part.most = most_cpus;
    }
    FreeDevices devices(offers);
    for (const WorkerDevices& offer : offers) {
      (DeviceName(offer.offer.target()) == "cpu" ? cpus : usable) += offer.devices;
    }
    usable += std::min(cpus, most_cpus);
    EXPECT_EQ(devices.Count(parts), usable);
    const int64_t wanted = 1 + static_cast<int64_t>(random() % 12);
    const std::vector<Peer> peers = devices.TakeMix(nullptr, wanted, parts, {wanted}, RandomInUse(&random));
    ASSERT_EQ(peers.empty(), usable < wanted) << "round " << round;
    if (peers.empty()) continue;
    std::map<int32_t, std::string> digests;  // By mesh position.
    std::set<std::string> seen;
    for (const Peer& peer : peers) {
      EXPECT_TRUE(seen.insert(peer.worker_id()).second);
      int count = 0;
      for (const PeerDevices& kind : peer.kinds()) {
        const Target& target = targets[kind.executable_digest()[0] - '0'];
        EXPECT_EQ(kind.device_name(), DeviceName(target));
        EXPECT_LE(kind.devices_size(),
                  free[absl::StrCat(peer.worker_id(), "/", kind.device_name(), "/", target.cpu())]);
        for (const int32_t device : kind.devices()) {
          EXPECT_TRUE(digests.emplace(device, kind.executable_digest()).second);
          EXPECT_EQ(peer.devices(count++), device);
        }
      }
      EXPECT_EQ(count, peer.devices_size());
    }
    ASSERT_EQ(std::ssize(digests), wanted);
    EXPECT_EQ(digests.begin()->first, 0);
    EXPECT_EQ(digests.rbegin()->first, wanted - 1);
    std::vector<std::string> order;
    for (const auto& [position, digest] : digests) {
      if (order.empty() || order.back() != digest) order.push_back(digest);
    }
    std::vector<std::string> expected;
    for (const FreeDevices::Part& part : parts) {
      if (std::find(order.begin(), order.end(), part.executable_digest) != order.end()) {
        expected.push_back(part.executable_digest);
      }
    }
    EXPECT_EQ(order, expected);
  }
}

// The workers of a random cluster with one kind of device. Some workers are in use.
struct PartlyUsed {
  std::deque<RegisterWorker> workers;
  std::vector<WorkerDevices> free;
  std::map<std::string, WorkerRoom> rooms;  // By worker.
  std::set<std::string> used;
};

PartlyUsed RandomPartlyUsed(std::mt19937_64* random) {
  PartlyUsed cluster;
  for (uint64_t w = 1 + (*random)() % 8; w > 0; --w) {
    RegisterWorker& worker = cluster.workers.emplace_back();
    worker.set_worker_id(absl::StrCat("w", w));
    const int host = static_cast<int>((*random)() % 4);
    worker.set_host(absl::StrCat("host", host));
    const int64_t devices = 1 + static_cast<int64_t>((*random)() % 6);
    DeviceOffer offer;
    offer.set_count(6);
    cluster.free.push_back({&worker, offer, devices});
    cluster.rooms[worker.worker_id()] = {devices, host};
    if ((*random)() % 2 == 0) cluster.used.insert(worker.worker_id());
  }
  return cluster;
}

DealQuality QualityOf(const PartlyUsed& cluster, const std::vector<Peer>& peers, const std::vector<int64_t>& blocks) {
  std::vector<WorkerRoom> rooms;
  std::vector<WorkerShare> shares;
  for (const Peer& peer : peers) {
    rooms.push_back(cluster.rooms.at(peer.worker_id()));
    shares.push_back({shares.size(), peer.devices_size()});
  }
  return QualityOf(rooms, shares, blocks);
}

// The number of idle workers among the peers.
int64_t CountIdle(const PartlyUsed& cluster, const std::vector<Peer>& peers) {
  return std::count_if(peers.begin(), peers.end(),
                       [&](const Peer& peer) { return !cluster.used.contains(peer.worker_id()); });
}

// A packed placement is as good as the other one and needs no more idle workers. A job that fits on one worker in use
// gets the smallest such worker. Any other job that fits on one idle worker gets the smallest of these.
TEST(FreeDevices, PacksJobsOnWorkersInUse) {
  std::mt19937_64 random(3);
  int64_t spared = 0;  // Idle workers that packing spares.
  for (int round = 0; round < 3000; ++round) {
    const PartlyUsed cluster = RandomPartlyUsed(&random);
    const int64_t devices = 1 + static_cast<int64_t>(random() % 10);
    std::vector<int64_t> blocks = {devices};
    for (const int64_t size : {4, 2}) {
      if (blocks.back() % size == 0 && blocks.back() > size) blocks.push_back(size);
    }
    const std::string banned = absl::StrCat("w", random() % 9);
    const FreeDevices::MayHave may_have = [&](const std::string& id) { return id != banned; };
    const FreeDevices::MayHave in_use = [&](const std::string& id) { return cluster.used.contains(id); };
    FreeDevices a(cluster.free), b(cluster.free);
    const std::vector<Peer> packed = a.TakePacked(may_have, in_use, devices, Target(), blocks);
    const std::vector<Peer> other = b.TakeFrom(may_have, devices, Target(), blocks);
    ASSERT_EQ(packed.empty(), other.empty()) << "round " << round;
    if (packed.empty()) continue;
    ASSERT_EQ(QualityOf(cluster, packed, blocks), QualityOf(cluster, other, blocks)) << Text(packed) << Text(other);
    ASSERT_LE(CountIdle(cluster, packed), CountIdle(cluster, other)) << Text(packed) << Text(other);
    spared += CountIdle(cluster, other) - CountIdle(cluster, packed);
    ASSERT_EQ(a.Count(Target()), b.Count(Target()));
    for (const Peer& peer : packed) EXPECT_NE(peer.worker_id(), banned);
    int64_t smallest_used = INT64_MAX, smallest_idle = INT64_MAX;
    for (const auto& [id, room] : cluster.rooms) {
      if (room.devices < devices || id == banned) continue;
      int64_t& smallest = in_use(id) ? smallest_used : smallest_idle;
      smallest = std::min(smallest, room.devices);
    }
    const int64_t expected = smallest_used < INT64_MAX ? smallest_used : smallest_idle;
    if (expected == INT64_MAX) continue;
    ASSERT_EQ(packed.size(), 1u);
    EXPECT_EQ(cluster.rooms.at(packed[0].worker_id()).devices, expected);
    EXPECT_EQ(in_use(packed[0].worker_id()), smallest_used < INT64_MAX);
  }
  EXPECT_GT(spared, 100);
}

TEST(FreeDevices, NothingIsTakenIfThereAreTooFew) {
  RegisterWorker worker;
  worker.set_worker_id("a");
  DeviceOffer offer;
  offer.set_count(3);
  FreeDevices free({{&worker, offer, 3}});
  EXPECT_TRUE(free.Take(4, Target()).empty());
  EXPECT_TRUE(free.Take(1, TargetOf("opaque", "")).empty());
  EXPECT_EQ(free.Take(3, Target()).size(), 1u);
  EXPECT_EQ(free.Count(Target()), 0);
  EXPECT_TRUE(free.Take(1, Target()).empty());
  EXPECT_TRUE(FreeDevices({}).Targets().empty());
}

}  // namespace
}  // namespace xlad::service
