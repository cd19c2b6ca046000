#include "service/placement/deal.h"

#include <algorithm>
#include <numeric>
#include <set>

namespace xlad::service {
namespace {

// A holder of units, and how many it gets.
struct Dealt {
  size_t holder = 0;
  int64_t units = 0;
};

// Deals `units` as equally as possible to as few holders as possible. `room` has the number of units for which each
// holder has room, together at least `units`. Holders with the most room come first; among equal holders, the first in
// the list.
std::vector<Dealt> DealToFewest(const std::vector<int64_t>& room, int64_t units) {
  std::vector<Dealt> dealt;
  for (size_t h = 0; h < room.size(); ++h) {
    if (room[h] > 0) dealt.push_back({h, 0});
  }
  // All holders that have room for everything are equally good.
  std::stable_sort(dealt.begin(), dealt.end(), [&](const Dealt& a, const Dealt& b) {
    return std::min(room[a.holder], units) > std::min(room[b.holder], units);
  });
  size_t holders = 0;
  for (int64_t sum = 0; sum < units; ++holders) sum += room[dealt[holders].holder];
  dealt.resize(holders);
  while (units > 0) {
    for (Dealt& to : dealt) {
      if (units == 0 || to.units == room[to.holder]) continue;
      ++to.units;
      --units;
    }
  }
  return dealt;
}

// The workers of one host, as indices, in their order.
using Hosts = std::vector<std::vector<size_t>>;

// Returns the hosts in the order of their first workers.
Hosts HostsOf(const std::vector<WorkerRoom>& workers) {
  int last = -1;
  for (const WorkerRoom& worker : workers) last = std::max(last, worker.host);
  std::vector<size_t> index(last + 1, workers.size());
  Hosts hosts;
  for (size_t w = 0; w < workers.size(); ++w) {
    size_t& host = index[workers[w].host];
    if (host == workers.size()) {
      host = hosts.size();
      hosts.emplace_back();
    }
    hosts[host].push_back(w);
  }
  return hosts;
}

// For each of these workers, how many units of `unit` devices it has room for.
std::vector<int64_t> RoomFor(const std::vector<WorkerRoom>& workers, const std::vector<size_t>& of, int64_t unit) {
  std::vector<int64_t> room;
  for (const size_t w : of) room.push_back(workers[w].devices / unit);
  return room;
}

// For each host, how many blocks of `block` devices it has room for, if each block consists of units that must not be
// divided among workers.
std::vector<int64_t> BlocksOf(const std::vector<WorkerRoom>& workers, const Hosts& hosts, int64_t block, int64_t unit) {
  std::vector<int64_t> blocks;
  for (const std::vector<size_t>& host : hosts) {
    int64_t units = 0;
    for (const size_t w : host) units += workers[w].devices / unit;
    blocks.push_back(units / (block / unit));
  }
  return blocks;
}

int64_t Sum(const std::vector<int64_t>& values) { return std::accumulate(values.begin(), values.end(), int64_t{0}); }

// Deals units to workers without regard to hosts, and then makes the positions of each host consecutive.
std::vector<WorkerShare> DealToWorkers(const std::vector<WorkerRoom>& workers, int64_t devices, int64_t unit) {
  std::vector<size_t> all(workers.size());
  std::iota(all.begin(), all.end(), 0);
  std::vector<WorkerRoom> used;
  std::vector<WorkerShare> dealt, shares;
  for (const Dealt& to : DealToFewest(RoomFor(workers, all, unit), devices / unit)) {
    used.push_back(workers[to.holder]);
    dealt.push_back({to.holder, to.units * unit});
  }
  for (const std::vector<size_t>& host : HostsOf(used)) {
    for (const size_t w : host) shares.push_back(dealt[w]);
  }
  return shares;
}

}  // namespace

std::vector<int64_t> InnerBlocks(const Mesh& mesh, int64_t devices) {
  std::vector<int64_t> blocks;
  const int64_t shards = std::max<int64_t>(1, DeviceCount(mesh) / devices);  // Per device.
  int64_t positions = 1;
  for (int a = mesh.size() - 1; a >= 0; --a) {  // The last axis varies fastest.
    positions *= mesh[a].size();
    const int64_t last = blocks.empty() ? 1 : blocks.back();
    if (positions % shards == 0 && positions / shards > last) blocks.push_back(positions / shards);
  }
  std::reverse(blocks.begin(), blocks.end());
  return blocks;
}

std::vector<WorkerShare> DealDevices(const std::vector<WorkerRoom>& workers, int64_t devices,
                                     const std::vector<int64_t>& blocks) {
  const Hosts hosts = HostsOf(workers);
  if (devices < 1 || Sum(BlocksOf(workers, hosts, 1, 1)) < devices) return {};
  std::vector<int64_t> sizes = blocks;
  sizes.push_back(1);  // With blocks of one device nothing is cut, so the searches below end.
  const auto of_hosts = std::find_if(sizes.begin(), sizes.end(), [&](int64_t block) {
    return Sum(BlocksOf(workers, hosts, block, 1)) >= devices / block;
  });
  const int64_t block = *of_hosts;
  const int64_t unit = *std::find_if(of_hosts, sizes.end(), [&](int64_t size) {
    return Sum(BlocksOf(workers, hosts, block, size)) >= devices / block;
  });
  if (unit == block) return DealToWorkers(workers, devices, unit);
  std::vector<WorkerShare> shares;
  for (const Dealt& on : DealToFewest(BlocksOf(workers, hosts, block, unit), devices / block)) {
    const std::vector<size_t>& host = hosts[on.holder];
    for (const Dealt& to : DealToFewest(RoomFor(workers, host, unit), on.units * (block / unit))) {
      shares.push_back({host[to.holder], to.units * unit});
    }
  }
  return shares;
}

DealQuality QualityOf(const std::vector<WorkerRoom>& workers, const std::vector<WorkerShare>& shares,
                      const std::vector<int64_t>& blocks) {
  std::vector<int64_t> host_ends, worker_ends;  // The positions at which another host or another worker begins.
  std::set<int> hosts;
  int64_t position = 0;
  for (size_t s = 0; s < shares.size(); ++s) {
    const int host = workers[shares[s].worker].host;
    if (s > 0) worker_ends.push_back(position);
    if (s > 0 && host != workers[shares[s - 1].worker].host) host_ends.push_back(position);
    hosts.insert(host);
    position += shares[s].devices;
  }
  const auto largest_uncut = [&](const std::vector<int64_t>& ends) {
    const auto found = std::find_if(blocks.begin(), blocks.end(), [&](int64_t block) {
      return std::all_of(ends.begin(), ends.end(), [&](int64_t end) { return end % block == 0; });
    });
    return found == blocks.end() ? int64_t{1} : *found;
  };
  return {largest_uncut(host_ends), largest_uncut(worker_ends), -std::ssize(hosts), -std::ssize(shares)};
}

}  // namespace xlad::service
