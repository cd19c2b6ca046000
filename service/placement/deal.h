// Deals the positions of a mesh to workers. Pure functions.
//
// The ranks of an inner axis, which is one of the last axes of a mesh, exchange the most data. Their positions are
// consecutive: in a mesh dp=4,tp=2, the positions of each pair of `tp` are a block of 2. A block is cut if its
// positions are on different hosts or on different workers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "service/log/job.h"

namespace xlad::service {

// The devices of one worker that a job may take.
struct WorkerRoom {
  int64_t devices = 0;
  int host = 0;  // The same number for all workers of a host.
};

// The number of devices that a job takes from a worker.
struct WorkerShare {
  size_t worker = 0;  // An index of the list of workers.
  int64_t devices = 0;
};

// Returns the sizes, in devices, of the blocks of a mesh that are more than one device, the largest first. The first
// one is the whole mesh. In the canonical mode `devices` is less than the number of positions, and a device runs
// several consecutive positions; blocks that do not consist of whole devices are left out.
//
// Example: {8, 4, 2} for dp=2,pp=2,tp=2 on 8 devices.
std::vector<int64_t> InnerBlocks(const Mesh& mesh, int64_t devices);

// Deals `devices` mesh positions to workers, which must be sorted by their number of devices, the largest first.
// Returns the shares in the order of their positions, or an empty list if there are too few devices.
//
// Each of `blocks` must divide the one before it and `devices`. The largest size whose blocks fit without cuts by hosts
// is chosen. Then, among the placements without such cuts, the largest size whose blocks fit without cuts by workers is
// chosen. Blocks of these sizes, and of all smaller ones, are not cut. Within these limits, as few hosts and workers as
// possible are used, and all get as equal shares as possible. The positions of the workers of a host are consecutive.
//
// Example: dp=3,tp=2 on two hosts that have a worker with 4 devices each: {{0, 4}, {1, 2}}.
std::vector<WorkerShare> DealDevices(const std::vector<WorkerRoom>& workers, int64_t devices,
                                     const std::vector<int64_t>& blocks);

// How good a deal is. A greater value is better. Four numbers are compared in this order: the size of the blocks that
// hosts do not cut, the size of the blocks that workers do not cut, the number of hosts and the number of workers.
// Fewer hosts and workers are better. `blocks` is as for DealDevices.
using DealQuality = std::array<int64_t, 4>;
DealQuality QualityOf(const std::vector<WorkerRoom>& workers, const std::vector<WorkerShare>& shares,
                      const std::vector<int64_t>& blocks);

}  // namespace xlad::service
