#include "simulate/simulate.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/analysis/donation.h"
#include "compiler/buffers/buffer_assignment.h"
#include "compiler/pipeline.h"
#include "sharding/cost/cost.h"
#include "simulate/fastest_step.h"

namespace xlad::simulate {
namespace {

absl::Status RunPasses(hlo::Module* module, int64_t devices) {
  compiler::PassContext context;
  context.devices = devices;
  context.is_cpu = false;
  context.keeps_loops_small = true;  // Only the library of CPUs reads packed operands.
  // A chip computes the products of an attention as separate steps.
  context.attention = compiler::AttentionChoice::kNever;
  compiler::PipelineOptions options;
  // The first pass proves a property that does not affect the time. The second one replaces convolutions with dots, but
  // the model times convolutions.
  options.without = {"check-uniform-conditions", "lower-convolutions"};
  return compiler::RunPipeline(*module, context, options, nullptr);
}

absl::StatusOr<int64_t> PeakBytesOf(const hlo::Module& module) {
  XLAD_ASSIGN_OR_RETURN(const compiler::Donation donation, compiler::DonationOf(module));
  XLAD_ASSIGN_OR_RETURN(const compiler::LinearProgram linear, compiler::Linearize(module, donation));
  const compiler::BufferAssignment assignment = compiler::AssignBuffers(linear);
  int64_t bytes = 0;
  for (const Allocation& allocation : assignment.allocations) bytes += allocation.bytes();
  return bytes;
}

void AddMeshes(const sharding::Mesh& mesh, int64_t left, std::vector<sharding::Axis> axes, size_t most,
               std::vector<sharding::Mesh>* meshes) {
  const size_t at = axes.size();
  if (at == mesh.axes().size()) {
    if (left == 1 && meshes->size() < most) meshes->emplace_back(mesh.name(), std::move(axes));
    return;
  }
  for (int64_t size = 1; size <= left && meshes->size() < most; ++size) {
    if (left % size != 0) continue;
    axes.push_back({mesh.axes()[at].name, size});
    AddMeshes(mesh, left / size, axes, most, meshes);
    axes.pop_back();
  }
}

}  // namespace

absl::StatusOr<PreparedProgram> PrepareProgram(std::unique_ptr<hlo::Module> module,
                                               const sharding::ImportOptions& import) {
  PreparedProgram program;
  program.flops = sharding::Flops(*module->entry());
  sharding::PipelineOptions options;
  options.import = import;
  options.check = false;  // Not needed for a program that does not run.
  XLAD_ASSIGN_OR_RETURN(sharding::PipelineResult result, sharding::RunPipeline(std::move(module), options));
  program.partitioned = std::move(result.partitioned);
  const int64_t devices = program.partitioned.mesh.devices();
  program.compiled = program.partitioned.variants.at(0).module->Clone();
  XLAD_RETURN_IF_ERROR(RunPasses(program.compiled.get(), devices));
  XLAD_ASSIGN_OR_RETURN(program.peak_bytes, PeakBytesOf(*program.compiled));
  XLAD_ASSIGN_OR_RETURN(program.collectives, CollectivesOf(*program.compiled, devices));
  return program;
}

absl::StatusOr<Prediction> Predict(const PreparedProgram& program, const Slice& slice, absl::string_view assign) {
  const sharding::Mesh& mesh = program.partitioned.mesh;
  XLAD_ASSIGN_OR_RETURN(const std::vector<Placement> placements, ParsePlacements(assign, mesh, slice));
  XLAD_ASSIGN_OR_RETURN(PlacedStep fastest,
                        FastestStep(*program.compiled, program.collectives, placements, mesh, slice));
  Prediction prediction;
  prediction.placement = fastest.placement.ToString(mesh, slice);
  prediction.step = std::move(fastest.time);
  const int chips = slice.chips() / slice.slices(), most = slice.chip.ici_max_chips;
  if (most > 0 && chips > most) {
    std::string warning = absl::StrCat("topology ", slice.name, ": found a slice of ", chips,
                                       " chips, expected at most ", most, ", the largest slice of ", slice.chip.name);
    if (slice.chip.dcn_bytes_per_s > 0) {
      const int64_t slices = SlicesFor(slice.chip, slice.chips());
      absl::StrAppend(&warning, "; ", slices, "x", slice.chip.name, "-SIZES is ", slices,
                      " slices that a network connects");
    }
    prediction.step.warnings.push_back(std::move(warning));
  }
  const double peak = slice.chip.bf16_flops * slice.chips() * prediction.step.us / 1e6;
  if (peak > 0) prediction.mfu = program.flops / peak;
  return prediction;
}

std::vector<sharding::Mesh> MeshesLike(const sharding::Mesh& mesh, int64_t devices, size_t most) {
  std::vector<sharding::Mesh> meshes;
  AddMeshes(mesh, devices, {}, most, &meshes);
  return meshes;
}

}  // namespace xlad::simulate
