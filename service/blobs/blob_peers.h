// Decides whether a worker reads a block of a blob from another worker or from the coordinator. If many workers of an
// attempt need the same bytes, the coordinator sends each block once, and every worker passes the blocks that it has
// read to at most `readers_of_each` others (docs/decisions/0042-blobs-from-worker-to-worker.md).
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

#include "base/clock.h"

namespace xlad::service {

// Thread-safe. Its memory is bounded. Entries may be dropped without loss of correctness.
class BlobPeers {
 public:
  struct Options {
    int readers_of_each = 2;  // The maximum number of workers that read a block from one worker.
    // The limit on the number of entries: blobs, blocks, pairs of a block and its reader, and failures. The least
    // recently used blobs are dropped first.
    int64_t max_entries = 1 << 20;
    int64_t max_failed = 4096;  // Failed workers per blob; further ones are not recorded.
    // How long a worker is not returned after a failure. The pause doubles with each further failure: a busy worker
    // recovers soon, but a broken one does not.
    int64_t failure_pause_ms = 10'000;
    const Clock* clock = &RealClock();
  };
  BlobPeers() : BlobPeers(Options()) {}
  explicit BlobPeers(const Options& options) : options_(options) {}

  struct Reader {
    std::string job_id;
    int64_t attempt = 0;
    std::string worker_id;
    // Workers from which the reader could not read. During the pause after the failure, Choose does not return them to
    // readers of this attempt. Later it returns such a worker only for blocks that the worker asked for after the
    // pause.
    std::vector<std::string> failed;
  };
  // Returns the worker from which `reader` must read the blocks [first, last) of a blob, or "" if it must read them
  // from the coordinator. The returned worker has the blocks or is about to read them. From now on, `reader` counts as
  // a holder of the blocks, unless it is in the pause after a failure. A reader that reports a failure, or that has
  // asked for some of the blocks before, reads from the coordinator: the holders may be waiting for this reader, and
  // two workers must never wait for each other.
  std::string Choose(const Reader& reader, const std::string& digest, int64_t first, int64_t last);

  int64_t entries() const;

 private:
  struct Holder {
    std::string worker_id;
    int readers_left = 0;
  };
  using Key = std::tuple<std::string, int64_t, std::string>;  // Job id, attempt, digest.
  struct Block {
    std::deque<Holder> holders;   // The holders that may have more readers, oldest first.
    std::set<std::string> asked;  // All workers that have asked for the block.
  };
  struct Failures {
    int64_t pause_ms = 0;
    int64_t until_ns = 0;  // The end of the pause.
  };
  struct Swarm {
    std::map<int64_t, Block> blocks;
    std::map<std::string, Failures> failures;  // By worker.
    // The number of entries: the blob, its failures, its blocks, and all workers in the `asked` of blocks.
    int64_t entries = 1;
    std::list<Key>::iterator used;
  };
  Swarm& Find(const Key& key);
  void Forget(const Key& key);
  void ForgetEarlierAttempts(const Key& key);
  void NoteFailures(const std::vector<std::string>& failed, Swarm* swarm);
  static void Erase(const std::string& worker_id, std::deque<Holder>* holders);
  static bool HasAsked(const Swarm& swarm, const std::string& worker, int64_t first, int64_t last);
  static std::string CommonHolder(const Swarm& swarm, const std::string& reader, int64_t first, int64_t last);

  const Options options_;
  mutable std::mutex mutex_;
  std::map<Key, Swarm> swarms_;
  std::list<Key> used_;  // The most recently used first.
  int64_t entries_ = 0;
};

}  // namespace xlad::service
