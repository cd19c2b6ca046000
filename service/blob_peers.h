// Who reads a block of a blob from whom: if many workers of an attempt need the same bytes, the coordinator sends each
// of them once, and every worker passes on what it has read to a few others
// (docs/decisions/0042-blobs-from-worker-to-worker.md).
#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <tuple>
#include <vector>

namespace xlad::service {

// Thread-safe. Its memory is bounded; nothing in it is needed for correctness.
class BlobPeers {
 public:
  struct Options {
    int readers_of_each = 2;        // The workers that read a block from the same worker.
    // What is remembered: blobs, blocks, pairs of a block and a worker, and failures. The oldest blobs go first.
    int64_t max_entries = 1 << 20;
    int64_t max_failed = 4096;  // Failures of a blob; further ones are not remembered.
  };
  BlobPeers() : BlobPeers(Options()) {}
  explicit BlobPeers(const Options& options) : options_(options) {}

  struct Reader {
    std::string job_id;
    int64_t attempt = 0;
    std::string worker_id;
    // Workers that could not give what they were said to have. They are not named again to readers of this attempt.
    std::vector<std::string> failed;
  };
  // The worker from which `reader` is to read the blocks [first, last) of a blob. It has them, or is about to read
  // them. Empty: from the coordinator. From now on `reader` counts as one that has them. A reader that names a failure,
  // or that counts as one that has a part of them, gets them from the coordinator, so that no two workers ever wait for
  // each other.
  std::string Choose(const Reader& reader, const std::string& digest, int64_t first, int64_t last);

  int64_t entries() const;

 private:
  struct Holder {
    std::string worker_id;
    int readers_left = 0;
  };
  using Key = std::tuple<std::string, int64_t, std::string>;  // Job, attempt, digest.
  struct Swarm {
    std::map<int64_t, std::deque<Holder>> blocks;  // By block: those that may have more readers, the oldest first.
    std::set<std::string> failed;
    int64_t entries = 1;  // Itself, `failed`, the blocks and their holders.
    std::list<Key>::iterator used;
  };
  Swarm& Find(const Key& key);
  void Forget(const Key& key);
  void ForgetEarlierAttempts(const Key& key);
  static bool Holds(const Swarm& swarm, const std::string& worker, int64_t first, int64_t last);
  static std::string CommonHolder(const Swarm& swarm, const std::string& reader, int64_t first, int64_t last);

  const Options options_;
  mutable std::mutex mutex_;
  std::map<Key, Swarm> swarms_;
  std::list<Key> used_;  // The latest first.
  int64_t entries_ = 0;
};

}  // namespace xlad::service
