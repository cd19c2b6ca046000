// Schedules for ranks that map each other's memory: processes of one host, devices with peer access.
//
//   mapped_one_shot  Every rank copies its input to its scratch, and the others read it there. One round; for small
//   data. mapped_slots     The same in chunks, through two slots that are used in turn and stay in the cache. An
//   AllReduce
//                    has two phases: rank r reduces part r of a chunk, and the others copy the result.
//   mapped_windows   The ranks read and write each other's inputs and outputs: an AllReduce reads and writes all data
//                    once, rank r part r for all ("single pass"; Jain et al., "Framework for scalable intra-node
//                    collective operations using shared memory", SC 2018, and Peng et al., "Optimizing MPI Collectives
//                    on Shared Memory Multi-Cores", SC 2023, have the same idea with copies).
//
// Contributions are reduced in order of rank and rounded once, so that all three have the same bits on all ranks.
// All functions are pure and thread-safe.
#pragma once

#include "collectives/plan/plan.h"

namespace xlad::collectives {

inline constexpr char kMappedOneShot[] = "mapped_one_shot";
inline constexpr char kMappedSlots[] = "mapped_slots";
inline constexpr char kMappedWindows[] = "mapped_windows";

bool IsMapped(const CollectivePlan& plan);

// The schedule of one rank by one of these algorithms; `plan.chunks` is the number of chunks of mapped_slots. The spec
// has one operand. InvalidArgument if it has sizes that differ between ranks (`sizes`).
absl::StatusOr<Schedule> BuildMappedSchedule(const CollectivePlan& plan, const CollectiveSpec& spec, int rank);

// The elements of scratch that mapped_slots needs with that many chunks.
int64_t MappedSlotsScratch(const CollectiveSpec& spec, int64_t chunks);

}  // namespace xlad::collectives
