// Pairs of workers that both reach the coordinator but not each other, for the time in which they are kept apart. The
// pairs are not in the log: after a restart of the coordinator, a link that is still cut is detected again.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace xlad::service {

class CutLinks {
 public:
  void Add(const std::string& a, const std::string& b, int64_t until_ns) { until_ns_[KeyOf(a, b)] = until_ns; }
  bool empty() const { return until_ns_.empty(); }
  std::vector<std::pair<std::string, std::string>> Pairs() const {
    std::vector<std::pair<std::string, std::string>> pairs;
    for (const auto& [pair, until_ns] : until_ns_) pairs.push_back(pair);
    return pairs;
  }
  // The workers that `worker` does not reach.
  std::vector<std::string> Of(const std::string& worker) const {
    std::vector<std::string> others;
    for (const auto& [pair, until_ns] : until_ns_) {
      if (pair.first == worker) others.push_back(pair.second);
      if (pair.second == worker) others.push_back(pair.first);
    }
    return others;
  }
  // Removes the pairs whose time has expired.
  void OnTick(int64_t now_ns) {
    std::erase_if(until_ns_, [now_ns](const auto& entry) { return entry.second <= now_ns; });
  }

 private:
  using Key = std::pair<std::string, std::string>;
  static Key KeyOf(const std::string& a, const std::string& b) { return a < b ? Key(a, b) : Key(b, a); }
  std::map<Key, int64_t> until_ns_;
};

}  // namespace xlad::service
