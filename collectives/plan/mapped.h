// The algorithms for ranks that map each other's memory: processes of one host, devices with peer access.
//
//   mapped_one_shot  Every rank copies its input to its scratch, and the others read it there. It has one round, and is
//                    best for small data.
//   mapped_slots     Like mapped_one_shot, but in chunks, through two slots that are used in turn and stay in the
//                    cache. An AllReduce has two phases: rank r reduces part r of a chunk, and the others copy the
//                    result.
//   mapped_windows   The ranks read and write each other's inputs and outputs directly. In an AllReduce, rank r reduces
//                    part r of all inputs and writes it to all outputs ("single pass"; Hashmi et al., "Designing
//                    efficient shared address space reduction collectives for multi-/many-cores", IPDPS 2018).
//
// Contributions are reduced in the order of the ranks, or as a balanced tree if the spec is canonical, and rounded
// once. All three algorithms therefore compute the same bits on all ranks. All functions are pure and thread-safe.
#pragma once

#include "collectives/plan/plan.h"

namespace xlad::collectives {

inline constexpr char kMappedOneShot[] = "mapped_one_shot";
inline constexpr char kMappedSlots[] = "mapped_slots";
inline constexpr char kMappedWindows[] = "mapped_windows";

// Whether the plan uses one of these algorithms.
bool IsMapped(const CollectivePlan& plan);

// Returns the number of elements of the largest input of a rank.
int64_t LargestInput(const CollectiveSpec& spec);

// Returns the number of elements of scratch that mapped_slots needs with that many chunks.
int64_t MappedSlotsScratch(const CollectiveSpec& spec, int64_t chunks);

}  // namespace xlad::collectives
