#include "cli/compile_flags.h"

#include "base/file_system.h"
#include "cli/command.h"
#include "cli/flag_checks.h"
#include "compiler/kernel/schedule_tables.h"

namespace xlad::cli {

void AddCompileFlags(CLI::App* app, CompileFlags* flags) {
  app->add_option("--executor", flags->executor,
                  "compiled, or op-by-op: every instruction by itself, nothing is fused or combined")
      ->capture_default_str()
      ->check(OneOf({"compiled", "op-by-op"}));
  app->add_option("--mode", flags->mode,
                  "order of reductions among devices: run-to-run (each run has the same bits), canonical (a balanced "
                  "tree over the mesh's logical shards: the same bits on any number of devices that divides them), or "
                  "fast (any order)")
      ->capture_default_str()
      ->check(OneOf({"run-to-run", "canonical", "fast"}));
  app->add_flag("--check-numerics", flags->check_numerics,
                "with --executor op-by-op: fail at the first NaN or infinity that an instruction makes, and name it");
  app->add_option("--overlap", flags->overlap,
                  "which collectives run during computation: by-cost, always (all that can) or never")
      ->capture_default_str()
      ->check(OneOf({"by-cost", "always", "never"}));
  app->add_option("--schedules", flags->schedules_path,
                  "kernel schedules instead of the compiler's own, in the form that `xlad compile --emit schedules` "
                  "prints")
      ->check(InputFile());
  app->add_option("--memory-limit", flags->memory_limit_bytes,
                  "the most memory of a step on a device, in bytes or as 500MB or 2GB: values are computed again "
                  "instead of kept, and a program that still needs more is refused; 0: no limit")
      ->transform(ByteSize())
      ->check(AtLeast(0))
      ->capture_default_str();
}

void AddTierFlag(CLI::App* app, CompileFlags* flags) {
  app->add_option("--compile-tier", flags->tier,
                  "quick-first: start on code that is compiled quickly, and replace it by optimized code between two "
                  "steps (with the same bits, except the signs and payloads of NaNs); optimized: start when the "
                  "optimized code is compiled")
      ->capture_default_str()
      ->check(OneOf({"quick-first", "optimized"}));
}

JobSpec::CompileTier TierOf(const CompileFlags& flags) {
  return flags.tier == "optimized" ? JobSpec::OPTIMIZED : JobSpec::QUICK_FIRST;
}

absl::StatusOr<CompilePolicy> ReadCompileFlags(const CompileFlags& flags) {
  CompilePolicy policy;
  policy.set_op_by_op(flags.executor == "op-by-op");
  policy.set_check_numerics(flags.check_numerics);
  if (flags.overlap == "always") policy.set_overlap(CompilePolicy::ALWAYS);
  if (flags.overlap == "never") policy.set_overlap(CompilePolicy::NEVER);
  policy.set_memory_limit_bytes(flags.memory_limit_bytes);
  policy.set_reduction_mode(flags.mode == "canonical" ? CANONICAL : flags.mode == "fast" ? FAST : RUN_TO_RUN);
  if (flags.check_numerics && !policy.op_by_op()) {
    return WrongUsage(absl::InvalidArgumentError(
        "--check-numerics: found --executor compiled, expected op-by-op, in which every instruction can be checked"));
  }
  if (flags.schedules_path.empty()) return policy;
  XLAD_ASSIGN_OR_RETURN(*policy.mutable_kernel_schedules(), RealFileSystem().Read(flags.schedules_path));
  const auto table = compiler::ScheduleTable::Parse(policy.kernel_schedules());
  if (!table.ok()) return Annotate(table.status(), flags.schedules_path);
  return policy;
}

}  // namespace xlad::cli
