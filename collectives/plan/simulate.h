// The time of schedules on a network, by events: every message takes every link of its route for its bytes over the
// link's rate, in the order in which messages reach the link, and is forwarded as soon as its first byte has arrived.
//
// The simulated ranks run the operations that a real communicator runs: channels are independent, a send waits for a
// free slot, a receive for its message. Data are reduced as they arrive, because the memory of chips is much faster
// than their links; local copies take time. The simulation is pure: equal arguments give equal results on all machines.
#pragma once

#include <functional>
#include <vector>

#include "collectives/plan/network.h"
#include "collectives/plan/plan.h"

namespace xlad::collectives {

struct SimulateOptions {
  int slots = 8;                        // The slots of each channel between two ranks.
  double message_us = 0;                // The time in which a channel starts a message.
  double memory_gigabytes_per_s = 800;  // The rate of local copies, counting reads and writes.
};

struct SimulatedRun {
  double time_us = 0;  // Until the last rank has finished.
  int64_t messages = 0;
  double link_bytes = 0;        // The sum over all links.
  std::vector<double> busy_us;  // By link of the network.
};

// `schedule_of(rank)` is called once for each rank, in order; only a compact form of one schedule after the other is
// kept, so that 8,960 ranks fit in memory. InvalidArgument if the network has fewer ranks; Unavailable if broken links
// separate ranks that exchange messages; Internal if the ranks deadlock.
absl::StatusOr<SimulatedRun> Simulate(const CollectiveSpec& spec, const Network& network,
                                      const std::function<absl::StatusOr<Schedule>(int rank)>& schedule_of,
                                      const SimulateOptions& options = {});
absl::StatusOr<SimulatedRun> Simulate(const CollectivePlan& plan, const CollectiveSpec& spec, const Network& network,
                                      const SimulateOptions& options = {});

// As Simulate, but only rank 0 is simulated and stands for all: what it sends to the rank at a distance arrives when it
// receives from the rank at the opposite distance. The result is that of Simulate if every rank of the plan does the
// same in its own coordinates, as in `ring` on one dimension and in `ring_2d` and `ring_3d` on the grid of the network,
// with parts of equal size; `direct` sends the same bytes over every link. In dimensions of two ranks both directions
// are one link, and the order of simultaneous messages on it may differ. busy_us has the links that leave rank 0 only.
// Needs a network that IsSymmetric (InvalidArgument); Internal if rank 0 receives what it does not send.
absl::StatusOr<SimulatedRun> SimulateRankZero(const CollectivePlan& plan, const CollectiveSpec& spec,
                                              const Network& network, const SimulateOptions& options = {});

// The least time in which the links of the rank with the fewest links can carry what any algorithm must send, in
// microseconds: the bandwidth bound without latency.
double BandwidthBoundUs(const CollectiveSpec& spec, const Network& network);

// The fastest of some plans for the network as it is, by simulation: rings along all directions of its grid with
// several numbers of chunks, and single rings. Used to choose parameters, and to plan again after a link has broken.
absl::StatusOr<CollectivePlan> PlanFor(const CollectiveSpec& spec, const Network& network);

}  // namespace xlad::collectives
