#include "service/placement/free_devices.h"

#include <gtest/gtest.h>

#include <deque>
#include <random>

#include "absl/strings/str_cat.h"
#include "proto/device_name.h"
#include "service/testing/target.h"

namespace xlad::service {
namespace {

std::string Text(const std::vector<Peer>& peers) {
  std::string text;
  for (const Peer& peer : peers) absl::StrAppend(&text, peer.ShortDebugString(), "\n");
  return text;
}

// What it takes is what PlaceOnWorkers returns for the devices that are left, on random clusters and for random jobs.
TEST(FreeDevices, TakesAsPlaceOnWorkersDoes) {
  std::mt19937_64 random(5);
  const Target targets[] = {TargetOf("cpu", "znver3"), TargetOf("cpu", "znver5"), TargetOf("opaque", "")};
  for (int round = 0; round < 200; ++round) {
    std::deque<RegisterWorker> workers;
    std::vector<WorkerDevices> left;
    const int count = static_cast<int>(random() % 13);
    for (int w = 0; w < count; ++w) {
      RegisterWorker& worker = workers.emplace_back();
      worker.set_worker_id(absl::StrCat("w", w));
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
      const std::vector<Peer> expected = PlaceOnWorkers(allowed, devices, target);
      const std::vector<Peer> taken =
          restricted ? free.TakeFrom([&](const std::string& id) { return id != banned; }, devices, target)
                     : free.Take(devices, target);
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
