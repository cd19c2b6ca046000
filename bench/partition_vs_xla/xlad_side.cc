// Propagates, partitions and checks the program in a file. Prints times, bytes, flops and memory as one line of JSON.
#include <sys/resource.h>

#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>

#include "base/file_system.h"
#include "hlo/read/read.h"
#include "sharding/cost/cost.h"
#include "sharding/explain/explain.h"
#include "sharding/pipeline.h"

namespace xlad {
namespace {

int64_t PeakRssMb() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss / 1024;
}

absl::Status Run(const char* path, nlohmann::json* out) {
  XLAD_ASSIGN_OR_RETURN(const std::string text, RealFileSystem().Read(path));
  XLAD_ASSIGN_OR_RETURN(std::unique_ptr<hlo::Module> module, hlo::ReadModule(text));
  XLAD_ASSIGN_OR_RETURN(const sharding::PipelineResult result, sharding::RunPipeline(std::move(module), {}));
  for (const PassTime& pass : result.times) (*out)[pass.pass + "_s"] = static_cast<double>(pass.ns) * 1e-9;
  const hlo::Module& whole = *result.propagated.module;
  int64_t instructions = 0;
  for (const auto& computation : whole.computations()) {
    instructions += std::ssize(computation->instructions());
  }
  XLAD_ASSIGN_OR_RETURN(const sharding::Explanation explanation, sharding::Explain(result.partitioned));
  std::map<std::string, int64_t> kinds;
  for (const sharding::ExplainedCollective& collective : explanation.collectives) ++kinds[collective.kind];
  const double devices = static_cast<double>(result.partitioned.mesh.devices());
  const double flops = sharding::Flops(*whole.entry());
  (*out)["instructions"] = instructions;
  (*out)["bytes_per_device"] = explanation.bytes_per_device;
  (*out)["flops_overhead"] =
      flops == 0 ? 1.0 : devices * sharding::Flops(*result.partitioned.variants[0].module->entry()) / flops;
  (*out)["collectives"] = kinds;
  (*out)["warnings"] = result.partitioned.warnings.size();
  (*out)["peak_rss_mb"] = PeakRssMb();
  return absl::OkStatus();
}

}  // namespace
}  // namespace xlad

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: partition_vs_xla_xlad PROGRAM\n");
    return 2;
  }
  nlohmann::json out;
  const absl::Status status = xlad::Run(argv[1], &out);
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
    return 1;
  }
  std::printf("%s\n", out.dump().c_str());
  return 0;
}
