#include "cli/program.h"

#include <cstdio>

#include "absl/strings/str_format.h"
#include "base/counted.h"
#include "cli/command.h"
#include "hlo/analysis/constants.h"
#include "hlo/read/read.h"
#include "service/build/check_spec.h"
#include "tensor/safetensors.h"

namespace xlad::cli {
namespace {

absl::StatusOr<tensor::SafetensorsIndex> IndexOf(const absl::StatusOr<std::shared_ptr<storage::TensorSource>>& source,
                                                 const std::string& name) {
  if (!source.ok()) return Annotate(source.status(), name);
  if (*source == nullptr) return tensor::SafetensorsIndex();
  return tensor::ParseSafetensorsIndex((*source)->Header(), int64_t{1} << 62);
}

// Checks the job in the same way as the coordinator does before a build.
absl::Status CheckJob(const client::Job& job, const hlo::Module& module) {
  XLAD_ASSIGN_OR_RETURN(const tensor::SafetensorsIndex state,
                        IndexOf(client::OpenState(RealFileSystem(), job), "state.safetensors"));
  XLAD_ASSIGN_OR_RETURN(const tensor::SafetensorsIndex data,
                        IndexOf(client::OpenData(RealFileSystem(), job), "data.safetensors"));
  return service::CheckSpec(job.spec, module, state, data);
}

}  // namespace

void WarnOfElidedConstants(const hlo::Module& module) {
  int64_t count = 0;
  for (const auto& computation : module.computations()) {
    for (const auto& instruction : computation->instructions()) {
      count += hlo::IsElided(*instruction) ? 1 : 0;
    }
  }
  if (count > 0) {
    absl::FPrintF(stderr, "xlad: warning: the program omits the values of %s (\"{...}\"); they count as zeros\n",
                  Counted(count, "constant"));
  }
}

absl::StatusOr<LoadedProgram> LoadProgram(const std::string& path, const std::string& mesh) {
  LoadedProgram program;
  std::string bytes, name = path;
  XLAD_ASSIGN_OR_RETURN(const std::vector<MeshAxis> mesh_axes, client::ParseMeshFlag(mesh));
  if (path != "-" && RealFileSystem().IsDirectory(path)) {
    XLAD_ASSIGN_OR_RETURN(program.job, client::ReadJobDirectory(RealFileSystem(), path, mesh, -1));
    program.is_job = true;
    bytes = program.job.program;
    name = program.job.program_path;
    for (int r = 0; r < program.job.spec.results_size(); ++r) {
      const int64_t feeds = program.job.spec.results(r).feeds();
      if (feeds >= 0) program.import.feeds.push_back({r, feeds});
    }
  } else {
    XLAD_ASSIGN_OR_RETURN(bytes, ReadInput(path));
  }
  program.import.rebind = sharding::MeshFromWire(mesh_axes);
  auto module = hlo::ReadModule(bytes);
  if (!module.ok()) return Annotate(module.status(), name);
  program.module = *std::move(module);
  if (!program.is_job) return program;
  const absl::Status fits = CheckJob(program.job, *program.module);
  if (!fits.ok()) return Annotate(fits, path);
  return program;
}

absl::StatusOr<sharding::PipelineResult> PartitionProgram(LoadedProgram program) {
  sharding::PipelineOptions options;
  options.import = program.import;
  return sharding::RunPipeline(std::move(program.module), options);
}

}  // namespace xlad::cli
