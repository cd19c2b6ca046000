// The time of one step of a compiled program on one chip of a slice, instruction by instruction.
//
// Kernels run one after the other on the cores of the chip. Inside a kernel, DMA overlaps with computation, so a kernel
// takes the longest of its matrix, vector and memory times, plus kKernelStartUs. Values that fit stay in VMEM
// (residency.h). The next kernel is the first one in program order whose operands are ready. A collective starts as
// soon as its operands are ready and no other collective uses its dimensions of the torus, and overlaps with all
// kernels that do not use its result. A loop takes the time of one iteration times its trip count, but iterations that
// consist only of kernels overlap as far as units and carried values allow (pipelining.h). A conditional takes the time
// of its longest branch, and the other branches count only in instruction_us.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "simulate/kernel_cost.h"
#include "simulate/pipelining.h"
#include "simulate/traffic.h"

namespace xlad::simulate {

// The time until the first tile of a kernel is in VMEM, which does not overlap with other work. The value is an
// assumption, because there is no published figure.
inline constexpr double kKernelStartUs = 0.5;

enum class Unit { kCore, kIci };

// An entry of the timeline, which shows only the first iteration of a loop.
struct TimelineEvent {
  std::string name;
  Unit unit = Unit::kCore;
  double start_us = 0, duration_us = 0;
};

struct CollectiveUse {
  std::string name, kind, axes, group, plan;
  int64_t bytes = 0;  // The size of a device's input or output, whichever is larger.
  double us = 0;      // The time of one execution.
  double trips = 1;   // The number of executions per step.
};

struct StepTime {
  double us = 0;
  // The busy times of the units. They overlap, so their sum is not the time of the step.
  double mxu_us = 0, vpu_us = 0, hbm_us = 0, ici_us = 0;
  double dcn_us = 0;     // The time of collectives between slices, which is not in ici_us.
  double stall_us = 0;   // The time in which the cores wait for collectives.
  double hbm_bytes = 0;  // The bytes that one chip reads and writes.
  std::vector<CollectiveUse> collectives;
  std::vector<double> link_us;  // By dimension of the slice: the mean time that one of its links is busy.
  std::vector<TimelineEvent> timeline;
  std::vector<std::string> warnings;  // Assumed trip counts, and slices that are not built.
  // The time of one execution of each kernel on the cores and of each collective on the links. It has no entries for
  // loops and branches, for instructions that take no time, and for products whose result is passed to their user in
  // registers.
  InstructionTimes instruction_us;
};

// Computes the times of a program's steps under different placements. Times of kernels and of groups of equal shape are
// computed once. Keeps references to its arguments. Not thread-safe.
class StepTimer {
 public:
  // `collectives` is the result of CollectivesOf(module).
  StepTimer(const hlo::Module& module, const std::vector<ProgramCollective>& collectives, const sharding::Mesh& mesh,
            const Slice& slice);
  ~StepTimer();

  // Returns the errors of GroupTimer and PermuteTime.
  absl::StatusOr<StepTime> TimeOf(const Placement& placement);

 private:
  struct Model;
  class Simulation;

  const hlo::Module& module_;
  const std::unique_ptr<Model> model_;
};

}  // namespace xlad::simulate
