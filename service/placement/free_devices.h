// The free devices of all workers, from which one job after another takes devices. Pure data.
//
// The time to take devices does not grow with the size of the cluster if a job fits on one worker. It grows with the
// number of workers that have free devices if a job needs several workers, because their hosts are compared, or may
// have only some workers, or is packed.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "service/placement/deal.h"
#include "service/placement/placement.h"

namespace xlad::service {

class FreeDevices {
 public:
  // `free` has every offer in the cluster that has free devices, with the number of its free devices.
  explicit FreeDevices(std::vector<WorkerDevices> free);

  // The number of free devices that run code for `target`.
  int64_t Count(const Target& target) const;
  // The targets of the devices, in the order in which the workers first offer them.
  std::vector<Target> Targets() const;
  // The sizes of blocks that DealDevices should not cut (service/placement/deal.h).
  using Blocks = std::vector<int64_t>;
  // Takes devices that run code for `target`, as DealDevices deals them. Returns an empty list, and takes nothing, if
  // there are too few.
  //
  // Example: 6 devices of free workers a (4), b (4), c (2): a gets positions 0, 1, 2 and b gets 3, 4, 5. If pairs of
  // positions are blocks, a gets 0, 1, 2, 3 and b gets 4, 5.
  std::vector<Peer> Take(int64_t devices, const Target& target, const Blocks& blocks = {});
  // Whether devices may be taken from a worker.
  using MayHave = std::function<bool(const std::string& worker_id)>;
  // Like Take, but only from workers for which `may_have` returns true; if it is null, from all.
  std::vector<Peer> TakeFrom(const MayHave& may_have, int64_t devices, const Target& target, const Blocks& blocks = {});
  // Like TakeFrom, but keeps workers idle if it can. Among the placements that are as good as that of TakeFrom
  // (QualityOf), it prefers one on workers for which `in_use` returns true, and then one that needs the fewest other
  // workers. A job that fits on one worker gets the worker with the fewest free devices that suffice.
  //
  // Example: workers a (2 free, in use), b (4), c (8): one device is taken from a, and 3 devices from b.
  std::vector<Peer> TakePacked(const MayHave& may_have, const MayHave& in_use, int64_t devices, const Target& target,
                               const Blocks& blocks);

  // The devices of one target in a job that runs on several targets.
  struct Part {
    Target target;
    std::string executable_digest;
    // The limit on the total number of devices from all parts with the same device name.
    int64_t most = std::numeric_limits<int64_t>::max();
  };
  // The number of free devices that a job may take from all parts. If `may_have` is null, it may have all workers.
  int64_t Count(const std::vector<Part>& parts, const MayHave& may_have = nullptr) const;
  // Takes devices from the parts, in their order, as many as possible from each. Devices of the first part get the
  // lowest mesh positions. The result has one peer per worker. It is empty if there are too few devices. If `may_have`
  // is null, the job may have all workers. Blocks that are partly in one part and partly in another one are cut. If
  // `in_use` is not null, the devices of each part are taken as by TakePacked.
  std::vector<Peer> TakeMix(const MayHave& may_have, int64_t devices, const std::vector<Part>& parts,
                            const Blocks& blocks, const MayHave& in_use);

 private:
  // The devices that run code for one target.
  struct Pool {
    Target target;
    int64_t devices = 0;
    // Offers, as indices into offers_, by their number of free devices: the largest number first, then in the order of
    // the workers.
    std::map<int64_t, std::set<size_t>, std::greater<>> offers;
  };
  const Pool* Find(const Target& target) const;
  // In the following, lists of offers are indices into offers_, sorted by the number of free devices, the largest
  // first.
  std::vector<Peer> TakeOffers(const std::vector<size_t>& offers, int64_t devices, const Blocks& blocks, Pool* pool);
  // The best deal of these offers, or the worst quality if they have too few devices.
  DealQuality BestDeal(const std::vector<size_t>& offers, int64_t devices, const Blocks& blocks) const;
  std::vector<WorkerRoom> RoomsOf(const std::vector<size_t>& offers) const;
  void SortBySize(std::vector<size_t>* offers) const;
  // The offer with the fewest free devices of those that have enough, or none.
  std::vector<size_t> SmallestFit(const std::vector<size_t>& offers, int64_t devices) const;
  // As few of the offers as possible that have enough devices together; all if there are too few.
  std::vector<size_t> FewestFit(const std::vector<size_t>& offers, int64_t devices) const;
  // Returns how many of `devices` the job takes from each part, and how many devices are still missing.
  std::pair<std::vector<int64_t>, int64_t> Share(const MayHave& may_have, int64_t devices,
                                                 const std::vector<Part>& parts) const;

  std::vector<WorkerDevices> offers_;
  std::vector<int> hosts_;  // The host of each offer: equal numbers are equal hosts.
  std::vector<Pool> pools_;
};

}  // namespace xlad::service
