// Predicts the time of schedules by a discrete-event simulation of a network. A message occupies each link of its route
// for the time that its bytes take at the link's rate. A link serves messages in the order in which they reach it. It
// forwards a message as soon as the message's first byte has arrived.
//
// The simulated ranks run the operations that a real communicator runs. Channels are independent. A send waits for a
// free slot, and a receive for its message. Data is reduced as it arrives, because the memory of chips is much faster
// than their links. Operations without a peer (copies, local reductions, zeros) take the time of a local copy. The
// simulation is pure: its result depends only on its arguments.
#pragma once

#include <functional>
#include <vector>

#include "collectives/plan/network.h"
#include "collectives/plan/plan.h"

namespace xlad::collectives {

struct SimulateOptions {
  int slots = 8;                        // The number of slots of each channel between two ranks.
  double message_us = 0;                // The time that a channel takes to start a message.
  double memory_gigabytes_per_s = 800;  // The rate of local copies, counting reads and writes.
  // Whether the messages that a rank of `ring_2d` or `ring_3d` sends in one step are one message, as if the hardware
  // moved strided data. Otherwise, each range of contiguous elements is a message.
  bool moves_strided_data = false;
};

struct SimulatedRun {
  double time_us = 0;  // The time until the last rank has finished.
  int64_t messages = 0;         // The number of messages and signals of all ranks.
  double link_bytes = 0;        // The sum of the bytes over all links.
  std::vector<double> busy_us;  // The time during which each link of the network is busy.
};

// `schedule_of(rank)` is called once for each rank, in order. Only a compact form of each schedule is kept, so
// schedules of 8,960 ranks fit in memory. InvalidArgument if the network has fewer ranks than the spec, or if an
// operation accesses a window. Unavailable if broken links separate ranks that exchange messages. Internal if the ranks
// deadlock. Errors of `schedule_of` are returned.
absl::StatusOr<SimulatedRun> Simulate(const CollectiveSpec& spec, const Network& network,
                                      const std::function<absl::StatusOr<Schedule>(int rank)>& schedule_of,
                                      const SimulateOptions& options = {});
absl::StatusOr<SimulatedRun> Simulate(const CollectivePlan& plan, const CollectiveSpec& spec, const Network& network,
                                      const SimulateOptions& options = {});

// Like Simulate, but only rank 0 is simulated and represents all ranks. A message that rank 0 sends to the rank at some
// distance arrives when rank 0 receives from the rank at the opposite distance. The result is that of Simulate if all
// ranks do the same in coordinates relative to themselves and parts have equal sizes: for `ring` on one dimension, and
// for `ring_2d` and `ring_3d` on the grid of the network. For `direct`, the bytes on each link are the same, but the
// order of messages may differ. In a dimension of two ranks, both directions are one link, and the order of
// simultaneous messages on it may differ. Only the elements of busy_us for links that leave rank 0 are set.
// InvalidArgument unless the network IsSymmetric and has as many ranks as the spec. Internal if rank 0 receives a
// message that it does not send.
absl::StatusOr<SimulatedRun> SimulateRankZero(const CollectivePlan& plan, const CollectiveSpec& spec,
                                              const Network& network, const SimulateOptions& options = {});

// Returns a lower bound for the time of any algorithm, in microseconds, without latency. It is the longest time that a
// rank needs for the bytes that it must send or receive at its InjectionRate, or the time that all ranks together need
// for all bytes that must be sent, whichever is longer.
double BandwidthBoundUs(const CollectiveSpec& spec, const Network& network);

// Returns the fastest of several plans on the network, with its broken links and chips, by simulation. The plans are:
//   - If no chip is broken: rings along all directions of a grid of 2 or 3 dimensions, with 1, 2 and 6 chunks.
//   - If chips are broken: `ring_2d` on the grid that the algorithm chooses, or `halving_doubling` if there are more
//     than 256 ranks and one side of this grid is longer than four times the other. For up to 256 ranks, also `ring` in
//     the order of Network::RingOrder and, if links of other chips are broken, of Network::SnakeOrder.
//   - `swing`, `pat`, and, for up to 64 ranks, `ring`, `halving_doubling` and `direct`, all with default parameters.
//   - If none of these can run the spec: `binomial`, `recursive_doubling` and, for up to 1,024 ranks or if each rank
//     sends to at most one other, `direct`.
// If only one of them can run the spec, it is returned without a simulation, which can take seconds.
// InvalidArgument if none of the plans can run the spec. Other errors are those of Simulate.
absl::StatusOr<CollectivePlan> PlanFor(const CollectiveSpec& spec, const Network& network);

}  // namespace xlad::collectives
