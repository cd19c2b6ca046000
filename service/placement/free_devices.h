// The free devices of all workers, from which jobs take some one after the other. Pure data.
//
// Taking devices costs as much as the job has workers, however many workers there are.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "service/placement/placement.h"

namespace xlad::service {

class FreeDevices {
 public:
  // `free`: every offer in the cluster that has free devices, with their number.
  explicit FreeDevices(std::vector<WorkerDevices> free);

  // The number of free devices that run code for `target`.
  int64_t Count(const Target& target) const;
  // The targets of the devices, in the order of the workers.
  std::vector<Target> Targets() const;
  // Takes devices as PlaceOnWorkers does. Returns an empty list, and takes nothing, if there are too few.
  std::vector<Peer> Take(int64_t devices, const Target& target);
  // The same, from some of the workers alone.
  using MayHave = std::function<bool(const std::string& worker_id)>;
  std::vector<Peer> TakeFrom(const MayHave& may_have, int64_t devices, const Target& target);

  // Devices of one target in a job that runs on several.
  struct Part {
    Target target;
    std::string executable_digest;
    int64_t most = std::numeric_limits<int64_t>::max();  // Limits all parts with this name together.
  };
  // The number of free devices that a job may take from all parts.
  int64_t Count(const std::vector<Part>& parts) const;
  // Takes devices from the parts, as many as possible from the first ones, which get the lowest mesh positions. Each
  // worker is one peer. An empty list if there are too few.
  std::vector<Peer> TakeMix(const MayHave& may_have, int64_t devices, const std::vector<Part>& parts);

 private:
  // The devices that run code for one target.
  struct Pool {
    Target target;
    int64_t devices = 0;
    // The offers with free devices, by their number: the larger ones first, then in the order of the workers.
    std::map<int64_t, std::set<size_t>, std::greater<>> offers;
  };
  const Pool* Find(const Target& target) const;
  std::vector<Peer> TakeOffers(const std::vector<size_t>& offers, int64_t devices, Pool* pool);
  // By part: how many of `devices` the job takes from it, and the number that is still missing.
  std::pair<std::vector<int64_t>, int64_t> Share(const MayHave& may_have, int64_t devices,
                                                 const std::vector<Part>& parts) const;

  std::vector<WorkerDevices> offers_;
  std::vector<Pool> pools_;
};

}  // namespace xlad::service
