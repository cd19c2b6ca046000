// For how long the machines of peers have answered nothing.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/network.h"

namespace xlad::collectives {

// The silence of all peers of one task. The kernel does not say since when an answer is awaited; so this is asked again
// and again, about every 100 ms.
class SilenceWatch {
 public:
  using Pair = std::pair<int, int>;  // Local device, peer device.

  // Begins a round.
  void Begin(int64_t now_ns) {
    now_ns_ = now_ns;
    before_ = std::exchange(awaited_since_, {});
    workers_.clear();
  }
  // One connection, or attempt to connect, to a device of this worker.
  void Note(Pair pair, const std::string& worker_id, const Answers& answers) {
    const int64_t answered_ns = now_ns_ - std::min(answers.last_ms_ago, now_ns_ / kNsPerMs) * kNsPerMs;
    Worker& worker = workers_.try_emplace(worker_id, Worker{now_ns_, answered_ns}).first->second;
    worker.answered_ns = std::max(worker.answered_ns, answered_ns);
    if (!answers.awaited) return;
    const auto found = before_.find(pair);
    const int64_t since_ns = std::max(found == before_.end() ? now_ns_ : found->second, answered_ns);
    awaited_since_[pair] = since_ns;
    worker.since_ns = std::min(worker.since_ns, since_ns);
  }
  // By worker: the milliseconds for which something has been awaited and no connection has got an answer. Only silences
  // of at least this long.
  std::map<std::string, int64_t> Silent(int64_t at_least_ms) const {
    std::map<std::string, int64_t> silent;
    for (const auto& [id, worker] : workers_) {
      const int64_t ms = (now_ns_ - std::max(worker.since_ns, worker.answered_ns)) / kNsPerMs;
      if (ms >= at_least_ms) silent[id] = ms;
    }
    return silent;
  }

 private:
  struct Worker {
    int64_t since_ns = 0;     // Since when the connection that has waited longest waits.
    int64_t answered_ns = 0;  // The latest answer on any connection.
  };
  int64_t now_ns_ = 0;
  std::map<Pair, int64_t> before_, awaited_since_;
  std::map<std::string, Worker> workers_;
};

}  // namespace xlad::collectives
