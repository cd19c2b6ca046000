#include "service/blobs/blob_peers.h"

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

// Called when a worker of a new attempt asks for a blob. The earlier attempts of the job have ended by then.
void BlobPeers::ForgetEarlierAttempts(const Key& key) {
  const auto& [job, attempt, digest] = key;
  std::vector<Key> earlier;
  for (auto at = swarms_.lower_bound({job, std::numeric_limits<int64_t>::min(), ""}); at != swarms_.end(); ++at) {
    if (std::get<0>(at->first) != job || std::get<1>(at->first) >= attempt) break;
    earlier.push_back(at->first);
  }
  for (const Key& old : earlier) Forget(old);
}

// Whether the worker has asked for at least one of these blocks.
bool BlobPeers::HasAsked(const Swarm& swarm, const std::string& worker, int64_t first, int64_t last) {
  for (auto at = swarm.blocks.lower_bound(first); at != swarm.blocks.end() && at->first < last; ++at) {
    if (at->second.asked.contains(worker)) return true;
  }
  return false;
}

// Returns the first worker that may have one more reader for all of these blocks, or "" if there is none.
std::string BlobPeers::CommonHolder(const Swarm& swarm, const std::string& reader, int64_t first, int64_t last) {
  const auto start = swarm.blocks.find(first);
  if (start == swarm.blocks.end()) return "";
  for (const Holder& candidate : start->second.holders) {
    if (candidate.worker_id == reader) continue;
    bool has_all = true;
    for (int64_t block = first + 1; block < last && has_all; ++block) {
      const auto other = swarm.blocks.find(block);
      has_all = other != swarm.blocks.end() &&
                std::any_of(other->second.holders.begin(), other->second.holders.end(),
                            [&](const Holder& holder) { return holder.worker_id == candidate.worker_id; });
    }
    if (has_all) return candidate.worker_id;
  }
  return "";
}

void BlobPeers::Erase(const std::string& worker_id, std::deque<Holder>* holders) {
  std::erase_if(*holders, [&](const Holder& holder) { return holder.worker_id == worker_id; });
}

void BlobPeers::NoteFailures(const std::vector<std::string>& failed, Swarm* swarm) {
  const int64_t now_ns = options_.clock->NowNs();
  for (const std::string& worker_id : failed) {
    if (std::ssize(swarm->failures) >= options_.max_failed && !swarm->failures.contains(worker_id)) continue;
    const auto [found, is_new] = swarm->failures.try_emplace(worker_id);
    Failures& failures = found->second;
    swarm->entries += is_new ? 1 : 0;
    entries_ += is_new ? 1 : 0;
    if (now_ns < failures.until_ns) continue;  // Another reader has reported the same failure.
    failures.pause_ms = is_new ? options_.failure_pause_ms : 2 * failures.pause_ms;
    failures.until_ns = now_ns + failures.pause_ms * kNsPerMs;
    for (auto& [number, block] : swarm->blocks) Erase(worker_id, &block.holders);
  }
}

std::string BlobPeers::Choose(const Reader& reader, const std::string& digest, int64_t first, int64_t last) {
  const std::lock_guard lock(mutex_);
  const Key key(reader.job_id, reader.attempt, digest);
  Swarm& swarm = Find(key);
  const auto count = [&](int64_t change) {
    swarm.entries += change;
    entries_ += change;
  };
  NoteFailures(reader.failed, &swarm);
  const auto own_failures = swarm.failures.find(reader.worker_id);
  const bool is_paused =
      own_failures != swarm.failures.end() && options_.clock->NowNs() < own_failures->second.until_ns;
  const bool is_alone = !reader.failed.empty() || HasAsked(swarm, reader.worker_id, first, last);
  const std::string from = is_alone ? "" : CommonHolder(swarm, reader.worker_id, first, last);
  for (int64_t number = first; number < last; ++number) {
    const auto [place, is_new] = swarm.blocks.try_emplace(number);
    Block& block = place->second;
    count(is_new ? 1 : 0);
    count(block.asked.insert(reader.worker_id).second ? 1 : 0);
    for (Holder& holder : block.holders) holder.readers_left -= holder.worker_id == from;
    std::erase_if(block.holders, [](const Holder& holder) { return holder.readers_left <= 0; });
    if (is_paused) continue;
    Erase(reader.worker_id, &block.holders);  // The worker may already be listed because it has read the block before.
    block.holders.push_back({reader.worker_id, options_.readers_of_each});
  }
  while (entries_ > options_.max_entries) Forget(used_.back());
  return from;
}

int64_t BlobPeers::entries() const {
  const std::lock_guard lock(mutex_);
  return entries_;
}

}  // namespace xlad::service
