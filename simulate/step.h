// The time of one step of a compiled program on one chip of a slice, instruction by instruction.
//
// Kernels run one after the other on the cores of the chip. Inside a kernel, DMA overlaps with computation: it takes
// the longest of its matrix, vector and memory time; values that fit stay in VMEM (residency.h). The first kernel in
// program order whose operands are ready runs. A collective starts as soon as its operands are ready and no other
// collective uses its dimensions of the torus, and overlaps with all kernels that do not need it. A loop takes the time
// of one iteration times its trips, but iterations of kernels alone overlap as far as units and carried values allow
// (pipelining.h); a conditional takes the time of its longest branch.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "simulate/kernel_cost.h"
#include "simulate/pipelining.h"
#include "simulate/traffic.h"

namespace xlad::simulate {

// The time until the first tile of a kernel is in VMEM, which no other work hides. An assumption, as there is no
// published figure.
inline constexpr double kKernelStartUs = 0.5;

enum class Unit { kCore, kIci };

// For a timeline. It shows the first iteration of a loop.
struct TimelineEvent {
  std::string name;
  Unit unit = Unit::kCore;
  double start_us = 0, duration_us = 0;
};

struct CollectiveUse {
  std::string name, kind, axes, group, plan;
  int64_t bytes = 0;  // The larger of input and output of a device.
  double us = 0;      // One execution.
  double trips = 1;   // Executions per step.
};

struct StepTime {
  double us = 0;
  // The busy time of the units. They overlap, so that their sum is not the step.
  double mxu_us = 0, vpu_us = 0, hbm_us = 0, ici_us = 0;
  double dcn_us = 0;     // Collectives between slices; not in ici_us.
  double stall_us = 0;   // The cores wait for collectives.
  double hbm_bytes = 0;  // Read and written by one chip.
  std::vector<CollectiveUse> collectives;
  std::vector<double> link_us;  // By dimension of the slice: the mean time that one of its links is busy.
  std::vector<TimelineEvent> timeline;
  std::vector<std::string> warnings;  // Loops whose trip counts are assumed.
  // One execution of each kernel on the cores and of each collective on the links. Those of loops and branches, and of
  // products whose user computes on their result in the registers, are missing.
  InstructionTimes instruction_us;
};

// `collectives` are those of CollectivesOf(module). Errors of GroupTimer and PermuteTime.
absl::StatusOr<StepTime> TimeStep(const hlo::Module& module, const std::vector<ProgramCollective>& collectives,
                                  const Placement& placement, const sharding::Mesh& mesh, const Slice& slice);

}  // namespace xlad::simulate
