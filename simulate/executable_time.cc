#include "simulate/executable_time.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "machine/chip.h"
#include "simulate/fastest_step.h"
#include "simulate/placement.h"
#include "simulate/slice.h"

namespace xlad::simulate {
namespace {

using TimeByName = absl::flat_hash_map<std::string, double>;
using Steps = google::protobuf::RepeatedPtrField<Step>;

absl::StatusOr<StepTime> TimeOf(const hlo::Module& compiled, const sharding::Mesh& mesh, const Slice& slice) {
  XLAD_ASSIGN_OR_RETURN(const std::vector<ProgramCollective> collectives, CollectivesOf(compiled, mesh.devices()));
  XLAD_ASSIGN_OR_RETURN(const std::vector<Placement> placements, ParsePlacements("", mesh, slice));
  XLAD_ASSIGN_OR_RETURN(PlacedStep fastest, FastestStep(compiled, collectives, placements, mesh, slice));
  return std::move(fastest.time);
}

// The time of a copy, which reads and writes HBM. The model has no instruction for it.
double CopyUs(const Step& step, const Slice& slice) {
  return step.has_copy() ? step.bytes() / slice.chip.hbm_bytes_per_s * 1e6 : 0;
}

void SetStepTimes(const TimeByName& us_of, const Slice& slice, Steps* steps) {
  for (Step& step : *steps) {
    const auto found = us_of.find(step.name());
    const bool has_steps = step.has_while_() || step.has_if_();
    if (!has_steps) step.set_simulated_us(found != us_of.end() ? found->second : CopyUs(step, slice));
    if (step.has_while_()) {
      SetStepTimes(us_of, slice, step.mutable_while_()->mutable_condition());
      SetStepTimes(us_of, slice, step.mutable_while_()->mutable_body());
    }
    if (!step.has_if_()) continue;
    for (IfStep::Branch& branch : *step.mutable_if_()->mutable_branches()) {
      SetStepTimes(us_of, slice, branch.mutable_steps());
    }
  }
}

// The sum of the times of repeated steps. The compiled module does not contain these steps, so the model omits them. A
// conditional counts as its branch with the greatest sum.
double RepeatedUs(const Steps& steps) {
  double us = 0;
  for (const Step& step : steps) {
    if (step.is_repeated()) us += step.simulated_us();
    if (step.has_while_()) {
      const double trips = static_cast<double>(std::max<int64_t>(step.while_().trip_count(), 1));
      us += (trips + 1) * RepeatedUs(step.while_().condition()) + trips * RepeatedUs(step.while_().body());
    }
    double branch_us = 0;
    for (const IfStep::Branch& branch : step.if_().branches()) {
      branch_us = std::max(branch_us, RepeatedUs(branch.steps()));
    }
    us += branch_us;
  }
  return us;
}

void Fill(const StepTime& time, SimulatedTime* simulated) {
  simulated->set_us(time.us);
  simulated->set_mxu_us(time.mxu_us);
  simulated->set_vpu_us(time.vpu_us);
  simulated->set_hbm_us(time.hbm_us);
  simulated->set_ici_us(time.ici_us);
  simulated->set_stall_us(time.stall_us);
  simulated->set_hbm_bytes(time.hbm_bytes);
  for (const std::string& warning : time.warnings) simulated->add_warnings(warning);
}

}  // namespace

absl::Status SetSimulatedTimes(const hlo::Module& compiled, Executable* executable) {
  const Target& target = executable->target();
  if (target.chip().empty()) return absl::OkStatus();
  XLAD_ASSIGN_OR_RETURN(const machine::Chip chip, machine::ParseChip(target.chip(), target.device_model()));
  const sharding::Mesh mesh = sharding::MeshFromWire(executable->mesh());
  XLAD_ASSIGN_OR_RETURN(const Slice slice, SliceOfChips(chip, mesh.devices()));
  SimulatedTime* const simulated = executable->mutable_simulated();
  simulated->set_topology(slice.name);
  const absl::StatusOr<StepTime> time = TimeOf(compiled, mesh, slice);
  if (!time.ok()) {
    simulated->add_warnings(absl::StrCat("the step has no simulated time: ", time.status().message()));
    return absl::OkStatus();
  }
  Fill(*time, simulated);
  TimeByName us_of;
  for (const auto& [instruction, us] : time->instruction_us) us_of[instruction->name()] = us;
  SetStepTimes(us_of, slice, executable->mutable_steps());
  simulated->set_us(simulated->us() + RepeatedUs(executable->steps()));
  return absl::OkStatus();
}

}  // namespace xlad::simulate
