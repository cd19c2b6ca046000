// CompileToSteps: the passes, buffer assignment and step builder.
#include <algorithm>
#include <map>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "compiler/analysis/instruction_facts.h"
#include "compiler/buffers/memory_limit.h"
#include "compiler/buffers/overlap_collectives.h"
#include "compiler/compile.h"
#include "compiler/kernel/gpu_target.h"
#include "hlo/analysis/leaves.h"

namespace xlad::compiler {
namespace {

// Runs `work` and appends its time to the list of times as `name`.
template <typename Work>
auto Timed(const char* name, std::vector<PassTime>* times, const Work& work) {
  const int64_t start = RealClock().NowNs();
  auto result = work();
  times->push_back({name, RealClock().NowNs() - start});
  return result;
}

// One label for each device. Devices with equal boxes hold equal shards and have equal labels. If there is no box, or
// one box for all devices, all labels are equal. Any other number of boxes proves nothing, and all labels differ.
std::vector<int> LabelsOf(const EntryValue& value, int64_t devices) {
  std::vector<int> labels(devices, 0);
  if (value.boxes_size() <= 1) return labels;
  if (value.boxes_size() != devices) {
    std::iota(labels.begin(), labels.end(), 0);
    return labels;
  }
  std::map<std::string, int> numbers;
  for (int d = 0; d < std::ssize(labels); ++d) {
    const std::string box = value.boxes(d).SerializeAsString();
    labels[d] = numbers.emplace(box, numbers.size()).first->second;
  }
  return labels;
}

PassContext MakeContext(const CompileRequest& request, const hlo::Module& module) {
  PassContext context;
  for (const MeshAxis& axis : request.mesh()) context.devices *= axis.size();
  if (request.mesh().empty()) context.devices = std::max<int64_t>(1, module.num_partitions);
  for (const EntryValue& parameter : request.parameters()) {
    context.parameter_labels.push_back(LabelsOf(parameter, context.devices));
  }
  return context;
}

absl::Status CheckCount(const char* list, int64_t found, int64_t expected) {
  if (found == 0 || found == expected) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("compile request: found `", list, "` of length ", found,
                                                 ", expected length ", expected,
                                                 " (one entry per leaf of the entry computation) or 0"));
}

// The parameters or results that a request lists are arrays, so the program may have no tokens there.
absl::Status CheckEntryArrays(const CompileRequest& request, const hlo::Module& module) {
  std::vector<const hlo::Instruction*> values;
  if (!request.results().empty()) values.push_back(module.entry()->root());
  const std::vector<hlo::Instruction*> parameters = module.entry()->parameters();
  if (!request.parameters().empty()) values.insert(values.end(), parameters.begin(), parameters.end());
  for (const hlo::Instruction* value : values) {
    for (const hlo::Shape* leaf : hlo::Leaves(value->shape())) {
      if (leaf->is_array()) continue;
      return absl::UnimplementedError(
          absl::StrCat(Describe(*value), ": found ", leaf->ToString(), " in a ",
                       value == module.entry()->root() ? "result" : "parameter",
                       " of the program, expected arrays; remove the tokens of ordered side effects"));
    }
  }
  return absl::OkStatus();
}

// A compilation up to its memory plan. If the program without changes exceeds the memory limit, `usual` is its plan.
struct Planned {
  Compilation result;
  PlannedProgram usual;
  PassContext context;
  bool has_attention = false;  // Whether attention was recognized, fused or not.
  bool fits = true;
  bool reached_growth = false;  // See PlannedProgram.
};

absl::Status PlanMemory(LinearProgram program, int64_t limit, Planned* planned) {
  Compilation& result = planned->result;
  result.program = std::move(program);
  result.assignment = Timed("assign-buffers", &result.times, [&] { return AssignBuffers(result.program); });
  if (limit > 0 && TotalBytes(result.assignment) > limit) {
    result.usual_bytes = TotalBytes(result.assignment);
    planned->usual = {result.program, result.assignment};
    PlannedProgram smaller =
        Timed("rematerialize", &result.times, [&] { return Rematerialize(result.program, limit); });
    result.program = std::move(smaller.program);
    result.assignment = std::move(smaller.assignment);
    planned->reached_growth = smaller.reached_growth;
    planned->fits = TotalBytes(result.assignment) <= limit;
  }
  return Timed("check-buffers", &result.times, [&] { return CheckAssignment(result.program, result.assignment); });
}

// Changes of the program that save memory, and that may change the order of sums.
struct MemoryChanges {
  bool keeps_loops_small = false, fuses_all_attention = false;
};

absl::StatusOr<Planned> Plan(std::unique_ptr<Module> module, const CompileRequest& request,
                             const CompileOptions& options, const MemoryChanges& changes) {
  Planned planned;
  Compilation& result = planned.result;
  result.module = std::move(module);
  result.keeps_loops_small = changes.keeps_loops_small;
  result.fuses_all_attention = changes.fuses_all_attention;
  XLAD_RETURN_IF_ERROR(CheckEntryArrays(request, *result.module));
  const CompilePolicy& policy = request.policy();
  std::vector<AttentionCost> costs;
  planned.context = MakeContext(request, *result.module);
  const bool is_cpu = !IsGpu(request.target()) && request.target().chip().empty();
  planned.context.is_cpu = is_cpu;
  planned.context.attention = changes.fuses_all_attention ? AttentionChoice::kAlways : options.attention;
  // A simulated chip computes the products of an attention as separate steps.
  if (!request.target().chip().empty()) planned.context.attention = AttentionChoice::kNever;
  planned.context.attention_costs = &costs;
  // gpu_sim has only the libraries of the CPU.
  planned.context.uses_cublaslt =
      IsGpu(request.target()) && !IsSimulatedGpu(request.target()) && request.target().has_dots_of_f64_and_s8();
  PipelineOptions pipeline;
  pipeline.dump_directory = request.dump_directory();
  pipeline.verify = options.verify;
  if (policy.op_by_op()) {
    pipeline.without = {"combine-collectives", "fuse-attention", "fuse", "fuse-rows", "fuse-sibling-reductions"};
  }
  // Only the library ops of CPUs read packed operands in place, stored operands have not been measured elsewhere, and
  // op-by-op execution is a baseline.
  planned.context.keeps_loops_small = !is_cpu || policy.op_by_op() || changes.keeps_loops_small;
  XLAD_RETURN_IF_ERROR(RunPipeline(*result.module, planned.context, pipeline, &result.times));
  planned.context.attention_costs = nullptr;  // `costs` ends with this function.
  planned.has_attention = !costs.empty();
  if (options.attention_costs != nullptr) {
    options.attention_costs->insert(options.attention_costs->end(), costs.begin(), costs.end());
  }
  XLAD_ASSIGN_OR_RETURN(Donation donation, DonationOf(*result.module));
  XLAD_RETURN_IF_ERROR(CheckCount("parameters", request.parameters_size(), std::ssize(donation.parameter_is_donated)));
  XLAD_RETURN_IF_ERROR(CheckCount("results", request.results_size(), std::ssize(donation.result_to_parameter)));
  XLAD_ASSIGN_OR_RETURN(LinearProgram program, Timed("lower", &result.times, [&] {
                          return Linearize(*result.module, donation, planned.context.uses_cublaslt);
                        }));
  // Collectives are not overlapped if numerics are checked after each step, or if the program runs op by op.
  const bool by_steps = policy.op_by_op() || policy.check_numerics();
  const double min_ns = policy.overlap() == CompilePolicy::ALWAYS ? 0 : kMinOverlapNs;
  if (!by_steps && policy.overlap() != CompilePolicy::NEVER) {
    Timed("overlap-collectives", &result.times, [&] { return OverlapCollectives(&program, min_ns); });
  }
  XLAD_RETURN_IF_ERROR(PlanMemory(std::move(program), policy.memory_limit_bytes(), &planned));
  return planned;
}

// Plans the memory within the limit of the request. The first choice is the program that has the same bits as without a
// limit. If it does not fit, loops neither pack nor store operands of dots: these copies live as long as the loop, and
// repeating operations does not shorten that. If this is not enough, all attention is fused, too.
absl::StatusOr<Planned> PlanWithinLimit(std::unique_ptr<Module> module, const CompileRequest& request,
                                        const CompileOptions& options) {
  const int64_t limit = request.policy().memory_limit_bytes();
  const std::unique_ptr<Module> copy = limit > 0 ? module->Clone() : nullptr;
  XLAD_ASSIGN_OR_RETURN(Planned planned, Plan(std::move(module), request, options, {}));
  if (planned.fits) return planned;
  const bool has_larger_loops = planned.context.has_larger_loops;
  std::vector<MemoryChanges> all_changes;
  if (has_larger_loops) all_changes.push_back({true, false});
  if (options.attention == AttentionChoice::kByCost && planned.has_attention) {
    all_changes.push_back({has_larger_loops, true});
  }
  CompileOptions others = options;
  others.attention_costs = nullptr;
  std::vector<Planned> tried;
  tried.push_back(std::move(planned));
  for (const MemoryChanges& changes : all_changes) {
    XLAD_ASSIGN_OR_RETURN(Planned other, Plan(copy->Clone(), request, others, changes));
    if (other.fits) {
      other.result.usual_bytes = tried[0].result.usual_bytes;
      return other;
    }
    tried.push_back(std::move(other));
  }
  const Planned& least = *std::min_element(tried.begin(), tried.end(), [](const Planned& a, const Planned& b) {
    return TotalBytes(a.result.assignment) < TotalBytes(b.result.assignment);
  });
  return MemoryLimitError(tried[0].usual, {least.result.program, least.result.assignment, least.reached_growth}, limit);
}

}  // namespace

absl::StatusOr<Compilation> CompileToSteps(std::unique_ptr<Module> module, const CompileRequest& request,
                                           const CompileOptions& options) {
  const CompilePolicy& policy = request.policy();
  XLAD_ASSIGN_OR_RETURN(const ScheduleTables schedules, ScheduleTables::Read(policy));
  XLAD_ASSIGN_OR_RETURN(Planned planned, PlanWithinLimit(std::move(module), request, options));
  Compilation result = std::move(planned.result);
  const bool is_gpu = IsGpu(request.target());
  const StepOptions steps = {planned.context.devices, policy.check_numerics(), policy.reduction_mode(), &schedules,
                             is_gpu};
  XLAD_ASSIGN_OR_RETURN(result.steps, Timed("build-steps", &result.times, [&] {
                          return BuildSteps(result.program, result.assignment, steps);
                        }));
  // On a simulated chip, time is reported for each step, so loops do not become native programs.
  const bool is_simulated = !request.target().chip().empty();
  result.steps.native_loops = !policy.op_by_op() && !policy.check_numerics() && !is_simulated && !is_gpu;
  return result;
}

}  // namespace xlad::compiler
