#include "cli/flag_checks.h"
#include "compiler/compile.h"

#include <cstdio>
#include <map>

#include "cli/command.h"
#include "cli/compile_flags.h"
#include "cli/compile_targets.h"
#include "cli/program.h"
#include "compiler/codegen/tpu/lower.h"
#include "compiler/kernel/gpu_target.h"
#include "compiler/kernel/schedule_tables.h"
#include "compiler/report.h"
#include "compiler/serialize.h"
#include "hlo/text/text.h"
#include "service/build/build.h"

namespace xlad::cli {
namespace {

struct CompileCommandOptions {
  std::string path, mesh, emit, output, dump_directory;
  std::string cpu, target;
  CompileFlags compile;
};

// The kernels of a program, or their kernel schedules. Different fusions may have the same kernel. Its schedule is
// printed only once, because a file of schedules may have only one for each kernel.
std::string KernelsText(const compiler::StepProgram& steps, bool schedules) {
  std::string text;
  std::map<uint64_t, std::string> printed;  // The symbol of the first request with this kernel.
  for (const compiler::KernelRequest& request : steps.kernels) {
    const compiler::ScheduledKernel* scheduled = request.kernel.get();
    if (scheduled == nullptr) {
      absl::StrAppend(&text, "# ", request.symbol, ": the kernel of ", request.root->name(), " has no statements\n\n");
      continue;
    }
    const auto [first, fresh] = printed.emplace(KernelHash(scheduled->kernel), request.symbol);
    if (schedules && !fresh) {
      absl::StrAppend(&text, "# ", request.symbol, ": ", request.root->name(), " has the kernel of ", first->second,
                      "\n\n");
      continue;
    }
    absl::StrAppend(&text, "# ", request.symbol, "\n",
                    schedules ? compiler::ScheduleEntryText(scheduled->kernel, scheduled->schedule)
                              : compiler::KernelText(scheduled->kernel),
                    "\n");
  }
  return text;
}

absl::StatusOr<Target> ReadTarget(const CompileCommandOptions& options) {
  Target target;
  if (!options.target.empty()) {
    if (!options.cpu.empty()) {
      return WrongUsage(
          absl::InvalidArgumentError("found --target and --cpu, expected one: a target includes its CPU"));
    }
    XLAD_ASSIGN_OR_RETURN(target, FindCompileTarget(options.target));
  }
  target.set_cpu(options.target.empty() ? options.cpu : target.cpu());
  if (options.emit == "llo" && target.chip().empty()) {
    return WrongUsage(absl::InvalidArgumentError(
        absl::StrCat("--emit llo: found ", options.target.empty() ? "no --target" : "--target " + options.target,
                     ", expected one of the TPUs among ", CompileTargetNames())));
  }
  if (options.emit == "ptx" && !compiler::IsGpu(target)) {
    return WrongUsage(absl::InvalidArgumentError(
        absl::StrCat("--emit ptx: found ", options.target.empty() ? "no --target" : "--target " + options.target,
                     ", expected one of the GPUs among ", CompileTargetNames())));
  }
  return target;
}

// Returns the text of the program for a simulated TPU.
absl::StatusOr<std::string> LloText(const CompileRequest& request) {
  XLAD_ASSIGN_OR_RETURN(const machine::Chip chip,
                        machine::ParseChip(request.target().chip(), request.target().device_model()));
  XLAD_ASSIGN_OR_RETURN(const compiler::Compilation compilation, compiler::CompileToSteps(request));
  return compiler::LloListing(*compilation.module, chip);
}

absl::Status RunCompile(const CompileCommandOptions& options) {
  XLAD_ASSIGN_OR_RETURN(LoadedProgram program, LoadProgram(options.path, options.mesh));
  WarnOfElidedConstants(*program.module);
  JobSpec spec = program.job.spec;
  XLAD_ASSIGN_OR_RETURN(*spec.mutable_compile(), ReadCompileFlags(options.compile));
  auto result = PartitionProgram(std::move(program));
  if (!result.ok()) return Annotate(result.status(), options.path);
  XLAD_ASSIGN_OR_RETURN(const Target target, ReadTarget(options));
  XLAD_ASSIGN_OR_RETURN(CompileRequest request, service::MakeCompileRequest(result->partitioned, spec, target));
  request.set_dump_directory(options.dump_directory);
  if (options.emit == "optimized" || options.emit == "kernels" || options.emit == "schedules") {
    XLAD_ASSIGN_OR_RETURN(const compiler::Compilation compilation, compiler::CompileToSteps(request));
    return WriteOutput(options.output, options.emit == "optimized"
                                           ? hlo::PrintText(*compilation.module)
                                           : KernelsText(compilation.steps, options.emit == "schedules"));
  }
  if (options.emit == "llo") {
    XLAD_ASSIGN_OR_RETURN(const std::string text, LloText(request));
    return WriteOutput(options.output, text);
  }
  const bool listings = options.emit == "llvm" || options.emit == "asm" || options.emit == "ptx";
  XLAD_ASSIGN_OR_RETURN(const compiler::CompileResult compiled,
                        compiler::CompileWithListings(request, compiler::CompileOptions(), listings));
  const Executable& executable = compiled.executable;
  if (options.emit == "llvm") return WriteOutput(options.output, compiled.ir);
  if (options.emit == "asm" || options.emit == "ptx") return WriteOutput(options.output, compiled.assembly);
  if (options.emit == "steps") return WriteOutput(options.output, compiler::StepsText(executable));
  if (options.emit == "buffers") return WriteOutput(options.output, compiler::BuffersText(executable));
  if (!options.output.empty()) {
    XLAD_ASSIGN_OR_RETURN(const std::string bytes, compiler::SerializeExecutable(executable));
    return WriteOutput(options.output, bytes);
  }
  std::printf("steps: %d, bytes of object code: %zu, collectives: %d\n", executable.steps_size(),
              executable.object_code().size(), executable.collectives_size());
  const std::string changes = compiler::RematerializationText(executable);
  if (!changes.empty()) std::printf("%s\n", changes.c_str());
  return absl::OkStatus();
}

}  // namespace

void AddCompile(CLI::App& parent, Action* action) {
  auto options = std::make_shared<CompileCommandOptions>();
  CLI::App* app = parent.add_subcommand("compile", "compile a program for this machine, or print an intermediate form");
  app->footer("Examples:\n  xlad compile step.hlo --emit optimized\n  xlad compile step.hlo --emit asm -o step.s\n"
              "  xlad compile examples/spiral_mlp --mesh dp=8 -o step.executable\n"
              "  xlad compile step.hlo --target tpu-v5e --emit llo\n"
              "  xlad compile step.hlo --target nvptx-sm_90 --emit ptx");
  app->add_option("PROGRAM", options->path, "HLO text or proto, a job directory, or - for standard input")->required();
  app->add_option("--mesh", options->mesh, "mesh axes and sizes, such as dp=4,tp=2")->check(MeshAxes());
  app->add_option("--emit", options->emit, "optimized, kernels, schedules, llvm, asm, ptx, llo, steps or buffers")
      ->check(OneOf({"optimized", "kernels", "schedules", "llvm", "asm", "ptx", "llo", "steps", "buffers"}));
  app->add_option("--target", options->target,
                  absl::StrCat("compile for one of these instead of this machine: ", CompileTargetNames()));
  AddCompileFlags(app, &options->compile);
  app->add_option("--cpu", options->cpu, "LLVM's name of the CPU; default: this machine's");
  app->add_option("--dump", options->dump_directory, "write the module after every pass into this folder");
  app->add_option("-o", options->output, "output file: the executable, or the form that --emit selects")
      ->check(OutputFile());
  app->callback([=] {
    *action = [=] {
      const absl::Status status = RunCompile(*options);
      return status.ok() ? kOk : Fail(status);
    };
  });
}

}  // namespace xlad::cli
