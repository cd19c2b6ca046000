#include "service/placement/free_devices.h"

#include <algorithm>
#include <utility>

#include "proto/device_name.h"

namespace xlad::service {
namespace {

// Appends the devices of one part to `peers`. The mesh positions in `taken` begin with 0. They are moved up by `first`,
// because the devices of the earlier parts have the first `first` positions.
void AppendPart(const std::vector<Peer>& taken, const FreeDevices::Part& part, int32_t first,
                std::vector<Peer>* peers) {
  for (const Peer& peer : taken) {
    auto found = std::find_if(peers->begin(), peers->end(),
                              [&](const Peer& other) { return other.worker_id() == peer.worker_id(); });
    if (found == peers->end()) {
      found = peers->insert(found, peer);
      found->clear_devices();
    }
    PeerDevices* const kind = found->add_kinds();
    kind->set_device_name(peer.device_name());
    kind->set_executable_digest(part.executable_digest);
    for (const int32_t device : peer.devices()) {
      kind->add_devices(first + device);
      found->add_devices(first + device);
    }
  }
}

// Returns the blocks of a part that has `devices` positions from `first` on: those that divide both.
FreeDevices::Blocks BlocksInPart(const FreeDevices::Blocks& blocks, int64_t first, int64_t devices) {
  FreeDevices::Blocks inside;
  for (const int64_t block : blocks) {
    if (first % block == 0 && devices % block == 0) inside.push_back(block);
  }
  return inside;
}

}  // namespace

FreeDevices::FreeDevices(std::vector<WorkerDevices> free) : offers_(std::move(free)) {
  std::map<std::string, int> hosts;
  for (size_t o = 0; o < offers_.size(); ++o) {
    const int next = static_cast<int>(hosts.size());
    hosts_.push_back(hosts.emplace(offers_[o].registration->host(), next).first->second);
    const Target& target = offers_[o].offer.target();
    Pool* pool = const_cast<Pool*>(Find(target));
    if (pool == nullptr) pool = &pools_.emplace_back(Pool{target, 0, {}});
    pool->devices += offers_[o].devices;
    pool->offers[offers_[o].devices].insert(o);
  }
}

const FreeDevices::Pool* FreeDevices::Find(const Target& target) const {
  const auto pool =
      std::find_if(pools_.begin(), pools_.end(), [&](const Pool& p) { return IsSameTarget(p.target, target); });
  return pool == pools_.end() ? nullptr : &*pool;
}

int64_t FreeDevices::Count(const Target& target) const {
  const Pool* pool = Find(target);
  return pool == nullptr ? 0 : pool->devices;
}

std::vector<Target> FreeDevices::Targets() const {
  std::vector<Target> targets;
  for (const Pool& pool : pools_) targets.push_back(pool.target);
  return targets;
}

std::vector<Peer> FreeDevices::Take(int64_t devices, const Target& target, const Blocks& blocks) {
  Pool* pool = const_cast<Pool*>(Find(target));
  if (pool == nullptr || pool->devices < devices) return {};
  std::vector<size_t> largest;
  for (const auto& [count, offers] : pool->offers) {
    largest.insert(largest.end(), offers.begin(), count >= devices ? std::next(offers.begin()) : offers.end());
    if (count >= devices) break;  // The largest worker has enough devices.
  }
  return TakeOffers(largest, devices, blocks, pool);
}

std::vector<Peer> FreeDevices::TakeFrom(const MayHave& may_have, int64_t devices, const Target& target,
                                        const Blocks& blocks) {
  Pool* pool = const_cast<Pool*>(Find(target));
  if (pool == nullptr) return {};
  std::vector<size_t> allowed;
  for (const auto& [count, offers] : pool->offers) {
    for (const size_t offer : offers) {
      if (may_have == nullptr || may_have(offers_[offer].registration->worker_id())) allowed.push_back(offer);
    }
  }
  return TakeOffers(allowed, devices, blocks, pool);
}

std::vector<Peer> FreeDevices::TakePacked(const MayHave& may_have, const MayHave& in_use, int64_t devices,
                                          const Target& target, const Blocks& blocks) {
  Pool* pool = const_cast<Pool*>(Find(target));
  if (pool == nullptr) return {};
  std::vector<size_t> used, idle, all;
  int64_t free_on_used = 0;
  for (const auto& [count, offers] : pool->offers) {
    for (const size_t offer : offers) {
      const std::string& worker = offers_[offer].registration->worker_id();
      if (may_have != nullptr && !may_have(worker)) continue;
      const bool is_used = in_use(worker);
      (is_used ? used : idle).push_back(offer);
      all.push_back(offer);
      if (is_used) free_on_used += count;
    }
  }
  // No placement is better than one on a single worker.
  for (const std::vector<size_t>& offers : {used, idle}) {
    if (const auto one = SmallestFit(offers, devices); !one.empty()) return TakeOffers(one, devices, blocks, pool);
  }
  const DealQuality best = BestDeal(all, devices, blocks);
  std::vector<size_t> few = FewestFit(idle, devices - free_on_used);
  few.insert(few.end(), used.begin(), used.end());
  SortBySize(&few);
  for (const std::vector<size_t>& offers : {used, few}) {
    if (BestDeal(offers, devices, blocks) == best) return TakeOffers(offers, devices, blocks, pool);
  }
  return TakeOffers(all, devices, blocks, pool);
}

DealQuality FreeDevices::BestDeal(const std::vector<size_t>& offers, int64_t devices, const Blocks& blocks) const {
  const std::vector<WorkerRoom> rooms = RoomsOf(offers);
  const std::vector<WorkerShare> shares = DealDevices(rooms, devices, blocks);
  return shares.empty() ? DealQuality() : QualityOf(rooms, shares, blocks);
}

std::vector<WorkerRoom> FreeDevices::RoomsOf(const std::vector<size_t>& offers) const {
  std::vector<WorkerRoom> rooms;
  for (const size_t offer : offers) rooms.push_back({offers_[offer].devices, hosts_[offer]});
  return rooms;
}

void FreeDevices::SortBySize(std::vector<size_t>* offers) const {
  std::sort(offers->begin(), offers->end(), [&](size_t a, size_t b) {
    return offers_[a].devices != offers_[b].devices ? offers_[a].devices > offers_[b].devices : a < b;
  });
}

std::vector<size_t> FreeDevices::SmallestFit(const std::vector<size_t>& offers, int64_t devices) const {
  const auto end = std::find_if(offers.begin(), offers.end(), [&](size_t o) { return offers_[o].devices < devices; });
  if (end == offers.begin()) return {};
  // The first one of equal offers is taken.
  const int64_t size = offers_[*std::prev(end)].devices;
  return {*std::find_if(offers.begin(), end, [&](size_t o) { return offers_[o].devices == size; })};
}

std::vector<size_t> FreeDevices::FewestFit(const std::vector<size_t>& offers, int64_t devices) const {
  std::vector<size_t> few;
  for (auto next = offers.begin(); next != offers.end() && devices > 0; ++next) {
    if (offers_[*next].devices >= devices) {  // The last worker need not be the largest one.
      few.push_back(SmallestFit(std::vector<size_t>(next, offers.end()), devices)[0]);
      return few;
    }
    few.push_back(*next);
    devices -= offers_[*next].devices;
  }
  return few;
}

std::pair<std::vector<int64_t>, int64_t> FreeDevices::Share(const MayHave& may_have, int64_t devices,
                                                            const std::vector<Part>& parts) const {
  std::vector<int64_t> shares;
  std::map<std::string, int64_t> taken;  // By device name.
  for (const Part& part : parts) {
    int64_t free = 0;
    if (may_have == nullptr) {
      free = Count(part.target);
    } else if (const Pool* const pool = Find(part.target); pool != nullptr) {
      for (const auto& [count, offers] : pool->offers) {
        for (const size_t offer : offers) {
          if (may_have(offers_[offer].registration->worker_id())) free += count;
        }
      }
    }
    int64_t& of_name = taken[DeviceName(part.target)];
    const int64_t share = std::max<int64_t>(0, std::min({free, devices, part.most - of_name}));
    of_name += share;
    devices -= share;
    shares.push_back(share);
  }
  return {std::move(shares), devices};
}

int64_t FreeDevices::Count(const std::vector<Part>& parts, const MayHave& may_have) const {
  constexpr int64_t kAll = std::numeric_limits<int64_t>::max();
  return kAll - Share(may_have, kAll, parts).second;
}

std::vector<Peer> FreeDevices::TakeMix(const MayHave& may_have, int64_t devices, const std::vector<Part>& parts,
                                       const Blocks& blocks, const MayHave& in_use) {
  const auto [shares, missing] = Share(may_have, devices, parts);
  std::vector<Peer> peers;
  if (missing > 0) return peers;
  int64_t first = 0;
  for (size_t p = 0; p < parts.size(); ++p) {
    if (shares[p] == 0) continue;
    const Blocks inside = BlocksInPart(blocks, first, shares[p]);
    const Target& target = parts[p].target;
    const std::vector<Peer> taken = in_use != nullptr   ? TakePacked(may_have, in_use, shares[p], target, inside)
                                    : may_have != nullptr ? TakeFrom(may_have, shares[p], target, inside)
                                                          : Take(shares[p], target, inside);
    AppendPart(taken, parts[p], static_cast<int32_t>(first), &peers);
    first += shares[p];
  }
  return peers;
}

std::vector<Peer> FreeDevices::TakeOffers(const std::vector<size_t>& offers, int64_t devices, const Blocks& blocks,
                                          Pool* pool) {
  const std::vector<WorkerShare> dealt = DealDevices(RoomsOf(offers), devices, blocks);
  std::vector<std::pair<const WorkerDevices*, int64_t>> shares;
  for (const WorkerShare& share : dealt) shares.emplace_back(&offers_[offers[share.worker]], share.devices);
  std::vector<Peer> peers = PeersFor(shares);
  for (const WorkerShare& share : dealt) {
    const size_t offer = offers[share.worker];
    int64_t& left = offers_[offer].devices;
    auto known = pool->offers.find(left);
    known->second.erase(offer);
    if (known->second.empty()) pool->offers.erase(known);
    left -= share.devices;
    pool->devices -= share.devices;
    if (left > 0) pool->offers[left].insert(offer);
  }
  return peers;
}

}  // namespace xlad::service
