#include <algorithm>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/str_format.h"
#include "base/cache_folder.h"
#include "base/json_text.h"
#include "cli/command.h"
#include "cli/devices.h"
#include "cli/flag_checks.h"
#include "cli/measure_schedules.h"
#include "cli/program.h"
#include "cli/tuned.h"
#include "compiler/analysis/instruction_facts.h"
#include "compiler/compile.h"
#include "compiler/kernel/candidate_schedules.h"
#include "runtime/host_threads.h"
#include "service/build/build.h"

namespace xlad::cli {
namespace {

// Relative differences below this are noise.
constexpr double kMinGain = 0.03;

struct TuneOptions {
  std::string directory, mesh, output, cache, format;
  int64_t budget_ms = 60'000;
  int threads = 0;
};

// A kernel of the program, its best schedule, and its times with the usual schedule and with the best one.
struct TunedKernel {
  uint64_t hash = 0;
  std::string name, source;
  compiler::KernelSchedule schedule;
  int64_t usual_ns = 0, best_ns = 0;
  int candidates = 0;
};

// Measures the candidates, and then compares the best one with the usual schedule again, so that a single fast run does
// not decide.
absl::StatusOr<TunedKernel> Tune(const compiler::KernelRequest& request, MeasureOptions measure) {
  const compiler::ScheduledKernel& usual = *request.kernel;
  TunedKernel tuned;
  tuned.hash = KernelHash(usual.kernel);
  tuned.name = request.root->name();
  tuned.source = compiler::NearestSource(*request.root);
  const std::vector<compiler::KernelSchedule> candidates = CandidateSchedules(usual);
  tuned.candidates = static_cast<int>(candidates.size());
  tuned.schedule = usual.schedule;
  measure.budget_ns /= 2;
  XLAD_ASSIGN_OR_RETURN(const std::vector<MeasuredSchedule> all, MeasureSchedules(request, candidates, measure));
  const auto best = std::min_element(all.begin(), all.end(),
                                     [](const auto& a, const auto& b) { return a.ns < b.ns; });
  tuned.usual_ns = tuned.best_ns = all[0].ns;
  if (best == all.begin()) return tuned;
  XLAD_ASSIGN_OR_RETURN(const std::vector<MeasuredSchedule> two,
                        MeasureSchedules(request, {usual.schedule, best->schedule}, measure));
  tuned.usual_ns = tuned.best_ns = two[0].ns;
  if (static_cast<double>(two[1].ns) > (1 - kMinGain) * static_cast<double>(two[0].ns)) return tuned;
  tuned.best_ns = two[1].ns;
  tuned.schedule = two[1].schedule;
  return tuned;
}

// The requests whose kernels have several candidates. If several requests have the same kernel, only the first is
// returned, because they share a schedule: every candidate also fits a request that works in place.
std::vector<const compiler::KernelRequest*> Tunable(const compiler::StepProgram& steps) {
  std::vector<const compiler::KernelRequest*> tunable;
  std::set<uint64_t> known;
  for (const compiler::KernelRequest& request : steps.kernels) {
    if (request.kernel == nullptr || CandidateSchedules(*request.kernel).size() <= 1) continue;
    if (known.insert(KernelHash(request.kernel->kernel)).second) tunable.push_back(&request);
  }
  return tunable;
}

// Returns the entries of `before` without those of the measured kernels, and new entries for the kernels that became
// faster.
absl::StatusOr<std::string> Merged(const std::string& before, const compiler::StepProgram& steps,
                                   const std::vector<TunedKernel>& kernels) {
  XLAD_ASSIGN_OR_RETURN(const compiler::ScheduleTable table, compiler::ScheduleTable::Parse(before));
  std::map<uint64_t, std::string> entries;
  for (const auto& [hash, entry] : table.entries()) {
    entries[hash] = absl::StrFormat("kernel %016x\n%s", hash, ScheduleText(entry.schedule));
  }
  for (const TunedKernel& tuned : kernels) {
    for (const compiler::KernelRequest& request : steps.kernels) {
      if (request.kernel == nullptr || KernelHash(request.kernel->kernel) != tuned.hash) continue;
      entries.erase(tuned.hash);
      if (tuned.best_ns == tuned.usual_ns) break;
      entries[tuned.hash] = ScheduleEntryText(request.kernel->kernel, tuned.schedule);
      break;
    }
  }
  std::string text = "# Kernel schedules that xlad tune has measured on this CPU. They do not change results.\n";
  for (const auto& [hash, entry] : entries) absl::StrAppend(&text, "\n", entry);
  return text;
}

void Print(const std::vector<TunedKernel>& kernels, const std::string& format, const std::string& path) {
  nlohmann::ordered_json json = {{"file", path}, {"kernels", nlohmann::ordered_json::array()}};
  if (format != "json") {
    std::printf("%10s %10s %6s %10s  %-16s %s\n", "us usual", "us tuned", "gain", "candidates", "kernel", "name");
  }
  for (const TunedKernel& kernel : kernels) {
    const double usual = static_cast<double>(kernel.usual_ns), best = static_cast<double>(kernel.best_ns);
    const std::string hash = absl::StrFormat("%016x", kernel.hash);
    if (format == "json") {
      json["kernels"].push_back({{"kernel", hash},
                                 {"name", kernel.name},
                                 {"source", kernel.source},
                                 {"usual_ns", kernel.usual_ns},
                                 {"tuned_ns", kernel.best_ns},
                                 {"candidates", kernel.candidates}});
      continue;
    }
    std::printf("%10.1f %10.1f %5.0f%% %10d  %-16s %s%s\n", usual / 1e3, best / 1e3, 100 * (usual / best - 1),
                kernel.candidates, hash.c_str(), kernel.name.c_str(),
                kernel.source.empty() ? "" : ("  " + kernel.source).c_str());
  }
  if (format == "json") std::printf("%s\n", JsonText(json, 1).c_str());
}

absl::Status RunTune(const TuneOptions& options) {
  const std::string folder = CacheFolder(options.cache, UserCacheFolder());
  const std::string path = options.output.empty() ? TunedPath(folder) : options.output;
  if (path.empty()) {
    return absl::InvalidArgumentError("found no cache folder, expected one, or -o FILE for the schedules");
  }
  XLAD_ASSIGN_OR_RETURN(LoadedProgram program, LoadProgram(options.directory, options.mesh));
  const JobSpec spec = program.job.spec;
  auto partitioned = PartitionProgram(std::move(program));
  if (!partitioned.ok()) return Annotate(partitioned.status(), options.directory);
  XLAD_ASSIGN_OR_RETURN(const CompileRequest request,
                        service::MakeCompileRequest(partitioned->partitioned, spec, Target()));
  XLAD_ASSIGN_OR_RETURN(const compiler::Compilation compilation, compiler::CompileToSteps(request));
  const std::vector<const compiler::KernelRequest*> tunable = Tunable(compilation.steps);
  MeasureOptions measure;
  measure.clock = &RealClock();
  measure.threads = options.threads > 0 ? options.threads : runtime::HostThreads();
  const int64_t end_ns = RealClock().NowNs() + options.budget_ms * kNsPerMs;
  std::vector<TunedKernel> tuned;
  for (size_t k = 0; k < tunable.size(); ++k) {
    const int64_t left_ns = end_ns - RealClock().NowNs();
    if (left_ns <= 0) {
      std::fprintf(stderr, "xlad: the time budget is used up; %zu of %zu kernels keep their schedules\n",
                   tunable.size() - k, tunable.size());
      break;
    }
    // Compiling the candidates takes about as long as measuring them.
    measure.budget_ns = std::min<int64_t>(left_ns / std::ssize(tunable) / 2, kNsPerSecond);
    XLAD_ASSIGN_OR_RETURN(tuned.emplace_back(), Tune(*tunable[k], measure));
  }
  std::sort(tuned.begin(), tuned.end(), [](const auto& a, const auto& b) {
    return std::pair(b.usual_ns, a.hash) < std::pair(a.usual_ns, b.hash);
  });
  const std::string before = options.output.empty() ? ReadTuned(folder) : "";
  XLAD_ASSIGN_OR_RETURN(const std::string text, Merged(before, compilation.steps, tuned));
  if (options.output.empty()) XLAD_RETURN_IF_ERROR(RealFileSystem().MakeDirectories(folder));
  XLAD_RETURN_IF_ERROR(RealFileSystem().WriteAtomically(path, text));
  Print(tuned, options.format, path);
  std::fprintf(stderr, "schedules: %s\n", path.c_str());
  return absl::OkStatus();
}

}  // namespace

void AddTune(CLI::App& parent, Action* action) {
  auto options = std::make_shared<TuneOptions>();
  CLI::App* app = parent.add_subcommand("tune", "measure kernel schedules of a program on this machine; keep the best");
  app->footer("Examples:\n  xlad tune examples/spiral_mlp --budget 60s\n"
              "  xlad tune examples/spiral_mlp -o schedules.txt\n"
              "  xlad run examples/spiral_mlp --schedules schedules.txt");
  app->add_option("JOBDIR", options->directory, "job directory, or a program in any form")->required();
  app->add_option("--mesh", options->mesh, "mesh axes and sizes, such as dp=4,tp=2")->check(MeshAxes());
  app->add_option("--budget", options->budget_ms, "the time to measure for: 500ms, 60s or 5min; default: 60s")
      ->transform(Duration());
  AddThreadsFlag(app, &options->threads, "in each measurement");
  app->add_option("-o", options->output, "write the schedules to FILE instead of the cache folder")
      ->check(NamedOutputFile());
  app->add_option("--cache", options->cache,
                  "folder in which `xlad run` finds the schedules; default: that of XLAD_CACHE "
                  "(docs/reference/commands.md)");
  AddFormatFlag(app, &options->format);
  app->callback([=] {
    *action = [=] {
      const absl::Status status = RunTune(*options);
      return status.ok() ? kOk : Fail(status);
    };
  });
}

}  // namespace xlad::cli
