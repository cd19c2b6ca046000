#include "cli/program.h"

#include "cli/command.h"
#include "hlo/read.h"

namespace xlad::cli {

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
  std::vector<sharding::Axis> axes;
  for (const MeshAxis& axis : mesh_axes) axes.push_back({axis.name(), axis.size()});
  program.import.rebind = sharding::Mesh("mesh", std::move(axes));
  auto module = hlo::ReadModule(bytes);
  if (!module.ok()) return Annotate(module.status(), name);
  program.module = *std::move(module);
  return program;
}

absl::StatusOr<sharding::PipelineResult> PartitionProgram(LoadedProgram program) {
  sharding::PipelineOptions options;
  options.import = program.import;
  return sharding::RunPipeline(std::move(program.module), options);
}

}  // namespace xlad::cli
