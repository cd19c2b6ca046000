#include <cstdio>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "base/containers.h"
#include "base/suggest.h"
#include "cli/command.h"
#include "cli/flag_checks.h"
#include "cli/program.h"
#include "compiler/compile.h"
#include "compiler/pipeline.h"
#include "hlo/graph/graph.h"
#include "hlo/read/read.h"
#include "hlo/text/text.h"
#include "hlo/wire/proto.h"
#include "service/build/build.h"

namespace xlad::cli {
namespace {

struct OptOptions {
  std::string input, output, emit = "text", mesh, stage, passes;
  bool verify_only = false, list_passes = false;
};

absl::StatusOr<std::string> Emit(const hlo::Module& module, const std::string& emit) {
  if (emit == "proto") return hlo::SerializeProto(module);
  if (emit == "dot") return hlo::PrintDot(module);
  if (emit == "html") return hlo::PrintHtml(module);
  return hlo::PrintText(module);
}

std::vector<std::string> PassNames() {
  std::vector<std::string> names;
  for (const compiler::PassEntry& entry : compiler::PassTable()) {
    if (!Contains(names, entry.name)) names.push_back(entry.name);
  }
  return names;
}

absl::Status RunPasses(const std::vector<std::string>& only, hlo::Module* module) {
  const std::vector<std::string> known = PassNames();
  for (const std::string& name : only) {
    if (Contains(known, name)) continue;
    const std::string nearest = NearestName(name, known);
    return WrongUsage(absl::InvalidArgumentError(absl::StrCat(
        "--passes: found unknown pass ", name, nearest.empty() ? "" : absl::StrCat(", did you mean ", nearest, "?"),
        "; xlad opt --list-passes names them all")));
  }
  compiler::PassContext context;
  context.devices = module->num_partitions;
  compiler::PipelineOptions options;
  options.verify = true;
  options.only = only;
  std::vector<PassTime> times;
  return compiler::RunPipeline(*module, context, options, &times);
}

// Returns the module after a stage of the build.
absl::StatusOr<std::string> EmitStage(const OptOptions& options) {
  XLAD_ASSIGN_OR_RETURN(LoadedProgram program, LoadProgram(options.input, options.mesh));
  if (options.stage == "hlo") return Emit(*program.module, options.emit);
  if (options.stage == "propagated") {
    if (options.emit != "text") {
      return WrongUsage(
          absl::InvalidArgumentError(absl::StrCat("found --emit ", options.emit, ", expected text: the printer of ",
                                                  "--stage propagated writes shardings only as text")));
    }
    XLAD_ASSIGN_OR_RETURN(sharding::ShardedModule sharded,
                          sharding::Import(program.module->Clone(), program.import));
    XLAD_RETURN_IF_ERROR(sharding::Propagate(&sharded));
    // The pipeline chooses the propagation order by the cost of the partitioned programs. If the program cannot be
    // partitioned, the result is that of the default order.
    const auto result = PartitionProgram(std::move(program));
    return sharding::PrintPropagated(result.ok() ? result->propagated : sharded);
  }
  const JobSpec spec = program.job.spec;
  auto result = PartitionProgram(std::move(program));
  if (!result.ok()) return Annotate(result.status(), options.input);
  if (options.stage == "partitioned") return Emit(*result->partitioned.variants.at(0).module, options.emit);
  XLAD_ASSIGN_OR_RETURN(const CompileRequest request,
                        service::MakeCompileRequest(result->partitioned, spec, Target()));
  XLAD_ASSIGN_OR_RETURN(const compiler::Compilation compilation, compiler::CompileToSteps(request));
  return Emit(*compilation.module, options.emit);
}

absl::Status RunOpt(const OptOptions& options) {
  if (options.list_passes) {
    for (const std::string& name : PassNames()) std::printf("%s\n", name.c_str());
    return absl::OkStatus();
  }
  if (options.input.empty()) {
    return WrongUsage(absl::InvalidArgumentError("found no input, expected a program file or -"));
  }
  std::string out;
  if (!options.stage.empty()) {
    auto emitted = EmitStage(options);
    if (!emitted.ok()) return emitted.status();
    if (options.verify_only) return absl::OkStatus();
    out = *std::move(emitted);
  } else {
    XLAD_ASSIGN_OR_RETURN(const std::string bytes, ReadInput(options.input));
    const auto module = hlo::ReadModule(bytes);
    if (!module.ok()) return Annotate(module.status(), options.input);
    if (!options.passes.empty()) {
      const std::vector<std::string> passes = absl::StrSplit(options.passes, ',');
      XLAD_RETURN_IF_ERROR(RunPasses(passes, module->get()));
    }
    if (options.verify_only) return absl::OkStatus();
    XLAD_ASSIGN_OR_RETURN(out, Emit(**module, options.emit));
  }
  return WriteOutput(options.output, out);
}

}  // namespace

void AddOpt(CLI::App& parent, Action* action) {
  auto options = std::make_shared<OptOptions>();
  CLI::App* app =
      parent.add_subcommand("opt", "read a program in any form, verify it, run passes, print it in any form");
  app->footer("Examples:\n"
              "  xlad opt step.hlo.pb\n"
              "  xlad opt step.hlo --emit proto -o step.hlo.pb\n"
              "  xlad opt step.hlo --passes inline-calls,simplify\n"
              "  xlad opt step.hlo --stage partitioned --mesh dp=4,tp=2");
  app->add_option("IN", options->input,
                  "HLO text or proto (recognized by content), - for standard input; with --stage also a job directory");
  app->add_option("-o", options->output, "output file")->check(OutputFile());
  app->add_option("--emit", options->emit, "text, proto, dot or html")->capture_default_str()
      ->check(OneOf({"text", "proto", "dot", "html"}));
  app->add_flag("--verify-only", options->verify_only,
                "print nothing; the exit code says whether the program is valid");
  CLI::Option* passes =
      app->add_option("--passes", options->passes,
                      "passes to run, separated by commas; they run in the order of --list-passes");
  app->add_flag("--list-passes", options->list_passes, "print the names of the compiler's passes, in order");
  CLI::Option* stage =
      app->add_option("--stage", options->stage, "stop after this stage: hlo, propagated, partitioned or optimized")
          ->check(OneOf({"hlo", "propagated", "partitioned", "optimized"}))->excludes(passes);
  app->add_option("--mesh", options->mesh, "for --stage: sizes of the mesh axes, such as dp=4,tp=2")
      ->check(MeshAxes())
      ->needs(stage);
  app->callback([=] {
    *action = [=] {
      const absl::Status status = RunOpt(*options);
      return status.ok() ? kOk : Fail(status);
    };
  });
}

}  // namespace xlad::cli
