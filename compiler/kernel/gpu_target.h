// Targets whose kernels are grids of threads.
#pragma once

#include <cstdint>

#include "proto/executable.pb.h"

namespace xlad::compiler {

// The kind of device that runs GPU code on the CPU (runtime/devices/gpu_sim).
inline constexpr char kGpuSim[] = "gpu_sim";
// The same with code that reports every access of memory.
inline constexpr char kGpuSimChecked[] = "gpu_sim_checked";

// Whether the target is one of the two.
bool IsSimulatedGpu(const Target& target);

// Whether code for the target is PTX, or what gpu_sim runs instead of it. Such code has no native programs: the runtime
// executes loops and conditionals step by step.
bool IsGpu(const Target& target);

// A number of tiles that gives every row a tile of its own, for DefaultSchedule.
inline constexpr int64_t kOneRowTiles = int64_t{1} << 40;

}  // namespace xlad::compiler
