// Compiles the program in a file. Prints one line of JSON with the seconds of every pass, the peak memory, and numbers
// of instructions, objects and bytes. The time of a pass that runs several times is the sum of its runs.
//
//   compile_time_xlad PROGRAM [MESH [UNTIL [OBJECTS]]]
//
// MESH is as in --mesh. If UNTIL is "partition" or "steps", compilation ends after the partitioner or before the
// generation of code. OBJECTS is a folder in which the code of kernels is cached.
#include <sys/resource.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/file_system.h"
#include "base/hash.h"
#include "client/job_directory.h"
#include "compiler/compile.h"
#include "compiler/serialize.h"
#include "hlo/read/read.h"
#include "service/build/build.h"
#include "service/build/folder_objects.h"
#include "sharding/pipeline.h"

namespace xlad {
namespace {

class Report {
 public:
  Report() : start_ns_(RealClock().NowNs()) {}

  // Adds the time since the last call.
  void Lap(const std::string& name) {
    const int64_t now_ns = RealClock().NowNs();
    Add({name, now_ns - start_ns_});
    start_ns_ = now_ns;
  }
  void Add(const std::vector<PassTime>& times) {
    for (const PassTime& time : times) Add(time);
  }
  nlohmann::json Finish() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    out_["peak_rss_mb"] = usage.ru_maxrss / 1024;
    return out_;
  }
  nlohmann::json& out() { return out_; }

 private:
  void Add(const PassTime& time) {
    double& seconds = seconds_[time.pass];
    seconds += static_cast<double>(time.ns) / static_cast<double>(kNsPerSecond);
    out_["seconds"][time.pass] = seconds;
  }

  int64_t start_ns_;
  std::map<std::string, double> seconds_;
  nlohmann::json out_;
};

int64_t CountInstructions(const hlo::Module& module) {
  int64_t count = 0;
  for (const auto& computation : module.computations()) count += std::ssize(computation->instructions());
  return count;
}

absl::Status Run(const std::string& path, const std::string& mesh, const std::string& until,
                 const std::string& objects_folder, Report* report) {
  XLAD_ASSIGN_OR_RETURN(const std::string bytes, RealFileSystem().Read(path));
  XLAD_ASSIGN_OR_RETURN(const std::vector<MeshAxis> axes, client::ParseMeshFlag(mesh));
  report->Lap("load");
  XLAD_ASSIGN_OR_RETURN(std::unique_ptr<hlo::Module> module, hlo::ReadModule(bytes));
  report->Lap("read-program");
  report->out()["instructions"] = CountInstructions(*module);
  sharding::PipelineOptions options;
  options.import.rebind = sharding::MeshFromWire(axes);
  XLAD_ASSIGN_OR_RETURN(const sharding::PipelineResult sharded, sharding::RunPipeline(std::move(module), options));
  report->Add(sharded.times);
  report->Lap("sharding");
  report->out()["partitioned_instructions"] = CountInstructions(*sharded.partitioned.variants.at(0).module);
  if (until == "partition") return absl::OkStatus();
  JobSpec spec;
  XLAD_ASSIGN_OR_RETURN(const CompileRequest request, service::MakeCompileRequest(sharded.partitioned, spec, Target()));
  report->Lap("make-request");
  if (until == "steps") {
    XLAD_ASSIGN_OR_RETURN(const compiler::Compilation compilation, compiler::CompileToSteps(request));
    report->Add(compilation.times);
    report->Lap("compile");
    return absl::OkStatus();
  }
  const storage::EntryFolder folder(&RealFileSystem(), {objects_folder, "compile_time"});
  service::FolderObjects objects(&folder);
  compiler::CompileOptions compile;
  if (!objects_folder.empty()) compile.objects = &objects;
  XLAD_ASSIGN_OR_RETURN(const compiler::CompileResult result,
                        compiler::CompileWithListings(request, compile, false));
  report->Add(result.times);
  report->Lap("compile");
  if (!objects_folder.empty()) XLAD_RETURN_IF_ERROR(folder.Write(objects.TakeAdded()));
  report->Lap("write-objects");
  report->out()["compiled_objects"] = result.compiled_objects;
  report->out()["reused_objects"] = result.reused_objects;
  XLAD_ASSIGN_OR_RETURN(const std::string executable, compiler::SerializeExecutable(result.executable));
  report->Lap("serialize");
  report->out()["executable_bytes"] = executable.size();
  report->out()["executable_sha256"] = Sha256Hex(executable);
  return absl::OkStatus();
}

}  // namespace
}  // namespace xlad

int main(int argc, char** argv) {
  if (argc < 2 || argc > 5) {
    std::fprintf(stderr, "usage: compile_time_xlad PROGRAM [MESH [UNTIL [OBJECTS]]]\n");
    return 2;
  }
  xlad::Report report;
  const auto argument = [&](int i) { return std::string(i < argc ? argv[i] : ""); };
  const absl::Status status = xlad::Run(argument(1), argument(2), argument(3), argument(4), &report);
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
    return 1;
  }
  std::printf("%s\n", report.Finish().dump().c_str());
  return 0;
}
