// `xlad simulate`: the step time of a program on a slice of simulated chips.
#include "simulate/simulate.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/bytes_text.h"
#include "base/counted.h"
#include "base/file_system.h"
#include "base/json_text.h"
#include "cli/command.h"
#include "cli/flag_checks.h"
#include "cli/program.h"
#include "simulate/broken_chips.h"
#include "simulate/placement.h"

namespace xlad::cli {
namespace {

using Json = nlohmann::ordered_json;
using simulate::Prediction;
using simulate::PreparedProgram;
using simulate::Slice;

constexpr size_t kMaxSweptMeshes = 200;
constexpr size_t kMaxPrintedCollectives = 20;

struct SimulateOptions {
  std::string path, mesh, compare, assign, trace, format;
  std::vector<std::string> topologies, chips, broken_links, broken_chips;
  bool sweep = false;
};

// A prediction, with the slice, program and mesh that it is for. If the mesh does not fit the program or the slice,
// there is no prediction, and `error` is set.
struct SimulatedRun {
  Slice slice;
  std::string program;  // The path of the program if --compare names another program; otherwise "".
  std::string mesh;
  int64_t peak_bytes = 0;
  double flops = 0;
  Prediction prediction;
  absl::Status error;
};

// Adds the paths of the files to the names of chips that have the same name, so that the rows of tables have different
// names.
void NameByFile(const std::vector<std::string>& paths, std::vector<std::optional<machine::Chip>>* chips) {
  std::map<std::string, int> count;
  for (const auto& chip : *chips) ++count[chip->name];
  for (size_t i = 0; i < chips->size(); ++i) {
    machine::Chip& chip = *(*chips)[i];
    if (count[chip.name] > 1) chip.name = absl::StrCat(chip.name, " (", paths[i], ")");
  }
}

// Combines each topology with each chip file.
absl::StatusOr<std::vector<Slice>> ReadSlices(const SimulateOptions& options) {
  std::vector<std::optional<machine::Chip>> chips;
  for (const std::string& path : options.chips) {
    XLAD_ASSIGN_OR_RETURN(const std::string text, ReadInput(path));
    XLAD_ASSIGN_OR_RETURN(chips.emplace_back(), machine::ParseChip(text, path));
  }
  NameByFile(options.chips, &chips);
  if (chips.empty()) chips.emplace_back();
  std::vector<Slice> slices;
  for (const std::string& topology : options.topologies) {
    for (const std::optional<machine::Chip>& chip : chips) {
      XLAD_ASSIGN_OR_RETURN(slices.emplace_back(), WrongUsage(simulate::ParseSlice(topology, chip)));
      for (const std::string& link : options.broken_links) {
        const absl::Status broken = simulate::BreakLink(link, &slices.back());
        if (!broken.ok()) return WrongUsage(Annotate(broken, absl::StrCat("--broken-link on ", topology)));
      }
      const absl::Status cut = simulate::CutAround(options.broken_chips, &slices.back());
      if (!cut.ok()) return WrongUsage(Annotate(cut, absl::StrCat("--broken-chip on ", topology)));
    }
  }
  return slices;
}

absl::StatusOr<PreparedProgram> Prepare(const std::string& path, const std::string& mesh) {
  XLAD_ASSIGN_OR_RETURN(LoadedProgram program, LoadProgram(path, mesh));
  auto prepared = simulate::PrepareProgram(std::move(program.module), program.import);
  if (!prepared.ok()) return Annotate(prepared.status(), path);
  return prepared;
}

// Prints each warning once, even if many meshes have it.
class Warnings {
 public:
  void Print(const SimulatedRun& run) {
    for (const std::string& warning : run.prediction.step.warnings) {
      if (printed_.insert(warning).second) absl::FPrintF(stderr, "xlad: warning: %s\n", warning);
    }
  }

 private:
  std::set<std::string> printed_;
};

absl::StatusOr<SimulatedRun> RunOn(const PreparedProgram& program, const Slice& slice, const std::string& assign) {
  SimulatedRun run{slice, "", program.partitioned.mesh.ToString(), program.peak_bytes, program.flops, {}, {}};
  const auto placements = [&](const std::string& text) {
    return simulate::ParsePlacements(text, program.partitioned.mesh, slice).status();
  };
  // Without --assign, a mesh that does not fit the slice is an error of the program or of the slice.
  if (!assign.empty() && !placements(assign).ok() && placements("").ok()) {
    return WrongUsage(Annotate(placements(assign), "--assign"));
  }
  XLAD_ASSIGN_OR_RETURN(run.prediction, simulate::Predict(program, slice, assign));
  return run;
}

// The figures of a run. If `details` is false, collectives and links are omitted.
Json ToJson(const SimulatedRun& run, bool details) {
  Json json = {{"topology", run.slice.name}, {"mesh", run.mesh}, {"chips", run.slice.chips()}};
  if (!run.program.empty()) json["program"] = run.program;
  if (!run.error.ok()) {
    json["error"] = std::string(run.error.message());
    return json;
  }
  const simulate::StepTime& step = run.prediction.step;
  json.update({{"chip", run.slice.chip.name},
               {"assign", run.prediction.placement},
               {"step_us", step.us},
               {"mfu", run.prediction.mfu},
               {"flops", run.flops},
               {"peak_bytes", run.peak_bytes},
               {"hbm_bytes", run.slice.chip.hbm_bytes},
               {"hbm_traffic_bytes", step.hbm_bytes},
               {"units", {{"mxu", step.mxu_us}, {"vpu", step.vpu_us}, {"hbm", step.hbm_us}, {"ici", step.ici_us}}},
               {"stall_us", step.stall_us}});
  if (run.slice.slices() > 1) json["units"]["dcn"] = step.dcn_us;
  if (!details) return json;
  json["collectives"] = Json::array();
  for (const simulate::CollectiveUse& use : step.collectives) {
    json["collectives"].push_back({{"name", use.name},
                                   {"kind", use.kind},
                                   {"axes", use.axes},
                                   {"group", use.group},
                                   {"plan", use.plan},
                                   {"bytes", use.bytes},
                                   {"us", use.us},
                                   {"trips", use.trips}});
  }
  json["links"] = Json::array();
  for (int d = 0; d < std::ssize(step.link_us); ++d) {
    json["links"].push_back({{"dimension", std::string(1, run.slice.LetterOf(d))},
                             {"network", run.slice.IsDcn(d) ? "dcn" : "ici"},
                             {"chips", run.slice.grid[d]},
                             {"wraps", run.slice.Wraps(d)},
                             {"bytes", step.link_us[d] * run.slice.RateOf(d) / 1e6},
                             {"busy_us", step.link_us[d]},
                             {"use", step.us > 0 ? step.link_us[d] / step.us : 0}});
  }
  json["warnings"] = step.warnings;
  return json;
}

// Combines collectives of the same kind, size and group. Their numbers of executions are added.
std::vector<simulate::CollectiveUse> Combined(const std::vector<simulate::CollectiveUse>& uses) {
  std::vector<simulate::CollectiveUse> combined;
  for (const simulate::CollectiveUse& use : uses) {
    const auto same = std::find_if(combined.begin(), combined.end(), [&](const simulate::CollectiveUse& other) {
      return other.kind == use.kind && other.axes == use.axes && other.group == use.group && other.plan == use.plan &&
             other.bytes == use.bytes && other.us == use.us;
    });
    if (same == combined.end()) {
      combined.push_back(use);
    } else {
      same->trips += use.trips;
    }
  }
  return combined;
}

void PrintRun(const SimulatedRun& run) {
  const simulate::StepTime& step = run.prediction.step;
  absl::PrintF("%.1f us per step on %s (%s), mesh %s placed as %s\n", step.us, run.slice.name,
               Counted(run.slice.chips(), "chip"), run.mesh,
               run.prediction.placement.empty() ? "single" : run.prediction.placement);
  const auto bytes = static_cast<double>(run.peak_bytes);
  absl::PrintF("MFU %.1f %%, memory %s of %s%s, HBM traffic %s\n", 100 * run.prediction.mfu, BytesText(bytes),
               BytesText(run.slice.chip.hbm_bytes), bytes > run.slice.chip.hbm_bytes ? " (does not fit)" : "",
               BytesText(step.hbm_bytes));
  const std::string dcn = run.slice.slices() > 1 ? absl::StrFormat(", dcn %.1f", step.dcn_us) : "";
  absl::PrintF("busy us: mxu %.1f, vpu %.1f, hbm %.1f, ici %.1f%s; waiting for collectives %.1f\n", step.mxu_us,
               step.vpu_us, step.hbm_us, step.ici_us, dcn, step.stall_us);
  for (int d = 0; d < std::ssize(step.link_us); ++d) {
    const double use = step.us > 0 ? 100 * step.link_us[d] / step.us : 0.0;
    if (run.slice.IsDcn(d)) {
      absl::PrintF("DCN between %d slices (s): %.1f %% used\n", run.slice.slices(), use);
    } else {
      absl::PrintF("links along %c: %.1f %% used\n", run.slice.LetterOf(d), use);
    }
  }
  std::vector<simulate::CollectiveUse> uses = Combined(step.collectives);
  std::stable_sort(uses.begin(), uses.end(),
                   [](const auto& a, const auto& b) { return a.us * a.trips > b.us * b.trips; });
  if (!uses.empty())
    absl::PrintF("\n%12s %6s %12s %-19s %-10s %-14s %s\n", "us", "times", "bytes", "collective", "axes", "chips",
                 "plan");
  for (size_t i = 0; i < std::min(uses.size(), kMaxPrintedCollectives); ++i) {
    const simulate::CollectiveUse& use = uses[i];
    absl::PrintF("%12.1f %6.0f %12d %-19s %-10s %-14s %s\n", use.us, use.trips, use.bytes, use.kind, use.axes,
                 use.group, use.plan);
  }
  if (uses.size() > kMaxPrintedCollectives) {
    absl::PrintF("%d rows of collectives that take less time are not shown; --format json has all collectives\n",
                 uses.size() - kMaxPrintedCollectives);
  }
}

// The first two columns of the table. The name of the chip is added if it differs from the one in the topology.
std::pair<std::string, std::string> NamesOf(const SimulatedRun& run) {
  const bool is_named = absl::StrContains(run.slice.name, absl::StrCat(run.slice.chip.name, "-"));
  return {is_named ? run.slice.name : absl::StrCat(run.slice.name, " ", run.slice.chip.name),
          run.program.empty() ? run.mesh : absl::StrCat(run.program, " ", run.mesh)};
}

// One row and one bar for each run; the longest bar is the slowest step.
void PrintTable(const std::vector<SimulatedRun>& runs) {
  constexpr double kBar = 30;
  double slowest = 0;
  int name_width = 24, mesh_width = 24;
  for (const SimulatedRun& run : runs) {
    slowest = std::max(slowest, run.prediction.step.us);
    const auto [name, mesh] = NamesOf(run);
    name_width = std::max<int>(name_width, std::ssize(name));
    mesh_width = std::max<int>(mesh_width, std::ssize(mesh));
  }
  absl::PrintF("%-*s %-*s %14s %6s %10s\n", name_width, "topology", mesh_width, "mesh", "us per step", "MFU", "memory");
  bool all_fit = true;
  for (const SimulatedRun& run : runs) {
    const auto [name, mesh] = NamesOf(run);
    absl::PrintF("%-*s %-*s ", name_width, name, mesh_width, mesh);
    if (!run.error.ok()) {
      absl::PrintF("%s\n", run.error.message());
      continue;
    }
    const double us = run.prediction.step.us, bytes = static_cast<double>(run.peak_bytes);
    const bool fits = bytes <= run.slice.chip.hbm_bytes;
    all_fit = all_fit && fits;
    absl::PrintF("%14.1f %5.1f%% %9s%s %s\n", us, 100 * run.prediction.mfu, BytesText(bytes), fits ? " " : "!",
                 std::string(static_cast<size_t>(slowest > 0 ? kBar * us / slowest : 0), '#'));
  }
  if (!all_fit) absl::PrintF("! does not fit in the memory of the chip\n");
}

absl::StatusOr<std::vector<SimulatedRun>> Sweep(const SimulateOptions& options, const std::vector<Slice>& slices) {
  XLAD_ASSIGN_OR_RETURN(const sharding::Mesh named, sharding::ParseMesh(options.mesh));
  std::map<int, std::vector<const Slice*>> slices_of;  // Keyed by the number of chips, which determines the program.
  for (const Slice& slice : slices) slices_of[slice.chips()].push_back(&slice);
  std::vector<SimulatedRun> runs;
  Warnings warnings;
  for (const auto& [chips, alike] : slices_of) {
    for (const sharding::Mesh& mesh : simulate::MeshesLike(named, chips, kMaxSweptMeshes)) {
      const absl::StatusOr<PreparedProgram> program = Prepare(options.path, mesh.ToString());
      for (const Slice* slice : alike) {
        absl::StatusOr<SimulatedRun> found = program.ok() ? RunOn(*program, *slice, options.assign) : program.status();
        if (found.ok()) {
          warnings.Print(*found);
          runs.push_back(*std::move(found));
        } else {
          runs.push_back({*slice, "", mesh.ToString(), 0, 0, {}, found.status()});
        }
      }
    }
  }
  if (std::none_of(runs.begin(), runs.end(), [](const SimulatedRun& run) { return run.error.ok(); })) {
    return Annotate(runs.at(0).error, absl::StrCat("--sweep found no mesh that fits; ", runs[0].mesh));
  }
  std::stable_sort(runs.begin(), runs.end(), [](const SimulatedRun& a, const SimulatedRun& b) {
    return a.error.ok() != b.error.ok() ? a.error.ok() : a.prediction.step.us < b.prediction.step.us;
  });
  return runs;
}

absl::StatusOr<std::vector<SimulatedRun>> Simulate(const SimulateOptions& options, const std::vector<Slice>& slices) {
  struct Compared {
    std::string path, mesh;
  };
  std::vector<Compared> all = {{options.path, options.mesh}};
  const bool is_program = RealFileSystem().Exists(options.compare);
  if (is_program) {
    all.push_back({options.compare, options.mesh});
  } else if (!options.compare.empty()) {
    if (!client::ParseMeshFlag(options.compare).ok()) {
      return WrongUsage(absl::InvalidArgumentError(absl::StrCat(
          "--compare: found \"", options.compare, "\", expected a file that exists, or a mesh such as dp=4,tp=2")));
    }
    all.push_back({options.path, options.compare});
  }
  std::vector<SimulatedRun> runs;
  Warnings warnings;
  for (const auto& [path, mesh] : all) {
    XLAD_ASSIGN_OR_RETURN(const PreparedProgram program, Prepare(path, mesh));
    for (const Slice& slice : slices) {
      XLAD_ASSIGN_OR_RETURN(runs.emplace_back(), RunOn(program, slice, options.assign));
      warnings.Print(runs.back());
      if (is_program) runs.back().program = path;
    }
  }
  if (options.trace.empty()) return runs;
  XLAD_RETURN_IF_ERROR(WriteOutput(options.trace, simulate::TraceJson(runs[0].prediction.step)));
  return runs;
}

absl::Status RunSimulate(const SimulateOptions& options) {
  XLAD_ASSIGN_OR_RETURN(const std::vector<Slice> slices, ReadSlices(options));
  XLAD_ASSIGN_OR_RETURN(const std::vector<SimulatedRun> runs,
                        options.sweep ? Sweep(options, slices) : Simulate(options, slices));
  const bool single = runs.size() == 1 && !options.sweep;
  if (options.format == "json") {
    Json json = Json::array();
    for (const SimulatedRun& run : runs) json.push_back(ToJson(run, !options.sweep));
    absl::PrintF("%s\n", single ? JsonText(json[0], 1) : JsonText(Json{{"runs", json}}, 1));
  } else if (single) {
    PrintRun(runs[0]);
  } else {
    PrintTable(runs);
  }
  return absl::OkStatus();
}

}  // namespace

void AddSimulate(CLI::App& parent, Action* action) {
  auto options = std::make_shared<SimulateOptions>();
  CLI::App* app = parent.add_subcommand("simulate", "predict the time of a step on a slice of TPUs");
  app->footer(
      "Examples:\n  xlad simulate examples/spiral_mlp --topology v5e-2x4 --mesh dp=4,tp=2\n"
      "  xlad simulate step.hlo --topology v5p-16x20x28 --mesh dp=2240,tp=4 --assign tp=x4,dp=x4yz\n"
      "  xlad simulate step.hlo --topology 2xv6e-16x16 --mesh dp=2,fsdp=256 --assign fsdp=xy,dp=s\n"
      "  xlad simulate step.hlo --topology v5e-16x16 --topology v6e-16x16 --mesh dp=1,tp=1 --sweep\n"
      "docs/reference/simulate.md describes the model and chip files.");
  app->add_option("PROGRAM", options->path, "HLO text or proto, a job directory, or - for standard input")->required();
  app->add_option("--topology", options->topologies,
                  "the slice, such as v5e-16x16, or several slices, such as 2xv5p-4x4x8; may be repeated")
      ->required()
      ->allow_extra_args(false);
  app->add_option("--mesh", options->mesh, "mesh axes and sizes, such as dp=4,tp=2")->check(MeshAxes());
  app->add_option("--chip", options->chips,
                  "a chip file, in place of the chip that the topology names; may be repeated")
      ->check(InputFile())
      ->allow_extra_args(false);
  app->add_option("--assign", options->assign,
                  "torus dimensions of each mesh axis, innermost first, such as tp=z,dp=xy; default: the fastest");
  app->add_option("--broken-link", options->broken_links, "a link that carries nothing, such as 0-1; may be repeated")
      ->allow_extra_args(false);
  app->add_option("--broken-chip", options->broken_chips,
                  "a chip that runs nothing, such as 0; the largest box without it is used; may be repeated")
      ->allow_extra_args(false);
  auto* compare = app->add_option("--compare", options->compare, "another mesh or program, to compare with the first");
  auto* sweep = app->add_flag("--sweep", options->sweep, "try all sizes of the axes of --mesh that fit the topology");
  sweep->needs("--mesh")->excludes(compare);
  app->add_option("--trace", options->trace,
                  "write a timeline of the first prediction for chrome://tracing or Perfetto")
      ->check(OutputFile())
      ->excludes(sweep);
  AddFormatFlag(app, &options->format);
  app->callback([=] {
    *action = [=] {
      const absl::Status status = RunSimulate(*options);
      return status.ok() ? kOk : Fail(status);
    };
  });
}

}  // namespace xlad::cli
