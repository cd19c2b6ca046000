// Targets whose kernels are grids of threads.
#pragma once

#include <cstdint>

#include "proto/executable.pb.h"

namespace xlad::compiler {

// The kind of device that runs GPU code on the CPU (runtime/devices/gpu_sim).
inline constexpr char kGpuSim[] = "gpu_sim";
// Like kGpuSim, but the code reports every memory access.
inline constexpr char kGpuSimChecked[] = "gpu_sim_checked";

// Whether the device kind of the target is kGpuSim or kGpuSimChecked.
bool IsSimulatedGpu(const Target& target);

// Whether code for the target is PTX, or the code that gpu_sim runs instead of PTX. Such code has no native programs:
// the runtime executes loops and conditionals step by step.
bool IsGpu(const Target& target);

// A value of `wanted_tiles` for which DefaultSchedule makes one tile per row.
inline constexpr int64_t kOneRowTiles = int64_t{1} << 40;

}  // namespace xlad::compiler
