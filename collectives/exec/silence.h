// Measures for how long the machines of peers have not answered.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/net/network.h"

namespace xlad::collectives {

// The silence of all peers of one task. The kernel reports whether a connection awaits an answer, but not since when.
// The caller therefore asks the kernel about every 100 ms.
class SilenceWatch {
 public:
  using Pair = std::pair<int, int>;  // The local device and the peer device.

  // Begins a round of questions to the kernel.
  void Begin(int64_t now_ns) {
    now_ns_ = now_ns;
    before_ = std::exchange(awaited_since_, {});
    workers_.clear();
  }
  // Records one connection, or attempt to connect, to a device of a worker.
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
  // Returns the silence of each worker in milliseconds, by worker id: the time for which a connection has awaited an
  // answer while no connection to this worker received one. Omits silences shorter than `at_least_ms`.
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
    int64_t since_ns = 0;     // The time at which the longest current wait of a connection began.
    int64_t answered_ns = 0;  // The time of the latest answer on any connection.
  };
  int64_t now_ns_ = 0;
  std::map<Pair, int64_t> before_, awaited_since_;
  std::map<std::string, Worker> workers_;
};

}  // namespace xlad::collectives
