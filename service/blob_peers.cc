#include "service/blob_peers.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace xlad::service {

BlobPeers::Swarm& BlobPeers::Find(const Key& key) {
  const auto [found, is_new] = swarms_.try_emplace(key);
  Swarm& swarm = found->second;
  if (is_new) {
    ForgetEarlierAttempts(key);
    entries_ += swarm.entries;
    used_.push_front(key);
    swarm.used = used_.begin();
  } else {
    used_.splice(used_.begin(), used_, swarm.used);
  }
  return swarm;
}

void BlobPeers::Forget(const Key& key) {
  const auto found = swarms_.find(key);
  entries_ -= found->second.entries;
  used_.erase(found->second.used);
  swarms_.erase(found);
}

// They have ended when a worker of a later one asks.
void BlobPeers::ForgetEarlierAttempts(const Key& key) {
  const auto& [job, attempt, digest] = key;
  std::vector<Key> earlier;
  for (auto at = swarms_.lower_bound({job, std::numeric_limits<int64_t>::min(), ""}); at != swarms_.end(); ++at) {
    if (std::get<0>(at->first) != job || std::get<1>(at->first) >= attempt) break;
    earlier.push_back(at->first);
  }
  for (const Key& old : earlier) Forget(old);
}

// Whether the worker may have readers of one of these blocks.
bool BlobPeers::Holds(const Swarm& swarm, const std::string& worker, int64_t first, int64_t last) {
  for (auto at = swarm.blocks.lower_bound(first); at != swarm.blocks.end() && at->first < last; ++at) {
    const auto is_it = [&](const Holder& holder) { return holder.worker_id == worker; };
    if (std::any_of(at->second.begin(), at->second.end(), is_it)) return true;
  }
  return false;
}

// The first worker that may have one more reader of each of these blocks.
std::string BlobPeers::CommonHolder(const Swarm& swarm, const std::string& reader, int64_t first, int64_t last) {
  const auto holders = swarm.blocks.find(first);
  if (holders == swarm.blocks.end()) return "";
  for (const Holder& candidate : holders->second) {
    if (candidate.worker_id == reader) continue;
    bool has_all = true;
    for (int64_t block = first + 1; block < last && has_all; ++block) {
      const auto others = swarm.blocks.find(block);
      has_all = others != swarm.blocks.end() &&
                std::any_of(others->second.begin(), others->second.end(),
                            [&](const Holder& holder) { return holder.worker_id == candidate.worker_id; });
    }
    if (has_all) return candidate.worker_id;
  }
  return "";
}

std::string BlobPeers::Choose(const Reader& reader, const std::string& digest, int64_t first, int64_t last) {
  const std::lock_guard lock(mutex_);
  const Key key(reader.job_id, reader.attempt, digest);
  Swarm& swarm = Find(key);
  const auto count = [&](int64_t change) {
    swarm.entries += change;
    entries_ += change;
  };
  const auto erase = [&](std::deque<Holder>* holders, const std::string& worker_id) {
    const auto is_it = [&](const Holder& holder) { return holder.worker_id == worker_id; };
    count(-static_cast<int64_t>(std::erase_if(*holders, is_it)));
  };
  for (const std::string& failed : reader.failed) {
    if (std::ssize(swarm.failed) >= options_.max_failed || !swarm.failed.insert(failed).second) continue;
    count(1);
    for (auto& [block, holders] : swarm.blocks) erase(&holders, failed);
  }
  const bool is_alone = !reader.failed.empty() || Holds(swarm, reader.worker_id, first, last);
  const std::string from = is_alone ? "" : CommonHolder(swarm, reader.worker_id, first, last);
  for (int64_t block = first; block < last; ++block) {
    const auto [place, is_new] = swarm.blocks.try_emplace(block);
    std::deque<Holder>& holders = place->second;
    count(is_new ? 1 : 0);
    for (Holder& holder : holders) holder.readers_left -= holder.worker_id == from;
    count(-static_cast<int64_t>(std::erase_if(holders, [](const Holder& holder) { return holder.readers_left <= 0; })));
    if (swarm.failed.contains(reader.worker_id)) continue;
    erase(&holders, reader.worker_id);  // It has read the block before.
    holders.push_back({reader.worker_id, options_.readers_of_each});
    count(1);
  }
  while (entries_ > options_.max_entries) Forget(used_.back());
  return from;
}

int64_t BlobPeers::entries() const {
  const std::lock_guard lock(mutex_);
  return entries_;
}

}  // namespace xlad::service
